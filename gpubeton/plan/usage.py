"""Usage: how busy the threads are that carry a plan out."""

from __future__ import annotations

import time
from typing import NamedTuple


class Usage(NamedTuple):
    """How busy some threads were.

    Parameters
    ----------
    busy_seconds : float
        Wall time in which they had something to do, added up over the threads.
    cpu_seconds : float
        Processor time that they took. It is less than `busy_seconds` by as much as they had to wait for a disk (the
        pages of a mapped file) or for a core that others used.

    Examples
    --------
    >>> Usage(2.0, 1.5) + Usage(1.0, 1.0)
    Usage(busy_seconds=3.0, cpu_seconds=2.5)
    """

    busy_seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __add__(self, other: object) -> Usage:
        """Add the usage of other threads."""
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(self.busy_seconds + other.busy_seconds, self.cpu_seconds + other.cpu_seconds)


class WorkClock:
    """Adds up the time in which one thread is busy.

    The thread itself calls `begin` and `pause`; any thread may ask for `usage`. It costs two readings of clocks for
    each of them, so it belongs around whole batches, not around images.
    """

    def __init__(self) -> None:
        # What is done, and since when more is under way: one assignment, so that whoever asks sees both of one moment.
        self._state: tuple[Usage, tuple[float, float] | None] = Usage(), None

    def begin(self) -> None:
        """Note that the calling thread has something to do from now on."""
        self._state = self._state[0], (time.perf_counter(), time.thread_time())

    def pause(self) -> None:
        """Note that the calling thread waits from now on; without effect if it did already."""
        done, begun = self._state
        if begun is not None:
            wall, cpu = begun
            self._state = done + Usage(time.perf_counter() - wall, time.thread_time() - cpu), None

    @property
    def usage(self) -> Usage:
        """What was added up until now. The processor time of work under way is counted when it pauses."""
        done, begun = self._state
        return done if begun is None else done + Usage(time.perf_counter() - begun[0])
