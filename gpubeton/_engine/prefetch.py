"""Prefetcher: keeps batches ready ahead of the loop that consumes them."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from gpubeton.errors import LoaderClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from gpubeton._engine.engine import Batch, Engine

# How long the garbage collector, or the end of the program, waits for a thread that has to stop. Its present work (one
# batch, a user's operation) usually takes milliseconds.
_PATIENCE_SECONDS = 5.0

#: The threads that make batches, each with what requests its end.
_RUNNING: weakref.WeakKeyDictionary[threading.Thread, Callable[[], None]] = weakref.WeakKeyDictionary()


class Prefetcher:
    """Iterates over the batches of an engine, which a thread drives."""

    # At most `num_ahead` batches, at least 1, are in flight or ready, besides those that the loop has received. An
    # error of the engine is raised in the loop, with its traceback, after the batches before it; the iterator has
    # ended then. The engine is closed and the thread ends with the last batch, with `close`, when the iterator is
    # garbage, and with the program. Several threads may iterate together; each batch goes to one of them.

    def __init__(self, engine: Engine, num_ahead: int) -> None:
        self._channel = _Channel()
        self._process = os.getpid()
        self._consumer = threading.get_ident()
        # What the engine holds goes with the thread.
        self._request_end = partial(_request_end, self._channel, weakref.WeakMethod(engine.interrupt))
        # The thread refers to the channel and the engine, not to the iterator: else that would never be garbage.
        self._thread = threading.Thread(
            target=_run, args=(self._channel, engine, num_ahead), name="gpubeton-prefetch", daemon=True
        )
        self._finalizer = weakref.finalize(self, _leave, self._channel, self._thread, self._process, self._consumer)
        self._finalizer.atexit = False
        _RUNNING[self._thread] = self._request_end  # before the start: a short thread removes its entry soon
        self._thread.start()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """Wait for the next batch."""
        if os.getpid() != self._process:
            raise LoaderClosedError(
                f"this iterator belongs to process {self._process}, whose threads are not in process {os.getpid()}. "
                "Begin the iteration after the fork: for batch in loader."
            )
        if self._channel.results.empty():  # Ctrl-C may have come after an earlier `get`, before what has to follow it
            if self._channel.is_full:
                self._channel.wake.put(None)
            if self._channel.end is not None:
                self._channel.results.put(self._channel.end)
        self._channel.is_awaited = True
        result = self._channel.results.get()
        self._channel.is_awaited = False
        if not isinstance(result, _End):
            if self._channel.is_full:
                self._channel.wake.put(None)
            return result
        # Other threads that wait, and later calls, have to see the end too.
        self._channel.results.put(result)
        self._thread.join()
        error, result.error = result.error, None
        try:
            if error is not None:
                raise error
            if result.is_closed:
                raise LoaderClosedError("the loader was closed during this iteration. Begin a new one.")
            raise StopIteration
        finally:
            # The error's traceback refers to this frame, and the frame to the error: a cycle that would keep the
            # iterator, and with it the batches, alive until the next full garbage collection.
            del error

    def stop(self) -> None:
        """Request the end of the thread, without waiting for it."""
        if self._thread.is_alive():
            self._request_end()

    def close(self) -> None:
        """Stop the engine and wait until its thread has ended. May be called twice, and from any thread."""
        if os.getpid() != self._process:
            return
        self._finalizer.detach()
        self.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()
            self._channel.drop_results()


class _End:
    """The end of the iteration: after the last batch, on request, or with an error."""

    def __init__(self, is_closed: bool, error: BaseException | None = None) -> None:
        self.is_closed = is_closed
        self.error = error


class _Channel:
    """The queues between the loop and the thread."""

    # Finalizers stop the thread. They run in any thread at any moment, even within the methods of a queue; of Python's
    # queues, only SimpleQueue allows for that.

    def __init__(self) -> None:
        self.results: SimpleQueue[Batch | _End] = SimpleQueue()
        self.wake: SimpleQueue[None] = SimpleQueue()
        self.is_full = False  # whether the thread waits until the loop has taken a batch
        self.is_awaited = False  # whether the loop waits for a batch; if several threads do, perhaps not seen
        self.is_stopped = False
        self.end: _End | None = None

    def stop(self) -> None:
        self.is_stopped = True
        self.wake.put(None)

    def drop_results(self) -> None:
        """Drop batches that were not received, once the thread has ended."""
        with suppress(Empty):
            while True:
                self.results.get_nowait()
        if self.end is not None:
            self.results.put(self.end)

    def wait_for_room(self, most: int) -> None:
        """Wait while `most` batches are ready; it may return too early."""
        # The loop takes a batch before it looks at `is_full`: it is seen here, or this is seen there.
        self.is_full = True
        if self.results.qsize() >= most:
            self.wake.get()
        self.is_full = False


def _run(channel: _Channel, engine: Engine, num_ahead: int) -> None:
    """Run the thread. The end is announced when everything is closed."""
    error = _error_of(partial(_drive, channel, engine, num_ahead))
    # An engine that failed often cannot be closed either: the first error has the reason.
    error_at_the_end = _error_of(engine.close)
    # The error that the channel keeps leads back to this thread: its entry would never go by itself.
    _RUNNING.pop(threading.current_thread(), None)
    channel.end = _End(channel.is_stopped, error or error_at_the_end)
    del error, error_at_the_end  # whose tracebacks refer to this frame
    channel.results.put(channel.end)


def _error_of(action: Callable[[], None]) -> BaseException | None:
    """Call a function, and return the exception that it raises."""
    try:
        action()
    except StopIteration as stop:
        # It would end the loop as if nothing had happened.
        error = RuntimeError(f"an operation of the pipeline raised StopIteration({stop.value!r})")
        error.__cause__ = stop
        return error
    except BaseException as raised:  # noqa: BLE001  every error belongs to the loop, KeyboardInterrupt included
        return raised
    return None


def _drive(channel: _Channel, engine: Engine, num_ahead: int) -> None:
    """Start, collect and complete batches until the last, or until the channel is stopped."""
    in_flight = 0
    errors: list[BaseException] = []  # of a start; raised after the batches before

    def fill_up(num_held: int, *, may_wait: bool) -> None:
        """Start batches until there are enough, besides `num_held` that were collected."""
        nonlocal in_flight
        while in_flight + num_held + channel.results.qsize() < num_ahead and engine.has_more and not errors:
            try:
                if not engine.start(may_wait=may_wait and in_flight == 0):
                    break
            except BaseException as error:  # noqa: BLE001  it is raised below
                errors.append(error)
                break
            in_flight += 1

    while not channel.is_stopped:
        fill_up(0, may_wait=True)
        if in_flight:
            collected = engine.collect()
            in_flight -= 1
            # The workers need a next batch while this one is completed; but it does not wait for the bytes of the next.
            fill_up(1, may_wait=False)
            batch, is_awaited = engine.complete(collected), channel.is_awaited
            channel.results.put(batch)
            if is_awaited:
                # Without the GIL, which the loop takes now. Otherwise each short release of it, as torch's calls do,
                # would wake the loop in vain: eight times a batch, more than a small one costs.
                time.sleep(0)
            del collected, batch
        elif errors:
            raise errors.pop()  # the list is in its traceback
        elif engine.has_more:
            channel.wait_for_room(num_ahead)
        else:
            return


def _leave(channel: _Channel, thread: threading.Thread, process: int, consumer: int) -> None:
    """Stop the thread of an iterator that is garbage."""
    if os.getpid() != process:
        return
    channel.stop()
    # Garbage may be collected in any thread, also in one that the engine itself waits for: only the loop's thread and
    # the main thread may wait.
    if threading.get_ident() == consumer or threading.current_thread() is threading.main_thread():
        thread.join(_PATIENCE_SECONDS)


def _request_end(channel: _Channel, interrupt: weakref.WeakMethod[Callable[[], None]]) -> None:
    """Stop a thread, and end what its engine waits for."""
    channel.stop()
    if (interrupt_engine := interrupt()) is not None:
        interrupt_engine()


@atexit.register
def _end_all() -> None:
    """End all threads before Python shuts down: one that used torch meanwhile would abort the process."""
    running = [(thread, request) for thread, request in list(_RUNNING.items()) if thread.is_alive()]
    for _, request in running:
        request()
    threads = [thread for thread, _ in running]
    for thread in _join(threads):
        # A batch that takes so long: the thread ends between two steps of Python.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
    _join(threads)


def _join(threads: Collection[threading.Thread]) -> list[threading.Thread]:
    """Wait for threads; give those that have not ended."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread for thread in threads if thread.is_alive()]
