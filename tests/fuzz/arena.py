"""Memory between unreadable pages that is used again for each case, so that a case costs no system call."""

from __future__ import annotations

import numpy as np

from tests.cpu.guarded import Slots

#: What these arrays are read with needs vectors at whole addresses; all others may lie anywhere.
_ALIGNED = {"coefficients": 64, "strips": 64}


class Arena(Slots):
    """Places for arrays, each against an unreadable page: with its end, or with its start.

    Between the end of an array and the page lies nothing, but for the two arrays that have to be aligned.
    """

    def __init__(self, count, size):
        super().__init__(count, size)
        self._count = count
        self.begin(at_end=True)

    def begin(self, *, at_end):
        """Give all places back; the next arrays lie at the end or at the start of theirs."""
        self._used, self.at_end = 0, at_end

    def place(self, data):
        """A copy of some bytes."""
        self._used += 1
        if self._used > self._count:
            raise MemoryError(f"an arena has {self._count} places")
        return (self.ending if self.at_end else self.starting)(self._used - 1, data)

    def array(self, array, alignment=1):
        """A copy of an array."""
        size = -(-array.nbytes // alignment) * alignment
        place = self.place(array.tobytes() + bytes(size - array.nbytes))
        return place[: array.nbytes].view(array.dtype).reshape(array.shape)

    def scratch(self, memory):
        """A copy of a worker's memory, or of a part of it."""
        return memory._replace(
            **{
                name: self.array(array, _ALIGNED.get(name, 1)) if isinstance(array, np.ndarray) else self.scratch(array)
                for name, array in memory._asdict().items()
            }
        )
