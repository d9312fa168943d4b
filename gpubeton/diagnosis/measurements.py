"""Measurements: everything that advice is based on, and the limits that follow from where the time went."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpubeton.diagnosis.environment import GpuState
from gpubeton.errors import FormatError
from gpubeton.loader import LoaderStats
from gpubeton.loader.describe import LoaderSummary

if TYPE_CHECKING:
    from gpubeton.diagnosis.environment import FilePlace
    from gpubeton.machine import Machine

__all__ = ["Measurements", "StageLimits", "read_stats", "stage_limits"]

# No rotational disk is as fast as this.
_ROTATIONAL_BYTES_PER_SECOND = 600e6


@dataclass(frozen=True)
class Measurements:
    """Everything that advice is based on."""

    stats: LoaderStats
    facts: LoaderSummary
    machine: Machine
    places: tuple[FilePlace, ...] = ()
    gpu: GpuState = field(default_factory=GpuState)
    disk_bytes_per_second: float | None = None  # without the page cache; None: not measured
    augment_share: float | None = None  # of the workers' time; the rest is decoding and resizing; None: not measured

    @property
    def file_bytes(self) -> int:
        """Bytes of all files."""
        return sum(place.size for place in self.places)

    @property
    def resident_share(self) -> float | None:
        """Share of the files in the page cache."""
        known = [place for place in self.places if place.resident_share is not None and place.size]
        total = sum(place.size for place in known)
        return sum(place.size * (place.resident_share or 0.0) for place in known) / total if total else None

    @property
    def disk_share(self) -> float:
        """Estimated share of the bytes used that came from the disk, 0 to 1."""
        missing = 0.0 if self.resident_share is None else 1.0 - self.resident_share
        memory = self.machine.usable_memory_bytes
        if memory is not None and missing * self.file_bytes > memory:
            return missing
        # Files that fit into memory are read once, however many epochs follow.
        return missing * min(1.0, self.file_bytes / max(1, self.stats.stored_bytes))

    @property
    def slow_places(self) -> tuple[FilePlace, ...]:
        """The files on a network or on a rotational disk."""
        # Virtual disks often report wrongly that they are rotational; the measured speed corrects that.
        is_fast = (self.disk_bytes_per_second or 0.0) > _ROTATIONAL_BYTES_PER_SECOND
        return tuple(place for place in self.places if place.is_network or (place.is_rotational and not is_fast))


@dataclass(frozen=True)
class StageLimits:
    """Images per second of each stage if the others took no time; infinite for a stage without work."""

    step: float = math.inf  # the training step
    workers: float = math.inf  # decoding and augmenting on the CPU
    thread: float = math.inf  # the loader's thread: planning, submitting, unfused operations
    reading: float = math.inf  # bytes of the file, if the loader's thread waited for them

    @property
    def images_per_second(self) -> float:
        """The rate of all stages together, as they run at the same time."""
        return min(self.step, self.workers, self.thread, self.reading)

    def scaled(self, **factors: float) -> StageLimits:
        """Return the limits after some stages became faster by these factors.

        Examples
        --------
        >>> StageLimits(step=100, workers=50).scaled(workers=4).images_per_second
        100
        """
        return replace(self, **{name: getattr(self, name) * factor for name, factor in factors.items()})


def stage_limits(stats: LoaderStats) -> StageLimits:
    """Compute the limit of each stage from where the time went."""

    def rate(seconds: float) -> float:
        return stats.images / seconds if seconds > 0 else math.inf

    # Bytes are also read while the workers decode, so the waiting time is only a part of the reading time. Reading is
    # a limit only if the loader waited for it.
    return StageLimits(
        step=rate(stats.step_seconds + stats.handover_seconds),
        workers=rate(stats.worker_seconds / stats.num_workers) if stats.num_workers else math.inf,
        thread=rate(stats.plan_seconds + stats.submit_seconds + stats.tail_seconds),
        reading=rate(stats.seconds - stats.ahead_seconds) if stats.read_seconds > 0.3 * stats.seconds else math.inf,
    )


def read_stats(path: str | os.PathLike[str]) -> list[tuple[LoaderSummary, LoaderStats]]:
    """Read the last line of each loader in a file of GPUBETON_STATS; the loader with the most time comes first."""
    last: dict[tuple[int, int], tuple[LoaderSummary, LoaderStats]] = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            key, facts, stats = _parse_line(line, f"{os.fspath(path)}: line {number}")
            last[key] = facts, stats
    return sorted(last.values(), key=lambda entry: -entry[1].seconds)


def _parse_line(line: str, where: str) -> tuple[tuple[int, int], LoaderSummary, LoaderStats]:
    try:
        entry = json.loads(line)
        facts, stats = LoaderSummary.from_dict(entry["facts"]), LoaderStats.from_dict(entry["total"])
        return (entry["pid"], entry["loader"]), facts, stats
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{where} is {line[:60]!r}; expected a line that a loader wrote because GPUBETON_STATS names this file"
        ) from error
