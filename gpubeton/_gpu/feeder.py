"""Feeder: the thread that puts batches into the GPU's queues."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from gpubeton.errors import LoaderClosedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class FeederBatch(Protocol):
    """What the feeder knows of a batch."""

    issuing: threading.Lock  # held while the thread has the batch
    has_failed: bool

    @property
    def is_quick(self) -> bool:
        """Whether putting it into the queues takes less than waking the thread."""
        ...


_B = TypeVar("_B", bound=FeederBatch)

CLOSED = "the loader was closed while a batch was being made. Begin a new iteration"


class Feeder(Generic[_B]):
    """The thread that puts batches into the GPU's queues, one after another."""

    # It waits for busy decoders and for much memory to be copied, so that `submit` need not.

    def __init__(self, issue: Callable[[_B], None], active: Callable[[], AbstractContextManager[None]]) -> None:
        self._issue, self._active = issue, active  # puts in one batch; makes the device current
        self._batches: SimpleQueue[_B | None] = SimpleQueue()
        self._issuing = threading.Lock()  # of the last batch
        self._failure: BaseException | None = None  # of the first batch that failed; no later one is put in
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="gpubeton-feeder", daemon=True)
        self._thread.start()

    def put(self, batch: _B) -> None:
        """Take a batch; returns soon."""
        if batch.is_quick and not self._issuing.locked():
            self._take(batch, nullcontext())  # the device is active
        else:
            batch.issuing.acquire()
            self._batches.put(batch)
        self._issuing = batch.issuing

    def take_failure(self) -> BaseException:
        """Give the error of the batch that failed first, and forget it: its traceback refers to this object."""
        failure, self._failure = self._failure, LoaderClosedError("an earlier batch failed")
        return failure or self._failure

    def close(self) -> None:
        """End the thread; batches that it has not begun get a LoaderClosedError."""
        self._is_closed = True
        self._batches.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()  # wait point: feeder ended

    def _serve(self) -> None:
        """Body of the thread."""
        while (batch := self._batches.get()) is not None:
            if self._is_closed:
                self._failure = self._failure or LoaderClosedError(CLOSED)
            self._take(batch, self._active())
            batch.issuing.release()

    def _take(self, batch: _B, active: AbstractContextManager[None]) -> None:
        """Put a batch into the queues, unless one failed before."""
        if self._failure is None:
            try:
                with active:
                    self._issue(batch)
            except BaseException as error:  # noqa: BLE001 - any error has to reach the user's loop
                self._failure = error
        batch.has_failed = self._failure is not None
