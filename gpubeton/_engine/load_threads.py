"""LoadThreads: threads that load parts of files, in the order in which they were asked for."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._bytes.store_client import REPEATS, shown
from gpubeton.errors import LoaderClosedError
from gpubeton.format.data_files import split_offsets

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpubeton._bytes.open_files import OpenSources

FIRST_REQUESTS = 16
"""Requests in flight at first: twice as many when the loop has to wait, half as many if the store is overloaded."""
# How long `close` waits for requests in flight, which write into memory that nothing else uses.
_PATIENCE_SECONDS = 0.5


class Load:
    """A part of a file in memory, or on its way there."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop  # global offsets
        self.shift = 0  # added to a global offset within it, it gives the address
        self.error: BaseException | None = None
        self.began_at = 0  # requests that could be in flight when it was begun
        self._content: memoryview | None = None  # keeps the memory
        self._is_done = threading.Event()

    @property
    def is_done(self) -> bool:
        """Whether it is there, or cannot be loaded."""
        return self._is_done.is_set()

    def wait(self) -> memoryview:
        """Wait until it is there, and give it; raise the error if it cannot be loaded."""
        self._is_done.wait()
        if self.error is not None:
            raise self.error
        assert self._content is not None, "it is there"
        return self._content

    def carry_out(self, files: OpenSources) -> None:
        """Load it; errors are raised where it is waited for."""
        try:
            file, start = split_offsets(np.array([self.start], np.uint64))
            self._content = files.open(int(file[0])).load(int(start[0]), self.stop - self.start)
            self.shift = np.frombuffer(self._content, np.uint8).ctypes.data - self.start
        except BaseException as error:  # noqa: BLE001  it would be lost in this thread
            self.error = error
        self._is_done.set()

    def give_up(self, error: BaseException) -> None:
        """End the waiting for a part, if it is not there."""
        if not self.is_done:
            self.error = error
            self._is_done.set()


class LoadThreads:
    """Threads that load parts of files; as many at once as `at_once`. Thread-safe."""

    def __init__(self, files: OpenSources, at_once: int, most: int) -> None:
        self.at_once = min(at_once, most)
        self._files, self._most = files, most
        self._asked: deque[Load] = deque()
        self._in_flight: set[Load] = set()
        self._is_closed = False
        self._change = threading.Condition()
        self._slow_downs = REPEATS.slow_downs
        self._threads: list[threading.Thread] = []

    def ask(self, start: int, stop: int, *, is_urgent: bool = False) -> Load:
        """Ask for a part by its global offsets; returns at once. An urgent one comes before all others."""
        load = Load(start, stop)
        with self._change:
            if self._is_closed:
                raise self._closed_error()
            if is_urgent:
                self._asked.appendleft(load)
            else:
                self._asked.append(load)
            self._begin_threads()
            self._change.notify()
        return load

    def speed_up(self) -> None:
        """Double the number of requests in flight, up to the most."""
        with self._change:
            self.at_once = min(2 * self.at_once, self._most)
            self._begin_threads()
            self._change.notify_all()

    def close(self) -> None:
        """Drop loads that were not begun, and end the threads; may be called twice, and after `finish`."""
        self.finish(())
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self.interrupt(())

    def interrupt(self, others: Collection[Load]) -> None:
        """Drop loads that were not begun, and end the waiting for the rest and for loads of other threads."""
        self.finish(())
        with self._change:
            late = [*self._in_flight, *others]
        for load in late:
            load.give_up(self._closed_error())

    def finish(self, kept: Collection[Load]) -> None:
        """Drop loads that were not begun, except for some; the threads end after these."""
        with self._change:
            self._is_closed = True
            dropped = [load for load in self._asked if load not in kept]
            self._asked = deque(load for load in self._asked if load in kept)
            self._change.notify_all()
        for load in dropped:
            load.give_up(self._closed_error())

    def _begin_threads(self) -> None:
        while len(self._threads) < min(self.at_once, len(self._in_flight) + len(self._asked)):
            name = f"gpubeton-load-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._threads[-1].start()

    def _work(self) -> None:
        """Body of a thread."""
        while (load := self._next()) is not None:
            load.carry_out(self._files)
            with self._change:
                self._in_flight.discard(load)
                self._slow_down_if_asked(load)
                # Where nothing comes any more, all that wait for room have to end.
                self._change.notify(len(self._threads) if self._is_closed else 1)
            # It holds memory, which may have to go while this thread waits for the next.
            del load

    def _slow_down_if_asked(self, load: Load) -> None:
        """Halve the number of requests in flight after a load that began since it was changed, if the store asks so."""
        if REPEATS.slow_downs > self._slow_downs:
            self._slow_downs = REPEATS.slow_downs
            if load.began_at == self.at_once:
                self.at_once = max(self.at_once // 2, 1)

    def _next(self) -> Load | None:
        """Wait for a part to load; None at the end."""
        with self._change:
            while len(self._in_flight) >= self.at_once or not (self._asked or self._is_closed):
                self._change.wait()
            if not self._asked:
                return None
            load = self._asked.popleft()
            self._in_flight.add(load)
            load.began_at = self.at_once
            return load

    def _closed_error(self) -> LoaderClosedError:
        return LoaderClosedError(f"{shown(self._files.paths[0])}: the loader was closed while a batch was loaded")
