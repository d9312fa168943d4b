"""Staging: memory that bytes of the file pass through, used again for the next batch."""

from __future__ import annotations

import mmap
import threading

from gpubeton.storage.block import allocate_block

STEP = 1 << 20
"""Sizes are rounded up to multiples of this, so that most batches, which differ a little, fit into an earlier block."""


class Staging:
    """Blocks of memory for the bytes of batches.

    Holds as many blocks as were ever in use at once, none larger than the largest that was asked for (rounded up to a
    MiB). Safe to use from several threads.

    Examples
    --------
    >>> staging = Staging()
    >>> block = staging.take(5_000_000)
    >>> staging.give_back(block)
    >>> staging.take(4_000_000) is block
    True
    """

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> mmap.mmap:
        """Give a block.

        Parameters
        ----------
        nbytes : int
            Bytes wanted.

        Returns
        -------
        mmap
            Memory of at least that size, not initialised, until it is given back.
        """
        with self._lock:
            for number, block in enumerate(self._free):
                if len(block) >= nbytes:
                    return self._free.pop(number)
            # None is large enough: a larger one takes the place of the largest, so that their number does not grow.
            if self._free:
                self._free.pop()
        return allocate_block(-(-max(nbytes, 1) // STEP) * STEP)

    def give_back(self, block: mmap.mmap) -> None:
        """Take a block back, for others to use.

        Parameters
        ----------
        block : mmap
            What `take` returned; nobody may use it any more.
        """
        with self._lock:
            self._free.append(block)
            # Smallest first: the search takes the smallest that fits.
            self._free.sort(key=len)
