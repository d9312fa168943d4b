"""Laps of several contenders, in alternation, and what they come to."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpubeton.cli.cpu_time import cpu_seconds

__all__ = ["Lap", "median_cpu", "median_rate", "race", "ratios", "time_lap"]


@dataclass(frozen=True)
class Lap:
    """One contender's pass over its images.

    Parameters
    ----------
    images : int
        Images that were handed out.
    wall_seconds : float
        How long it took.
    cpu_seconds : float
        Processor time of all threads and processes meanwhile; nan where it is not known.
    """

    images: int
    wall_seconds: float
    cpu_seconds: float

    @property
    def images_per_second(self) -> float:
        """Images per second of wall time."""
        return self.images / self.wall_seconds

    @property
    def cpu_seconds_per_1000(self) -> float:
        """Processor seconds for 1000 images."""
        return 1000 * self.cpu_seconds / self.images


def time_lap(run: Callable[[], int]) -> Lap:
    """Time one lap.

    Parameters
    ----------
    run : callable
        Runs the lap and returns the number of images.

    Returns
    -------
    Lap
        What it took.
    """
    cpu, wall = cpu_seconds(), time.perf_counter()
    images = run()
    return Lap(images, time.perf_counter() - wall, cpu_seconds() - cpu)


def race(
    contenders: Mapping[str, Callable[[], Lap]], rounds: int, advance: Callable[[str], object] = lambda _: None
) -> dict[str, list[Lap]]:
    """Let contenders run by turns, so that a disturbance meets all of them.

    Parameters
    ----------
    contenders : mapping of str to callable
        Each runs one lap. Only one runs at a time.
    rounds : int
        Laps of each.
    advance : callable
        Called with the contender's name before each lap.

    Returns
    -------
    dict of str to list of Lap
        The laps of each contender, in the order of the rounds.
    """
    laps: dict[str, list[Lap]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            advance(name)
            laps[name].append(contenders[name]())
    return laps


def median_rate(laps: Iterable[Lap]) -> float:
    """Give the median of the laps' images per second.

    Parameters
    ----------
    laps : iterable of Lap
        At least one.

    Returns
    -------
    float
        Images per second.
    """
    return statistics.median(lap.images_per_second for lap in laps)


def median_cpu(laps: Iterable[Lap]) -> float:
    """Give the median of the laps' processor seconds per 1000 images.

    Parameters
    ----------
    laps : iterable of Lap
        At least one.

    Returns
    -------
    float
        Seconds per 1000 images.
    """
    return statistics.median(lap.cpu_seconds_per_1000 for lap in laps)


def ratios(laps: Sequence[Lap], others: Sequence[Lap]) -> list[float]:
    """Compare two contenders round by round.

    Parameters
    ----------
    laps, others : sequence of Lap
        Laps of the same rounds.

    Returns
    -------
    list of float
        How many times as fast as `others` each of `laps` was.
    """
    return [a.images_per_second / b.images_per_second for a, b in zip(laps, others, strict=True)]
