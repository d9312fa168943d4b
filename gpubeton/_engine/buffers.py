"""Memory for batches: arrays for their receivers, and staging blocks for the bytes of files."""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike

STEP = 1 << 20
"""Sizes are rounded up to multiples of this, so that most batches, which differ a little, fit into an earlier block."""

Buffer: TypeAlias = mmap.mmap | NDArray[np.uint8]
"""Writable memory."""

# Memory of this process alone: by default a mapping is shared with children, which would write into our batches.
# Windows has no such children, and no flags.
_FLAGS = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def allocate_block(nbytes: int) -> mmap.mmap:
    """Allocate memory that goes back to the system with the last reference to it."""
    block = mmap.mmap(-1, nbytes, **_FLAGS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            block.madvise(mmap.MADV_HUGEPAGE)  # touching it first takes a third of the time
        except OSError:  # a kernel without them
            return block
    return block


class Staging:
    """Blocks of memory for the bytes of batches. Thread-safe."""

    # It holds as many blocks as were ever in use at once, none larger than the largest that was requested.

    def __init__(self, allocate: Callable[[int], Buffer] = allocate_block, *, is_pinned: bool = False) -> None:
        self.is_pinned = is_pinned
        self._allocate = allocate
        self._free: list[Buffer] = []
        # Without a lock: a finalizer gives blocks back, and may run at any time, also within `take`.
        self._returned: deque[Buffer] = deque()
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Buffer:
        """Give a block of at least so many bytes, not initialized."""
        with self._lock:
            while self._returned:
                self._free.append(self._returned.popleft())
            self._free.sort(key=len)  # smallest first: the search takes the smallest that fits
            for number, block in enumerate(self._free):
                if len(block) >= nbytes:
                    return self._free.pop(number)
            # None is large enough: a larger one takes the place of the largest, so that their number does not grow.
            if self._free:
                self._free.pop()
        return self._allocate(-(-max(nbytes, 1) // STEP) * STEP)

    def give_back(self, block: Buffer) -> None:
        """Take a block back, for others to use."""
        self._returned.append(block)


# Below this size numpy's own allocator is as fast, and its memory is in the processor's cache.
_SMALLEST_BLOCK = 1 << 16


class ArrayPool:
    """Gives arrays that belong to their receiver; their memory is used again afterwards."""

    # Fresh memory is expensive: the system clears each page at its first use, which on a virtual machine can take as
    # long as half of the decoding. A block is used again only when the array, every view of it and every tensor over it
    # are gone, so that a batch is never overwritten while a part of it is in use.
    #
    # Several threads may use it at once. It takes no lock: the garbage collector gives arrays back, and may run in the
    # middle of anything.

    def __init__(self, allocate: Callable[[int], Buffer] = allocate_block) -> None:
        self._allocate = allocate
        self._free: defaultdict[int, deque[Buffer]] = defaultdict(deque)
        self._sizes_in_use: set[int] = set()
        self._max_free = 8
        self._is_closed = False

    def take(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Give an array, C-contiguous and uninitialized."""
        dtype = np.dtype(dtype)
        count = math.prod(shape)
        nbytes = count * dtype.itemsize
        if nbytes < _SMALLEST_BLOCK:
            return np.empty(shape, dtype)
        # Blocks are not split: a pool serves few arrays of few sizes.
        nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._sizes_in_use.add(nbytes)
        try:
            block = self._free[nbytes].pop()
        except IndexError:
            block = self._allocate(nbytes)
        # Views of an array refer to the first array over the memory, which is this one. Each user gets a new one: when
        # it is collected, all views are gone.
        first = np.frombuffer(block, dtype, count)
        # A weak reference: an array must not keep the pool and its free memory alive.
        weakref.finalize(first, _give_back, weakref.ref(self), nbytes, block).atexit = False
        return first.reshape(shape)

    def begin_epoch(self, max_free: int) -> None:
        """Free blocks of sizes that were not used since the last call; from now on keep up to `max_free` of a size."""
        self._max_free = max_free
        for nbytes in list(self._free):
            if nbytes not in self._sizes_in_use:
                self._free.pop(nbytes, None)
        self._sizes_in_use = set()

    def close(self) -> None:
        """Free the unused memory now, and the rest when its user is done."""
        self._is_closed = True
        self._free.clear()

    def give_back(self, nbytes: int, block: Buffer) -> None:
        """Take a block back after the last array over it is gone."""
        free = self._free[nbytes]
        if not self._is_closed and len(free) < self._max_free:
            free.append(block)


def _give_back(pool: weakref.ref[ArrayPool], nbytes: int, block: Buffer) -> None:
    alive = pool()
    if alive is not None:
        alive.give_back(nbytes, block)
