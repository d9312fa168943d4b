"""Limits: how many images a second each party of a loop could do by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpubeton.loader import LoaderStats

__all__ = ["Limits", "limits_of"]


@dataclass(frozen=True)
class Limits:
    """How many images a second each party could do, if the others took no time; infinite if it had nothing to do.

    Parameters
    ----------
    step : float
        The loop's own step.
    workers : float
        The workers of the CPU.
    thread : float
        What the loader's thread does itself: planning, handing over, the rest of the pipelines.
    reading : float
        Bytes of the file, where the loader's thread waited for them.
    """

    step: float = math.inf
    workers: float = math.inf
    thread: float = math.inf
    reading: float = math.inf

    @property
    def images_per_second(self) -> float:
        """What all of them together can do at most, as they work at the same time."""
        return min(self.step, self.workers, self.thread, self.reading)

    def scaled(self, **factors: float) -> Limits:
        """Give the limits after a change.

        Parameters
        ----------
        **factors : float
            How many times as fast a party is then, by name.

        Returns
        -------
        Limits
            The others as they are.

        Examples
        --------
        >>> Limits(step=100, workers=50).scaled(workers=4).images_per_second
        100
        """
        return replace(self, **{name: getattr(self, name) * factor for name, factor in factors.items()})


def limits_of(stats: LoaderStats) -> Limits:
    """Work out the limits from where the time went.

    Parameters
    ----------
    stats : LoaderStats
        The numbers of one epoch or several.

    Returns
    -------
    Limits
        What each party could do.
    """

    def rate(seconds: float) -> float:
        return stats.images / seconds if seconds > 0 else math.inf

    # Waiting is not all there is to reading: bytes come while the workers decode. Where none was waited for, reading is
    # no limit that shows.
    return Limits(
        step=rate(stats.step_seconds + stats.handover_seconds),
        workers=rate(stats.worker_seconds / stats.num_workers) if stats.num_workers else math.inf,
        thread=rate(stats.plan_seconds + stats.submit_seconds + stats.tail_seconds),
        reading=rate(stats.seconds - stats.ahead_seconds) if stats.read_seconds > 0.3 * stats.seconds else math.inf,
    )
