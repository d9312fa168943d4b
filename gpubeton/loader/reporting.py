"""Reporting: what a loader tells of itself and of its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gpubeton.loader.explanation import explanation, summary

if TYPE_CHECKING:
    from gpubeton.loader.loader import Loader
    from gpubeton.loader.statistics import Statistics
    from gpubeton.loader.stats import LoaderStats


class Reporting:
    """The part of a loader that tells people what it is and does."""

    _statistics: Statistics

    def explain(self) -> None:
        """Print what runs where, operation by operation, and how much memory it takes at most."""
        print(explanation(cast("Loader", self)))

    def stats(self, *, total: bool = False) -> LoaderStats:
        """Tell where the time of the loop goes: into waiting, its own step, reading, decoding and the rest.

        Costs nothing worth naming, and may be asked for at any time and in any thread.

        Parameters
        ----------
        total : bool
            Add up all epochs. Otherwise it is the epoch that was begun last, or is under way.

        Returns
        -------
        LoaderStats
            Numbers by name; ``print`` shows them as a table.
        """
        return self._statistics.stats(total=total)

    def __repr__(self) -> str:
        return summary(cast("Loader", self))
