"""WorkClock: measures how busy a worker thread is."""

from __future__ import annotations

import time

from gpubeton.plan.image_executor import Usage


class WorkClock:
    """Sums up the time in which one thread is busy."""

    # Each call reads two clocks, so it belongs around batches, not around images.

    def __init__(self) -> None:
        # Finished work, and the start of the work under way: assigned at once, so that other threads read both of
        # one moment.
        self._state: tuple[Usage, tuple[float, float] | None] = Usage(), None

    def begin(self) -> None:
        """Note that the calling thread has work from now on."""
        self._state = self._state[0], (time.perf_counter(), time.thread_time())

    def pause(self) -> None:
        """Note that the calling thread waits from now on; no effect if it does already."""
        done, begun = self._state
        if begun is not None:
            wall, cpu = begun
            self._state = done + Usage(time.perf_counter() - wall, time.thread_time() - cpu), None

    @property
    def usage(self) -> Usage:
        """Usage until now. The processor time of work under way is added when it pauses."""
        done, begun = self._state
        return done if begun is None else done + Usage(time.perf_counter() - begun[0])
