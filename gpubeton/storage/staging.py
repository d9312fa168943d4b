"""Staging: memory that bytes of the file pass through, used again for the next batch."""

from __future__ import annotations

import mmap
import threading
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpubeton.storage.block import allocate_block

if TYPE_CHECKING:
    from collections.abc import Callable

STEP = 1 << 20
"""Sizes are rounded up to multiples of this, so that most batches, which differ a little, fit into an earlier block."""


Buffer: TypeAlias = mmap.mmap | NDArray[np.uint8]
"""Writable memory."""


class Staging:
    """Blocks of memory for the bytes of batches.

    Holds as many blocks as were ever in use at once, none larger than the largest that was asked for (rounded up to a
    MiB). Safe to use from several threads.

    Parameters
    ----------
    allocate : callable
        Allocates a block of so many bytes, freed when nobody refers to it. By default ordinary memory.
    is_pinned : bool
        Whether blocks are page-locked, so that a GPU reads them where they are.

    Attributes
    ----------
    is_pinned : bool
        See above.

    Examples
    --------
    >>> staging = Staging()
    >>> block = staging.take(5_000_000)
    >>> staging.give_back(block)
    >>> staging.take(4_000_000) is block
    True
    """

    def __init__(self, allocate: Callable[[int], Buffer] = allocate_block, *, is_pinned: bool = False) -> None:
        self.is_pinned = is_pinned
        self._allocate = allocate
        self._free: list[Buffer] = []
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Buffer:
        """Give a block.

        Parameters
        ----------
        nbytes : int
            Bytes wanted.

        Returns
        -------
        Buffer
            Memory of at least that size, not initialised, until it is given back.
        """
        with self._lock:
            for number, block in enumerate(self._free):
                if len(block) >= nbytes:
                    return self._free.pop(number)
            # None is large enough: a larger one takes the place of the largest, so that their number does not grow.
            if self._free:
                self._free.pop()
        return self._allocate(-(-max(nbytes, 1) // STEP) * STEP)

    def give_back(self, block: Buffer) -> None:
        """Take a block back, for others to use.

        Parameters
        ----------
        block : Buffer
            What `take` returned; nobody may use it any more.
        """
        with self._lock:
            self._free.append(block)
            # Smallest first: the search takes the smallest that fits.
            self._free.sort(key=len)
