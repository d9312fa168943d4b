"""Time laps of several contenders, in alternation, and summarize them. Needs only Python's own library."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.harness.processes import PROC, descendants

__all__ = [
    "Lap",
    "compare_times",
    "cpu_ratios",
    "cpu_seconds",
    "median_cpu",
    "median_rate",
    "race",
    "ratios",
    "time_lap",
]

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Lap:
    """One contender's pass over its images."""

    images: int
    wall_seconds: float
    cpu_seconds: float  # of all threads and processes; nan where it is not known
    first_batch_seconds: float | None = None  # from the beginning of the lap to its first batch

    @property
    def images_per_second(self) -> float:
        """Images per second of wall time."""
        return self.images / self.wall_seconds

    @property
    def cpu_seconds_per_1000(self) -> float:
        """Processor seconds for 1000 images."""
        return 1000 * self.cpu_seconds / self.images


def time_lap(run: Callable[[], int]) -> Lap:
    """Time one lap; `run` returns its number of images."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    images = run()
    return Lap(images, time.perf_counter() - wall, cpu_seconds() - cpu)


def race(
    contenders: Mapping[str, Callable[[], _Result]], rounds: int, advance: Callable[[str], object] = lambda _: None
) -> dict[str, list[_Result]]:
    """Run the contenders in alternation, so that a disturbance affects all of them; each starts some rounds."""
    laps: dict[str, list[_Result]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            advance(name)
            laps[name].append(contenders[name]())
    return laps


def median_rate(laps: Iterable[Lap]) -> float:
    """Return the median of images per second."""
    return statistics.median(lap.images_per_second for lap in laps)


def median_cpu(laps: Iterable[Lap]) -> float:
    """Return the median of processor seconds per 1000 images."""
    return statistics.median(lap.cpu_seconds_per_1000 for lap in laps)


def ratios(laps: Sequence[Lap], others: Sequence[Lap]) -> list[float]:
    """Return, round by round, how many times as fast as `others` the `laps` were."""
    return [a.images_per_second / b.images_per_second for a, b in zip(laps, others, strict=True)]


def cpu_ratios(laps: Sequence[Lap], others: Sequence[Lap]) -> list[float]:
    """Return, round by round, how many times as many images as `others` the `laps` made per processor second."""
    return [b.cpu_seconds_per_1000 / a.cpu_seconds_per_1000 for a, b in zip(laps, others, strict=True)]


def compare_times(times: Sequence[float], others: Sequence[float]) -> dict[str, float]:
    """Compare the times of the same rounds: the median of their ratios, and the ratio of the shortest times.

    Other programs disturb the shortest times least.

    Examples
    --------
    >>> compare_times([1.1, 2.0, 4.0], [1.0, 2.0, 4.0])
    {'median': 1.0, 'least': 1.1}
    """
    of_rounds = [seconds / other for seconds, other in zip(times, others, strict=True)]
    return {"median": round(statistics.median(of_rounds), 4), "least": round(min(times) / min(others), 4)}


def cpu_seconds() -> float:
    """Add up the processor time of this process and of all its child processes, running or ended.

    The resolution is a clock tick, usually 10 ms. The result is nan on a system without ``/proc``.
    """
    if not (PROC / "self" / "stat").exists():
        return math.nan
    process_times = os.times()
    living = sum(ticks for _, ticks in descendants(os.getpid())) / os.sysconf("SC_CLK_TCK")
    return (
        process_times.user + process_times.system + process_times.children_user + process_times.children_system + living
    )
