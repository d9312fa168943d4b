"""Weighted orders: samples drawn with chances of their own.

What is drawn is a function of the weights, the seed and the epoch alone. Nothing but exactly rounded operations is
used, so that every machine, and so every rank, draws the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.plan.philox import sort_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STREAM = 3
_LOG_2 = 0.6931471805599453
_NUM_TERMS = 12
"""Terms of the logarithm's series: the next one is below 2**-64 of the first."""


def draw_weighted(
    weights: NDArray[np.float64], num_samples: int, seed: int, epoch: int, *, replacement: bool
) -> NDArray[np.intp]:
    """Draw positions with chances in proportion to their weights.

    Parameters
    ----------
    weights : ndarray of float64, shape (N,)
        Finite numbers of at least 0; what has 0 is never drawn.
    num_samples : int
        How many to draw.
    seed, epoch : int
        What is drawn depends on these two.
    replacement : bool
        Whether a position may be drawn more than once. If not, each is drawn in proportion to the weights of those that
        are left.

    Returns
    -------
    ndarray of intp, shape (num_samples,)
        Positions from 0 to N - 1, in the order in which they are drawn.

    Raises
    ------
    OptionError
        If there are too few positions with a weight.

    Examples
    --------
    >>> draw_weighted(np.array([0.0, 3.0]), 4, seed=0, epoch=0, replacement=True).tolist()
    [1, 1, 1, 1]
    """
    positive = np.flatnonzero(weights)
    needed = min(num_samples, 1) if replacement else num_samples
    if len(positive) < needed:
        raise OptionError(
            f"{num_samples} samples are to be drawn with{'' if replacement else 'out'} replacement, but of "
            f"{len(weights)} only {len(positive)} have a weight above 0; expected at least {needed}. "
            + ("Give some of them a weight." if replacement else "Draw fewer, or with replacement=True.")
        )
    if replacement:
        sums = np.cumsum(weights[positive] / weights.max(initial=1e-300))  # no sum of large weights overflows
        chance = _uniform(seed, epoch, num_samples) * (sums[-1] if len(sums) else 0)
        # Rounding may take the largest chances to the sum itself.
        return positive[np.minimum(np.searchsorted(sums, chance, side="right"), len(positive) - 1)]
    # Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006): the times at which things that
    # happen with these rates happen first, in order.
    with np.errstate(over="ignore"):  # the smallest weights' times are infinite: these come last
        times = _minus_log(_uniform(seed, epoch, len(weights))[positive]) / weights[positive]
    return positive[np.argsort(times, kind="stable")[:num_samples]]


def _uniform(seed: int, epoch: int, count: int) -> NDArray[np.float64]:
    """Numbers above 0 and below 1, odd multiples of 2**-53."""
    return ((sort_keys(seed, epoch, _STREAM, count) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _minus_log(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minus the logarithm of positive numbers; ``np.log`` differs between machines in its last bit."""
    mantissa, exponent = np.frexp(numbers)
    is_small = mantissa < 0.5**0.5
    mantissa = np.where(is_small, 2 * mantissa, mantissa)
    ratio = (mantissa - 1) / (mantissa + 1)
    square, series = ratio * ratio, np.zeros_like(ratio)
    for term in reversed(range(_NUM_TERMS)):
        series = series * square + 1 / (2 * term + 1)
    logarithm: NDArray[np.float64] = 2 * ratio * series + (exponent - is_small) * _LOG_2
    return -logarithm
