"""Memory between unreadable pages: a read or write out of bounds ends the process instead of going unseen."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE

_PROT_NONE = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Slots:
    """Slots for `count` arrays of up to `size` bytes, each with an unreadable page before and after it."""

    def __init__(self, count, size):
        self.size = -(-size // PAGE) * PAGE
        # Private: what a forked process writes stays there.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = np.frombuffer(mmap.mmap(-1, count * (self.size + PAGE) + PAGE, flags), np.uint8)
        for i in range(count + 1):
            self._protect(i * (self.size + PAGE))

    def _protect(self, offset):
        if _libc.mprotect(self._memory.ctypes.data + offset, PAGE, _PROT_NONE) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def _slot(self, index):
        start = PAGE + index * (self.size + PAGE)
        return self._memory[start : start + self.size]

    def ending(self, index, data):
        """A copy of the bytes whose last one is followed by the unreadable page."""
        place = self._slot(index)[self.size - len(data) :]
        place[:] = np.frombuffer(data, np.uint8)
        return place

    def starting(self, index, data):
        """A copy of the bytes whose first one follows the unreadable page."""
        place = self._slot(index)[: len(data)]
        place[:] = np.frombuffer(data, np.uint8)
        return place


def guarded(array, alignment=64):
    """A copy of the array right before an unreadable page: after it, but for alignment, no byte can be accessed."""
    size = -(-array.nbytes // alignment) * alignment
    place = Slots(1, max(size, 1)).ending(0, bytes(size))[: array.nbytes]
    copy = place.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def guarded_scratch(memory):
    """A worker's memory, or a part of it, with each of its arrays guarded."""
    return memory._replace(
        **{
            name: guarded(array) if isinstance(array, np.ndarray) else guarded_scratch(array)
            for name, array in memory._asdict().items()
        }
    )
