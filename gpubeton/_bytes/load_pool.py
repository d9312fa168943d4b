"""LoadPool: threads that load bytes, in the order in which this was requested."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gpubeton._bytes.store_client import REPEATS
from gpubeton.errors import LoaderClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_T = TypeVar("_T")


@dataclass
class Transfer:
    """Counts what was loaded of files that are not on this machine."""

    requests: int = 0
    nbytes: int = 0  # that they brought
    cached_nbytes: int = 0  # that were asked for and in the cache
    is_all_cached: bool = False  # the files are mapped from the cache: nothing more is counted

    def count(self, nbytes: int) -> None:
        """Count a request."""
        self.requests += 1
        self.nbytes += nbytes


class _Work(NamedTuple):
    """A load or a task that was not begun."""

    future: Future[Any]
    function: Callable[[], Any]


class LoadPool:
    """Threads that load bytes, as many at once as `at_once`. Thread-safe."""

    # Threads are started when they are needed, and end with the pool. Unlike those of an executor of Python's, they do
    # not hold up the end of the program.
    #
    # A load is a request to a disk or to another machine. A task is work that a loop must not wait for, such as a copy
    # or the plan of an epoch. Tasks are not counted as requests, and each has a thread: it may wait for loads.

    def __init__(
        self,
        title: str,  # of the file or files, for errors
        at_once: int,
        most: int | None = None,  # up to which `speed_up` goes
        *,
        adapts: bool = True,  # halves `at_once` when a store is overloaded
        name: str = "gpubeton-load",  # of the threads
    ) -> None:
        self._most = at_once if most is None else most
        self.at_once = min(at_once, self._most)
        self._title, self._adapts, self._name = title, adapts, name
        self._loads: deque[_Work] = deque()
        self._tasks: deque[_Work] = deque()
        self._in_flight: dict[Future[Any], int] = {}  # loads, and `at_once` when each was begun
        self._running: set[Future[Any]] = set()  # tasks
        self._is_closed = False
        self._change = threading.Condition()
        self._slow_downs = REPEATS.slow_downs
        self._threads: list[threading.Thread] = []

    def enqueue(self, function: Callable[..., _T], *arguments: Any, is_urgent: bool = False) -> Future[_T]:
        """Have a function load something; returns at once. An urgent load comes before all others."""
        return self._add(self._loads, partial(function, *arguments), is_urgent=is_urgent)

    def enqueue_task(self, function: Callable[..., _T], *arguments: Any) -> Future[_T]:
        """Have a function called besides the loads; returns at once."""
        return self._add(self._tasks, partial(function, *arguments))

    def speed_up(self) -> None:
        """Double the number of loads in flight, up to the most."""
        with self._change:
            self.at_once = min(2 * self.at_once, self._most)
            self._start_threads()
            self._change.notify_all()

    def close(self, patience: float | None = None) -> None:
        """Cancel what was not begun, and wait for the rest; may be called twice, and after `finish`.

        After `patience`, in seconds, loads in flight end with an error.
        """
        self.finish()
        deadline = None if patience is None else time.monotonic() + patience
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        self.interrupt()
        self.wait_for_tasks()

    def wait_for_tasks(self) -> None:
        """Wait until the tasks that were begun have ended."""
        with self._change:
            running = list(self._running)
        wait_for(running)

    def interrupt(self, others: Collection[Future[Any]] = ()) -> None:
        """Cancel what was not begun, and end the waiting for loads in flight, and for some of other pools."""
        self.finish()
        with self._change:
            late = [*self._in_flight, *others]
        for future in late:
            if not future.cancel():
                with suppress(InvalidStateError):  # it has just ended
                    future.set_exception(self.closed_error())

    def finish(self, remaining: Collection[Future[Any]] = ()) -> None:
        """Cancel what was not begun, except for some; the threads end after these."""
        with self._change:
            self._is_closed = True
            queued = [*self._loads, *self._tasks]
            for queue in (self._loads, self._tasks):
                works = [work for work in queue if work.future in remaining]
                queue.clear()
                queue.extend(works)
            self._change.notify_all()
        for future, _ in queued:
            if future not in remaining and future.cancel():
                future.set_running_or_notify_cancel()  # those that wait for several see it only then

    def check_open(self) -> None:
        """Raise an error if the pool takes no more work."""
        if self._is_closed:
            raise self.closed_error()

    def closed_error(self) -> LoaderClosedError:
        """Make the error of a load that was cancelled."""
        return LoaderClosedError(f"{self._title}: the loader was closed while a batch was loaded")

    def _add(self, queue: deque[_Work], function: Callable[[], _T], *, is_urgent: bool = False) -> Future[_T]:
        work = _Work(Future(), function)
        with self._change:
            self.check_open()
            if is_urgent:
                queue.appendleft(work)
            else:
                queue.append(work)
            self._start_threads()
            self._change.notify()
        return work.future

    def _start_threads(self) -> None:
        needed = min(self.at_once, len(self._in_flight) + len(self._loads)) + len(self._running) + len(self._tasks)
        while len(self._threads) < needed:
            name = f"{self._name}-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._serve, name=name, daemon=True))
            self._threads[-1].start()

    def _serve(self) -> None:
        """Body of a thread."""
        while (work := self._next()) is not None:
            _carry_out(work)
            with self._change:
                self._running.discard(work.future)
                at_once = self._in_flight.pop(work.future, None)
                # Half as many loads, if a store asked so after one that was begun since their number was changed.
                if self._adapts and at_once is not None and REPEATS.slow_downs > self._slow_downs:
                    self._slow_downs = REPEATS.slow_downs
                    if at_once == self.at_once:
                        self.at_once = max(self.at_once // 2, 1)
                # Where nothing comes any more, all threads that wait have to end.
                self._change.notify(len(self._threads) if self._is_closed else 1)
            # It holds memory, which may have to go while this thread waits for the next.
            del work

    def _next(self) -> _Work | None:
        """Wait for the next work; None at the end."""
        with self._change:
            while True:
                if self._tasks:
                    work = self._tasks.popleft()
                    if work.future.set_running_or_notify_cancel():
                        self._running.add(work.future)
                        return work
                elif self._loads and len(self._in_flight) < self.at_once:
                    work = self._loads.popleft()
                    if work.future.set_running_or_notify_cancel():
                        self._in_flight[work.future] = self.at_once
                        return work
                elif self._is_closed and not self._loads:
                    return None
                else:
                    self._change.wait()


def _carry_out(work: _Work) -> None:
    """Do the work; its result, or its error, is for those who wait for it."""
    try:
        with suppress(InvalidStateError):  # the waiting has ended
            work.future.set_result(work.function())
    except BaseException as error:  # noqa: BLE001  it would be lost in this thread
        with suppress(InvalidStateError):
            work.future.set_exception(error)
    finally:
        del work  # the traceback of the error refers to this frame


def has_failed(future: Future[Any]) -> bool:
    """Whether a load has ended without a result."""
    return future.done() and (future.cancelled() or future.exception() is not None)
