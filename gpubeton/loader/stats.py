"""LoaderStats: how the time of an epoch was spent; its counters, and those of all epochs."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.store_client import REPEATS
from gpubeton._engine.timing import ProfilerLabel, StageTimers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack

    from numpy.typing import NDArray

    from gpubeton.loader.describe import LoaderInfo

DOCTOR_VARIABLE = "_GPUBETON_DOCTOR"
"""Environment variable with the folder for the statistics of all loaders of ``gpubeton doctor -- COMMAND``."""

_SECONDS_BETWEEN_WRITES = 5.0
_loader_numbers = itertools.count()


@dataclass(frozen=True)
class LoaderStats:
    """How the time of one epoch or several was spent; ``print`` shows it as a table. Made by `Loader.stats`.

    Three parties work at the same time: your loop, which waits, receives and does its step; the loader's thread, which
    plans, reads, finishes and otherwise waits for one of the others; the workers, which decode. Only the
    seconds of one party add up.

    Examples
    --------
    >>> stats = LoaderStats(epoch=0, batches=10, images=320, seconds=2.0, waiting_seconds=0.5, num_workers=4)
    >>> stats.images_per_second, stats.waiting_share, stats.step_seconds
    (160.0, 0.25, 1.5)
    """

    epoch: int | None = None  #: the epoch; None for the sum over all
    batches: int = 0  #: batches that the loop has received
    images: int = 0  #: their samples
    seconds: float = 0.0  #: wall time from ``iter(loader)`` until the end of the loop, or until now
    waiting_seconds: float = 0.0  #: wall time in which the loop waited for a batch
    first_wait_seconds: float = 0.0  #: how much of it was for the first batch, before which nothing can be ready
    #: Wall time in which batches were given to the loop; on a GPU its stream has to wait for them.
    handover_seconds: float = 0.0
    plan_seconds: float = 0.0  #: the loader's thread: decided crops and other draws, and asked for bytes
    #: The loader's thread: waited for bytes of the file. Workers read a mapped file as they decode: `stalled_seconds`.
    read_seconds: float = 0.0
    submit_seconds: float = 0.0  #: the loader's thread: gave batches to the workers or the GPU
    decode_seconds: float = 0.0  #: the loader's thread: waited for batches to be decoded and augmented
    tail_seconds: float = 0.0  #: the loader's thread: labels, operations that are not fused, copies to a GPU
    num_workers: int = 0  #: threads of the CPU that decode and augment; 0 if a GPU does all of it
    worker_seconds: float = 0.0  #: wall time in which workers were busy, added up over them
    worker_cpu_seconds: float = 0.0  #: processor time that they took
    stored_bytes: int = 0  #: bytes of the file that the batches were made of
    #: Those of them that were compared with checksums: the bytes of each sample once, if the file has checksums.
    verified_bytes: int = 0
    requests: int = 0  #: requests for parts of files that are not on this machine
    fetched_bytes: int = 0  #: bytes that they brought
    cached_bytes: int = 0  #: bytes of such files that `cache_dir` had already
    retries: int = 0  #: requests to object stores that were made again meanwhile, by this process
    source_images: tuple[int, ...] = ()  #: of a `Mixture`, the samples of each source among `images`

    @property
    def images_per_second(self) -> float:
        """Samples that the loop received, per second of wall time; 0 before the first."""
        return self.images / self.seconds if self.seconds else 0.0

    @property
    def waiting_share(self) -> float:
        """Share of the wall time in which the loop waited for a batch, 0 to 1."""
        return self._share(self.waiting_seconds)

    @property
    def step_seconds(self) -> float:
        """Wall time of the loop's own work: without waiting and handing over."""
        return max(0.0, self.seconds - self.waiting_seconds - self.handover_seconds)

    @property
    def worker_share(self) -> float:
        """Share of the workers' time in which they were busy, 0 to 1."""
        return self._share(self.worker_seconds / self.num_workers) if self.num_workers else 0.0

    @property
    def stalled_seconds(self) -> float:
        """Time of busy workers without a core: they waited for pages of the file, or others had the cores."""
        return max(0.0, self.worker_seconds - self.worker_cpu_seconds)

    @property
    def ahead_seconds(self) -> float:
        """Wall time in which the loader's thread had nothing to do: all batches that may be ready were."""
        busy = self.plan_seconds + self.read_seconds + self.submit_seconds + self.decode_seconds + self.tail_seconds
        return max(0.0, self.seconds - busy)

    def to_dict(self) -> dict[str, Any]:
        """Collect all numbers, the derived ones too, for JSON.

        Returns
        -------
        dict
            Numbers by name.
        """
        numbers = {**asdict(self), **{name: getattr(self, name) for name in _DERIVED}}
        if not self.source_images:
            del numbers["source_images"]
        return numbers

    def to_metrics(self, prefix: str = "loader/") -> dict[str, float]:
        """Collect all numbers for TensorBoard, Weights & Biases and other loggers of numbers by name.

        Parameters
        ----------
        prefix : str
            Put before each name.

        Returns
        -------
        dict of str to float
            The numbers of `to_dict`. The epoch is left out of a sum over all epochs.

        Examples
        --------
        >>> stats = LoaderStats(epoch=0, batches=10, images=320, seconds=2.0, waiting_seconds=0.5)
        >>> stats.to_metrics("train/")["train/waiting_share"]
        0.25

        >>> for name, value in loader.stats().to_metrics().items():  # doctest: +SKIP
        ...     writer.add_scalar(name, value, epoch)
        """
        numbers = self.to_dict()
        for number, images in enumerate(numbers.pop("source_images", ())):
            numbers[f"source_{number}_images"] = images
        return {f"{prefix}{name}": float(value) for name, value in numbers.items() if value is not None}

    @classmethod
    def from_dict(cls, numbers: dict[str, Any]) -> LoaderStats:
        """Read the result of `to_dict`.

        Parameters
        ----------
        numbers : dict
            Numbers by name; unknown names are left out.

        Returns
        -------
        LoaderStats
            The numbers.
        """
        return cls(**{field.name: numbers[field.name] for field in fields(cls) if field.name in numbers})

    def __add__(self, other: LoaderStats) -> LoaderStats:
        """Add the numbers of another epoch of the same loader."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        most, both = max(self.num_workers, other.num_workers), (self.source_images, other.source_images)
        images = tuple(map(sum, zip_longest(*both, fillvalue=0)))
        return LoaderStats(epoch=None, num_workers=most, source_images=images, **sums)

    def __str__(self) -> str:
        which = "all epochs" if self.epoch is None else f"epoch {self.epoch}"
        summary = (
            f"{which}: {self.batches} batches, {self.images} images in {self.seconds:.2f} s, "
            f"{self.images_per_second:,.0f} images/s; the loop waited {self.waiting_share:.0%} of the time"
        )
        table, last = [], ""
        for party, activity, seconds, parts in time_rows(self):
            name = f"{'' if party == last else party + ':':<11}{activity}"
            table.append(f"{name:<48}{seconds:>9.2f}{self._share(seconds / parts):>7.0%}")
            last = party
        return "\n".join([summary, f"{'':<48}{'seconds':>9}{'share':>7}", *table, *self._transfer_lines()])

    def _transfer_lines(self) -> list[str]:
        if not self.requests and not self.cached_bytes:
            return []
        per_image = 1000 * self.requests / max(self.images, 1)
        fetched, used = self.fetched_bytes / 1e6, self.stored_bytes / 1e6
        cached = f", {self.cached_bytes / 1e6:,.1f} MB were in cache_dir" if self.cached_bytes else ""
        traffic = f"{fetched:,.1f} MB came{cached}, {used:,.1f} MB were used"
        again = f", {self.retries} made again" if self.retries else ""
        return [f"{self.requests} requests{again}, {per_image:.1f} for each 1000 images; {traffic}"]

    def _share(self, seconds: float) -> float:
        return min(1.0, seconds / self.seconds) if self.seconds else 0.0


def time_rows(stats: LoaderStats) -> list[tuple[str, str, float, int]]:
    """List what each party did: its name, the activity, seconds, and how many threads share these seconds."""
    rows = [
        ("your loop", "waited for batches", stats.waiting_seconds, 1),
        ("your loop", "handover", stats.handover_seconds, 1),
        ("your loop", "training step", stats.step_seconds, 1),
        ("loader", "planned", stats.plan_seconds, 1),
        ("loader", "waited for the file", stats.read_seconds, 1),
        ("loader", "handover to workers", stats.submit_seconds, 1),
        ("loader", "waited for decoding and augmenting", stats.decode_seconds, 1),
        ("loader", "did the rest of the pipelines", stats.tail_seconds, 1),
        ("loader", "was ahead", stats.ahead_seconds, 1),
    ]
    if stats.num_workers:
        rows += [
            ("workers", f"were busy ({stats.num_workers} threads)", stats.worker_seconds, stats.num_workers),
            ("workers", "stalled (no core, or page fault)", stats.stalled_seconds, stats.num_workers),
        ]
    return rows


_SUMMED = [field.name for field in fields(LoaderStats) if field.name not in {"epoch", "num_workers", "source_images"}]
_DERIVED = ("images_per_second", "waiting_share", "step_seconds", "worker_share", "stalled_seconds", "ahead_seconds")


class EpochStats:
    """Counters and timers of one pass over an epoch; any thread may use them."""

    def __init__(self, epoch: int, num_workers: int, starts: Sequence[int] = ()) -> None:
        # `starts`: the first sample of each source of a mixture, then the number of all
        self.on_batch: Callable[[], None] | None = None  # called after each batch
        self.stages = StageTimers()  # kept by the engine
        self._epoch = epoch
        self._num_workers = num_workers
        self._started_at = time.perf_counter()
        self._ended_at: float | None = None
        self._first_repeat = REPEATS.count  # requests made again before it began
        self._last_repeat: int | None = None  # and before it ended
        self._lock = threading.Lock()
        self._label = ProfilerLabel("gpubeton: wait for a batch")
        self._batches = self._images = 0
        self._starts, self._of_sources = starts, np.zeros(max(len(starts) - 1, 0), np.int64)
        self._waiting = 0  # threads
        self._waiting_since = 0.0
        self._waited = 0.0
        self._first_wait: float | None = None

    @property
    def is_ended(self) -> bool:
        """Whether the counters are final."""
        return self._ended_at is not None

    def begin_wait(self) -> ExitStack | None:
        """Start to count waiting time, once if several threads wait; pass the result to `end_wait` in this thread."""
        marked = self._label.begin()
        with self._lock:
            if self._waiting == 0:
                self._waiting_since = time.perf_counter()
            self._waiting += 1
        return marked

    def end_wait(self, marked: ExitStack | None) -> None:
        """End the calling thread's wait."""
        with self._lock:
            self._waiting -= 1
            if self._waiting == 0:
                self._waited += time.perf_counter() - self._waiting_since
                if self._first_wait is None:
                    self._first_wait = self._waited
        if marked is not None:
            marked.close()

    def receive(self, images: int, samples: NDArray[np.uint64] | None = None) -> None:
        """Count a batch that the loop has received, with its sample ids, (N,), for the sources of a mixture."""
        with self._lock:
            self._batches += 1
            self._images += images
            if samples is not None and len(self._of_sources):
                self._of_sources += np.histogram(samples.astype(np.int64), self._starts)[0]
        if self.on_batch is not None:
            self.on_batch()

    def end(self) -> None:
        """Stop the clock; may be called twice, and from a finalizer."""
        if self._ended_at is None:
            self._ended_at, self._last_repeat = time.perf_counter(), REPEATS.count

    def stats(self) -> LoaderStats:
        """Sum up the epoch until now."""
        stages = self.stages
        transfer = stages.transfer
        # Pages that came just before the epoch were not there.
        mapped = max(0, stages.stored_bytes - transfer.nbytes) if transfer.is_all_cached else 0
        with self._lock:
            now = time.perf_counter() if self._ended_at is None else self._ended_at
            open_wait = max(0.0, now - self._waiting_since) if self._waiting else 0.0
            waited = self._waited + open_wait
            first = waited if self._first_wait is None else self._first_wait
            batches, images, of_sources = self._batches, self._images, tuple(self._of_sources.tolist())
        return LoaderStats(
            epoch=self._epoch,
            batches=batches,
            images=images,
            source_images=of_sources,
            seconds=now - self._started_at,
            waiting_seconds=waited,
            first_wait_seconds=first,
            num_workers=self._num_workers if stages.usage.busy_seconds else 0,
            worker_seconds=stages.usage.busy_seconds,
            worker_cpu_seconds=stages.usage.cpu_seconds,
            stored_bytes=stages.stored_bytes,
            verified_bytes=stages.verified_bytes,
            requests=transfer.requests,
            fetched_bytes=transfer.nbytes,
            cached_bytes=mapped or transfer.cached_nbytes,
            retries=(REPEATS.count if self._last_repeat is None else self._last_repeat) - self._first_repeat,
            **{f"{name}_seconds": seconds for name, seconds in stages.seconds().items()},
        )


class StatsHistory:
    """The statistics of all epochs of a loader."""

    def __init__(self) -> None:
        # Reentrant: the loader's finalizer calls `write`, and the garbage collector may run it within `stats`.
        self._lock = threading.RLock()
        self._sum_of_ended = LoaderStats()
        self._epochs: list[EpochStats] = []
        self._number = next(_loader_numbers)
        self._info: LoaderInfo | None = None  # of a loader that `gpubeton doctor` watches
        self._written = 0.0

    def add(self, epoch: EpochStats, describe: Callable[[], LoaderInfo]) -> None:
        """Add an epoch that begins; `describe` is called if `gpubeton doctor` watches the loader."""
        if self._info is None and DOCTOR_VARIABLE in os.environ:
            self._info = describe()
        else:
            self.write()
        with self._lock:
            # The last one stays for questions after the loop; of those before it only the sum is needed.
            for old in [old for old in self._epochs if old.is_ended]:
                self._sum_of_ended += old.stats()
                self._epochs.remove(old)
            self._epochs.append(epoch)
        if self._info is not None:
            epoch.on_batch = self._write_if_due

    def stats(self, *, total: bool) -> LoaderStats:
        """Sum up all epochs, or the one that was begun last."""
        with self._lock:
            if total:
                return sum((epoch.stats() for epoch in self._epochs), self._sum_of_ended)
            return self._epochs[-1].stats() if self._epochs else LoaderStats()

    def write(self) -> None:
        """Write the sums of all epochs for `gpubeton doctor`, if it watches this loader."""
        folder = os.environ.get(DOCTOR_VARIABLE)
        if self._info is None or folder is None:
            return
        with self._lock, suppress(OSError):  # training is worth more than its statistics
            self._written = time.monotonic()
            numbers = {"info": self._info.to_dict(), "total": self.stats(total=True).to_dict()}
            path = Path(folder) / f"{os.getpid()}-{self._number}.json"
            new = path.with_suffix(".new")
            new.write_text(json.dumps(numbers), encoding="utf-8")
            new.replace(path)  # a process that is killed leaves no half of a file

    def _write_if_due(self) -> None:
        if time.monotonic() - self._written > _SECONDS_BETWEEN_WRITES:
            self.write()
