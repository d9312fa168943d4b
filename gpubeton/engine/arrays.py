"""ArrayPool: memory for batches, used again once nobody refers to it."""

from __future__ import annotations

import math
import mmap
import weakref
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.storage.staging import allocate_block

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

# Below this size numpy's own allocator is as fast, and what it returns is in the processor's cache.
_SMALLEST_BLOCK = 1 << 16


class ArrayPool:
    """Arrays that belong to whoever receives them, in memory that is used again afterwards.

    Fresh memory is expensive: the system clears each page when it is touched first, which on a virtual machine can take
    as long as half of the decoding. A block of the pool is handed out again only when the array, every view of it and
    every tensor over it are gone, so that a batch is never overwritten while somebody holds a part of it.

    May be used by several threads at once, and takes no lock: arrays are given back by the garbage collector, which
    may run in the middle of anything.

    Examples
    --------
    >>> pool = ArrayPool()
    >>> batch = pool.take((256, 512), np.float32)
    >>> address = batch.ctypes.data
    >>> del batch
    >>> pool.take((512, 256), np.float32).ctypes.data == address
    True
    """

    def __init__(self) -> None:
        self._free: defaultdict[int, deque[mmap.mmap]] = defaultdict(deque)
        self._sizes_in_use: set[int] = set()
        self._max_free = 8
        self._is_closed = False

    def take(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Give an array, C-contiguous and not initialised.

        Parameters
        ----------
        shape : tuple of int
            Its shape.
        dtype : dtype
            Its dtype.

        Returns
        -------
        ndarray
            It belongs to the caller, who may pass it on to anybody.
        """
        dtype = np.dtype(dtype)
        count = math.prod(shape)
        nbytes = count * dtype.itemsize
        if nbytes < _SMALLEST_BLOCK:
            return np.empty(shape, dtype)
        # Sizes stay apart: a pool serves a few arrays of few sizes.
        nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._sizes_in_use.add(nbytes)
        try:
            block = self._free[nbytes].pop()
        except IndexError:
            block = allocate_block(nbytes)
        # Views of an array refer to the first array over the memory, which is this one. It is made anew for each
        # user: when it dies, all of them are gone.
        first = np.frombuffer(block, dtype, count)
        # Whoever holds an array is not to keep the pool, and all that is free in it, alive.
        weakref.finalize(first, _give_back, weakref.ref(self), nbytes, block).atexit = False
        return first.reshape(shape)

    def begin_epoch(self, max_free: int) -> None:
        """Free memory of sizes that were not asked for since the last call: the batches are of another size now.

        Parameters
        ----------
        max_free : int
            Most blocks of one size to keep for later use, from now on.
        """
        self._max_free = max_free
        for nbytes in list(self._free):
            if nbytes not in self._sizes_in_use:
                self._free.pop(nbytes, None)
        self._sizes_in_use = set()

    def close(self) -> None:
        """Free the memory that nobody uses; what is in use is freed when its user is done."""
        self._is_closed = True
        self._free.clear()

    def give_back(self, nbytes: int, block: mmap.mmap) -> None:
        """Take memory back that nobody uses any more; called when the last array over it is gone.

        Parameters
        ----------
        nbytes : int
            Its size.
        block : mmap
            The memory.
        """
        free = self._free[nbytes]
        if not self._is_closed and len(free) < self._max_free:
            free.append(block)


def _give_back(pool: weakref.ref[ArrayPool], nbytes: int, block: mmap.mmap) -> None:
    alive = pool()
    if alive is not None:
        alive.give_back(nbytes, block)
