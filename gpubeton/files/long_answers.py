"""Requests to stores that obstore's own threads wait for: they can be cancelled, and long ones cost half as much."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import threading
import time
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar, copy_context
from functools import cache
from typing import Any
from weakref import WeakSet

from gpubeton.errors import StorageError
from gpubeton.files.store_client import end_requests

LONG = 1 << 20
"""Bytes of a long answer. To pass on its end costs as much as to receive some 100 KiB."""

#: Seconds to wait for obstore's threads when the program ends.
_PATIENCE = 5.0


def get(obstore: Any, store: Any, key: str, options: dict[str, Any]) -> tuple[Any, memoryview]:
    """Get a range of an object; give what the store says of the object, and the bytes."""
    # This thread would be woken for each 16 KiB of an encrypted answer, which costs more than the bytes.
    coming = receiver().begin(obstore, store, key, options)
    if coming is None:
        answer = obstore.get(store, key, options=options)
        return answer.meta, memoryview(answer.bytes())
    try:
        meta, content = coming.result()
        return meta, memoryview(content)
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
        self._newest: Any = None  # a store
        self._is_over = False
        self._lock = threading.Lock()
        self._process = os.getpid()
        threading.Thread(target=self._loop.run_forever, name="gpubeton-answers", daemon=True).start()
        atexit.register(self.end)
        atexit.register(end_requests, 0)  # first: otherwise cancelled requests would be repeated

    def begin(self, obstore: Any, store: Any, key: str, options: dict[str, Any]) -> Future[Any] | None:
        """Begin a request; None when the program ends."""
        marker, context = _Marker(), copy_context()
        context.run(_MARKER.set, marker)  # obstore keeps the context until it has called Python last
        with self._lock:
            if self._is_over:
                return None
            self._markers.add(marker)
            self._newest = store
            request = _get(obstore, store, key, options)
            coming: Future[Any] = context.run(asyncio.run_coroutine_threadsafe, request, self._loop)
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
            repr(self._newest)  # only in a call from Python does obstore let go what its threads have left
            gc.collect()

    def _cancel(self) -> None:
        for coming in list(self._coming):
            coming.cancel()


async def _get(obstore: Any, store: Any, key: str, options: dict[str, Any]) -> tuple[Any, Any]:
    answer = await obstore.get_async(store, key, options=options)
    return answer.meta, await answer.bytes_async()


@cache
def receiver() -> Receiver:
    """Start the receiver. Two, if two threads need the first at once, work as well."""
    return Receiver()
