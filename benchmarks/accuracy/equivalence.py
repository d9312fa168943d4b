"""The test: decide whether two ways of making batches are equivalent. All of it was fixed before the trainings ran.

It has three stages, and every measure of every stage has to pass:

1. **Batches.** 1,024 images to train with and 1,024 of the test, beside their definition in float64, which is not
   rounded to levels. Means over so many values have no random error that counts.
2. **Losses** and 3. **accuracies** of pairs of trainings that begin with the same weights. Two one-sided t-tests
   (TOST; Schuirmann 1987): a mean difference is equivalent to 0 if its 90 % confidence interval lies inside the margin.
   Failing to find a difference is not enough: few or noisy runs give a wide interval, and no verdict.

As all measures have to pass, a way that is worse than a margin passes in at most 5 % of all repetitions, however many
measures there are (intersection-union test; Berger 1982). A planted mistake counts as rejected only if the
interval of some measure lies outside its margin, not if it is merely too wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

__all__ = ["LIMITS", "MARGINS", "Verdict", "compare", "interval", "power", "within_limits"]

#: Stage 1: percent of the labels that differ; the mean difference of all values, with its sign and without, in levels
#: of 0 to 255. Rounding alone gives 0.25 without the sign.
LIMITS = {"labels": 0.0, "mean level": 0.1, "mean difference": 0.5}

#: Stages 2 and 3: the mean loss of the first 20 steps, before trainings drift apart, and of the last fifth, in nats;
#: the percent of right classes, in the arm's test images and in the reference's. Between trainings, 0.025 nats go with
#: half a point.
MARGINS = {"first losses": 0.005, "last losses": 0.025, "accuracy": 0.5, "accuracy, reference's images": 0.5}


@dataclass(frozen=True)
class Verdict:
    """The comparison of one measure."""

    measure: str
    mean: float
    low: float  # of the 90 % confidence interval of the mean difference
    high: float
    margin: float

    @property
    def outcome(self) -> Literal["equivalent", "different", "undecided"]:
        """Whether the interval lies inside the margin, outside, or across its border."""
        if -self.margin <= self.low and self.high <= self.margin:
            return "equivalent"
        return "different" if self.low > self.margin or self.high < -self.margin else "undecided"


def within_limits(measured: Mapping[str, float]) -> list[Verdict]:
    """Compare what has no random error with its limits: a value for each name of `LIMITS`."""
    figures = [(name, measured[name], limit) for name, limit in LIMITS.items()]
    return [Verdict(name, figure, figure, figure, limit) for name, figure, limit in figures]


def compare(
    differences: Mapping[str, Sequence[float]], others: Mapping[str, Sequence[float]] | None = None
) -> list[Verdict]:
    """Compare the differences of each pair of trainings, for each name of `MARGINS`, with 0.

    Two pairs do not show how far trainings vary: `others` are differences of more pairs, and their spread counts.
    """
    return [
        Verdict(name, *interval(differences[name], (others or differences)[name]), margin)
        for name, margin in MARGINS.items()
    ]


def interval(values: Sequence[float], varied: Sequence[float]) -> tuple[float, float, float]:
    """Give the mean of some values, and its 90 % confidence interval by the spread of others, or of the same."""
    mean, width = float(np.mean(values)), math.inf
    if len(varied) > 1:
        quantile = float(stats.t.ppf(0.95, len(varied) - 1))
        width = quantile * float(np.std(varied, ddof=1)) / math.sqrt(len(values))
    return mean, mean - width, mean + width


def power(spread: float, pairs: int, margin: float, trials: int = 100_000) -> float:
    """Estimate how often TOST finds two ways equivalent that are, if the pairs differ by this standard deviation."""
    rng = np.random.default_rng(0)
    means = rng.normal(0, spread / math.sqrt(pairs), trials)
    spreads = spread * np.sqrt(rng.chisquare(pairs - 1, trials) / (pairs - 1))
    widths = stats.t.ppf(0.95, pairs - 1) * spreads / math.sqrt(pairs)
    return float((np.abs(means) + widths <= margin).mean())
