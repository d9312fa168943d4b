"""Receive long answers of stores in obstore's own threads, which costs half as much as in the thread that waits."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import threading
import time
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import cache
from typing import Any
from weakref import WeakSet

from gpubeton.errors import StorageError

LONG = 1 << 20
"""Bytes of a long answer. To pass on its end costs as much as to receive some 100 KiB."""

#: Seconds to wait for obstore's threads when the program ends.
_PATIENCE = 5.0


def receive(answer: Any) -> memoryview:
    """Receive the bytes of an answer of obstore's."""
    start, stop = answer.range
    # This thread would be woken for each 16 KiB of an encrypted answer, which costs more than the bytes.
    if stop - start < LONG or (coming := receiver().begin(answer)) is None:
        return memoryview(answer.bytes())
    try:
        return memoryview(coming.result())
    except CancelledError:
        raise StorageError("the program ends before the rest of an answer of the store came.") from None
    finally:
        coming.cancel()  # it is done, unless this thread was interrupted
        del coming  # an error keeps all that this function has


class _Marker:
    """Lives as long as obstore's threads may call Python for an answer."""


_MARKER: ContextVar[_Marker] = ContextVar("gpubeton.answer")


class Receiver:
    """An event loop in a thread, in which long answers end. Safe to use from threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._coming: WeakSet[Future[Any]] = WeakSet()
        self._markers: WeakSet[_Marker] = WeakSet()
        self._newest: Any = None  # an answer
        self._is_over = False
        self._lock = threading.Lock()
        self._process = os.getpid()
        threading.Thread(target=self._loop.run_forever, name="gpubeton-answers", daemon=True).start()
        atexit.register(self.end)

    def begin(self, answer: Any) -> Future[Any] | None:
        """Begin to receive an answer; None when the program ends."""
        marker, context = _Marker(), copy_context()
        context.run(_MARKER.set, marker)  # obstore keeps the context until it has called Python last
        with self._lock:
            if self._is_over:
                return None
            self._markers.add(marker)
            self._newest = answer
            coming: Future[Any] = context.run(asyncio.run_coroutine_threadsafe, _receive(answer), self._loop)
            self._coming.add(coming)
        return coming

    @property
    def num_coming(self) -> int:
        """Count the answers that are not completely received."""
        return len(self._markers)

    def end(self) -> None:
        """Cancel open requests; wait until obstore's threads call Python no more: after its end they would abort."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self._is_over = True
        self._cancel()
        deadline = time.monotonic() + _PATIENCE
        while self.num_coming and time.monotonic() < deadline:
            time.sleep(0.001)
            with suppress(Exception):
                _ = self._newest.meta  # only in a call from Python does obstore let go what its threads have left
            gc.collect()

    def _cancel(self) -> None:
        for coming in list(self._coming):
            coming.cancel()


async def _receive(answer: Any) -> Any:
    return await answer.bytes_async()


@cache
def receiver() -> Receiver:
    """Start the receiver. Two, if two threads need the first at once, work as well."""
    return Receiver()
