"""Blocks: large pieces of memory, straight from the operating system."""

from __future__ import annotations

import mmap

# Memory of this process alone: by default a mapping is shared with children, which would write into our batches.
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def allocate_block(nbytes: int) -> mmap.mmap:
    """Allocate memory that goes back to the system as soon as nobody refers to it."""
    block = mmap.mmap(-1, nbytes, flags=_FLAGS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            block.madvise(mmap.MADV_HUGEPAGE)  # touching it first takes a third of the time
        except OSError:  # a kernel without them
            return block
    return block
