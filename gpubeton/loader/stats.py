"""LoaderStats: where the time of an epoch went."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ["LoaderStats"]


@dataclass(frozen=True)
class LoaderStats:
    """Where the time of an epoch went, or of several; ``loader.stats()`` gives it, ``print`` shows it as a table.

    Three parties work at the same time: your loop, which waits, receives and does its step; the loader's thread, which
    plans, reads, finishes and otherwise waits for one of the others; the workers, which decode. So their seconds do not
    add up, but those of each party do.

    Parameters
    ----------
    epoch : int or None
        The epoch; None for the sum over all.
    batches, images : int
        Batches and samples that the loop has received.
    seconds : float
        Wall time from ``iter(loader)`` until the end of the loop, or until now.
    waiting_seconds : float
        Wall time in which the loop waited for a batch.
    first_wait_seconds : float
        How much of it was for the first batch, before which nothing can be ready.
    handover_seconds : float
        Wall time in which batches were given to the loop; on a GPU its stream is told to wait for them.
    plan_seconds : float
        The loader's thread: decided crops and other draws, and asked for bytes.
    read_seconds : float
        The loader's thread: waited for bytes of the file. A mapped file is read by the workers as they decode, see
        `stalled_seconds`.
    submit_seconds : float
        The loader's thread: gave batches to the workers or the GPU.
    decode_seconds : float
        The loader's thread: waited for batches to be decoded and augmented.
    tail_seconds : float
        The loader's thread: labels, operations that are not fused, copies to a GPU.
    num_workers : int
        Threads of the CPU that decode and augment; 0 if a GPU does all of it.
    worker_seconds : float
        Wall time in which workers were busy, added up over them.
    worker_cpu_seconds : float
        Processor time that they took.
    stored_bytes : int
        Bytes of the file that the batches were made of.

    Examples
    --------
    >>> stats = LoaderStats(epoch=0, batches=10, images=320, seconds=2.0, waiting_seconds=0.5, num_workers=4)
    >>> stats.images_per_second, stats.waiting_share, stats.step_seconds
    (160.0, 0.25, 1.5)
    """

    epoch: int | None = None
    batches: int = 0
    images: int = 0
    seconds: float = 0.0
    waiting_seconds: float = 0.0
    first_wait_seconds: float = 0.0
    handover_seconds: float = 0.0
    plan_seconds: float = 0.0
    read_seconds: float = 0.0
    submit_seconds: float = 0.0
    decode_seconds: float = 0.0
    tail_seconds: float = 0.0
    num_workers: int = 0
    worker_seconds: float = 0.0
    worker_cpu_seconds: float = 0.0
    stored_bytes: int = 0

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
        """Wall time of the loop's own work: what is neither waiting nor handing over."""
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
        """Give all numbers, the derived ones too.

        Returns
        -------
        dict
            Strings and numbers, for JSON.
        """
        return {**asdict(self), **{name: getattr(self, name) for name in _DERIVED}}

    @classmethod
    def from_dict(cls, numbers: dict[str, Any]) -> LoaderStats:
        """Read what `to_dict` gave.

        Parameters
        ----------
        numbers : dict
            Numbers by name; others than this class's are left out.

        Returns
        -------
        LoaderStats
            The same.
        """
        return cls(**{field.name: numbers[field.name] for field in fields(cls) if field.name in numbers})

    def __add__(self, other: LoaderStats) -> LoaderStats:
        """Add the numbers of another epoch of the same loader."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        return LoaderStats(epoch=None, num_workers=max(self.num_workers, other.num_workers), **sums)

    def __str__(self) -> str:
        which = "all epochs" if self.epoch is None else f"epoch {self.epoch}"
        summary = (
            f"{which}: {self.batches} batches, {self.images} images in {self.seconds:.2f} s, "
            f"{self.images_per_second:,.0f} images/s; the loop waited {self.waiting_share:.0%} of the time"
        )
        rows = [
            ("your loop: waited for batches", self.waiting_seconds, 1),
            ("           was given batches", self.handover_seconds, 1),
            ("           its own step", self.step_seconds, 1),
            ("loader:    planned", self.plan_seconds, 1),
            ("           waited for the file", self.read_seconds, 1),
            ("           handed to workers", self.submit_seconds, 1),
            ("           waited for decoding and augmenting", self.decode_seconds, 1),
            ("           did the rest of the pipelines", self.tail_seconds, 1),
            ("           was ahead", self.ahead_seconds, 1),
        ]
        if self.num_workers:
            threads = f"workers:   were busy ({self.num_workers} threads)"
            rows += [
                (threads, self.worker_seconds, self.num_workers),
                ("           were busy, but had no core or page", self.stalled_seconds, self.num_workers),
            ]
        table = [f"{name:<48}{seconds:>9.2f}{self._share(seconds / parts):>7.0%}" for name, seconds, parts in rows]
        return "\n".join([summary, f"{'':<48}{'seconds':>9}{'share':>7}", *table])

    def _share(self, seconds: float) -> float:
        return min(1.0, seconds / self.seconds) if self.seconds else 0.0


_SUMMED = [field.name for field in fields(LoaderStats) if field.name not in {"epoch", "num_workers"}]
_DERIVED = (
    "images_per_second",
    "waiting_share",
    "step_seconds",
    "worker_share",
    "stalled_seconds",
    "ahead_seconds",
)
