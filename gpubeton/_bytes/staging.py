"""Staging: blocks of memory for the bytes of batches."""

from __future__ import annotations

import mmap
import threading
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

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
