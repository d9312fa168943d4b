"""Decide from paired measurements whether two ways of making batches are equivalent, with margins stated beforehand.

Two one-sided t-tests (TOST; Schuirmann 1987): a mean difference is equivalent to 0 if its 90 % confidence interval lies
inside the margin. Failing to find a difference is not enough: few or noisy runs give a wide interval, and no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["MARGINS", "Verdict", "compare"]

#: Largest mean differences that count as none. Accuracy in percentage points; the loss of the last epoch in nats; the
#: loss of the first 20 steps, before the runs drift apart, in nats; pixels in levels of 0 to 255, as signed and as
#: absolute differences of each image; labels in percent of the images.
MARGINS = {
    "accuracy": 0.5,
    "last epoch's loss": 0.02,
    "first losses": 0.005,
    "mean level": 0.1,
    "absolute levels": 0.5,
    "labels": 0.0,
}


@dataclass(frozen=True)
class Verdict:
    """The comparison of one measure."""

    measure: str
    mean: float
    low: float  # of the 90 % confidence interval of the mean difference
    high: float
    margin: float

    @property
    def is_equivalent(self) -> bool:
        """Whether the interval lies inside the margin."""
        return -self.margin <= self.low and self.high <= self.margin


def compare(differences: Mapping[str, Sequence[float]]) -> list[Verdict]:
    """Compare two arms by the paired differences of each measure.

    Parameters
    ----------
    differences : mapping of str to sequence of float
        For each name of `MARGINS`, one difference for each pair of runs, or of images.
    """
    from scipy.stats import t

    verdicts = []
    for measure, margin in MARGINS.items():
        values = np.asarray(differences[measure], np.float64)
        mean, width = float(values.mean()), math.inf
        if len(values) > 1:
            width = float(t.ppf(0.95, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
        verdicts.append(Verdict(measure, mean, mean - width, mean + width, margin))
    return verdicts
