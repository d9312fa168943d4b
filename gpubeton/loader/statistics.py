"""Statistics: adds up where the time of a loader's epochs goes."""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from gpubeton.engine.label import Label
from gpubeton.engine.stages import Stages
from gpubeton.loader.facts import facts_of
from gpubeton.loader.stats import LoaderStats
from gpubeton.loader.stats_log import STATS_VARIABLE, StatsLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubeton.loader.loader import Loader

__all__ = ["EpochRecord", "Statistics"]


class EpochRecord:
    """What has happened in one pass over an epoch. Any thread may use it.

    Parameters
    ----------
    epoch : int
        Its number.
    num_workers : int
        Threads that decode.

    Attributes
    ----------
    stages : Stages
        The engine's part, which it keeps itself.
    on_batch : callable or None
        Called after each batch.
    """

    def __init__(self, epoch: int, num_workers: int) -> None:
        self.on_batch: Callable[[], None] | None = None
        self.stages = Stages()
        self._epoch = epoch
        self._num_workers = num_workers
        self._begun = time.perf_counter()
        self._ended: float | None = None
        self._lock = threading.Lock()
        self._label = Label("gpubeton: wait for a batch")
        self._batches = self._images = 0
        self._waiting = 0
        self._waiting_since = 0.0
        self._waited = 0.0
        self._first_wait: float | None = None

    @property
    def is_ended(self) -> bool:
        """Whether nothing will be added any more."""
        return self._ended is not None

    def begin_wait(self) -> Any:
        """Count time as waiting from now on; while several threads wait, once.

        Returns
        -------
        object
            For `end_wait`, which the same thread has to call.
        """
        marked = self._label.begin()
        with self._lock:
            if self._waiting == 0:
                self._waiting_since = time.perf_counter()
            self._waiting += 1
        return marked

    def end_wait(self, marked: Any) -> None:
        """End the calling thread's wait.

        Parameters
        ----------
        marked : object
            What `begin_wait` returned.
        """
        with self._lock:
            self._waiting -= 1
            if self._waiting == 0:
                self._waited += time.perf_counter() - self._waiting_since
                if self._first_wait is None:
                    self._first_wait = self._waited
        self._label.end(marked)

    def receive(self, images: int) -> None:
        """Count a batch that the loop has received.

        Parameters
        ----------
        images : int
            Its samples.
        """
        with self._lock:
            self._batches += 1
            self._images += images
        if self.on_batch is not None:
            self.on_batch()

    def end(self) -> None:
        """Stop the clock; may be called twice, and from a finalizer."""
        if self._ended is None:
            self._ended = time.perf_counter()

    def stats(self) -> LoaderStats:
        """Tell what there is until now.

        Returns
        -------
        LoaderStats
            The numbers of this epoch.
        """
        stages = self.stages
        with self._lock:
            now = time.perf_counter() if self._ended is None else self._ended
            open_wait = max(0.0, now - self._waiting_since) if self._waiting else 0.0
            waited = self._waited + open_wait
            first = waited if self._first_wait is None else self._first_wait
            batches, images = self._batches, self._images
        return LoaderStats(
            epoch=self._epoch,
            batches=batches,
            images=images,
            seconds=now - self._begun,
            waiting_seconds=waited,
            first_wait_seconds=first,
            num_workers=self._num_workers if stages.usage.busy_seconds else 0,
            worker_seconds=stages.usage.busy_seconds,
            worker_cpu_seconds=stages.usage.cpu_seconds,
            stored_bytes=stages.stored_bytes,
            **{f"{name}_seconds": seconds for name, seconds in stages.seconds().items()},
        )


class Statistics:
    """The records of a loader's epochs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = LoaderStats()
        self._records: list[EpochRecord] = []
        self._log: StatsLog | None = None

    def add(self, record: EpochRecord, loader: Loader) -> None:
        """Take in an epoch that begins.

        Parameters
        ----------
        record : EpochRecord
            What whoever goes through the epoch keeps up to date.
        loader : Loader
            Whose epoch it is.
        """
        path = os.environ.get(STATS_VARIABLE)
        if path and self._log is None:
            self._log = StatsLog(path, facts_of(loader))
            weakref.finalize(loader, self._write)
        elif self._log is not None:
            self._write()
        with self._lock:
            # The last one stays, for whoever asks after the loop; of those before it only the sum is needed.
            for old in [old for old in self._records if old.is_ended]:
                self._ended += old.stats()
                self._records.remove(old)
            self._records.append(record)
        if self._log is not None:
            record.on_batch = self._write_if_due

    def stats(self, *, total: bool) -> LoaderStats:
        """Tell where the time went.

        Parameters
        ----------
        total : bool
            Of all epochs together, not of the one that was begun last.

        Returns
        -------
        LoaderStats
            The numbers.
        """
        with self._lock:
            if total:
                return sum((record.stats() for record in self._records), self._ended)
            return self._records[-1].stats() if self._records else LoaderStats()

    def _write_if_due(self) -> None:
        if self._log is not None and self._log.is_due:
            self._write()

    def _write(self) -> None:
        if self._log is not None:
            try:
                self._log.write(self.stats(total=False), self.stats(total=True))
            except OSError as error:  # training is worth more than its statistics
                self._log = None
                warnings.warn(f"{STATS_VARIABLE} cannot be written: {error}", stacklevel=2)
