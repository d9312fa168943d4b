"""AugMix: mix several chains of operations."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.step_rows import ADD, FINISH, KIND, PARAMETERS, SAVE, SPAN, STEP_COLUMNS
from gpubeton.errors import OptionError
from gpubeton.pipeline.validation import check_number
from gpubeton.transforms.checks import checked_whole
from gpubeton.transforms.rand_augment import BinnedPolicy, Space
from gpubeton.transforms.transform import Moves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State

_BINS = 10

AUG_MIX: Space = (
    ("Identity", 0.0, 0.0, False),
    ("ShearX", 0.0, 0.3, True),
    ("ShearY", 0.0, 0.3, True),
    ("TranslateX", 0.0, 1 / 3, True),
    ("TranslateY", 0.0, 1 / 3, True),
    ("Rotate", 0.0, 30.0, True),
    ("Posterize", 4.0, 0.0, False),
    ("Solarize", 1.0, 0.0, False),
    ("AutoContrast", 0.0, 0.0, False),
    ("Equalize", 0.0, 0.0, False),
    ("Brightness", 0.0, 0.9, True),
    ("Color", 0.0, 0.9, True),
    ("Contrast", 0.0, 0.9, True),
    ("Sharpness", 0.0, 0.9, True),
)

MIXING = frozenset({SAVE, ADD, FINISH})
"""The kinds of the steps of a mixture, besides those of its chains."""

_NUM_PARTIAL = 10  # without those that the benchmark ImageNet-C has, too


class AugMix(BinnedPolicy):
    """Mix each image with several versions of it, each changed by a chain of operations.

    Parameters
    ----------
    severity : int
        How strong the operations are, 1 to 10.
    mixture_width : int
        How many chains.
    chain_depth : int
        Operations of a chain; -1 for one to three, picked for each chain.
    alpha : float
        Parameter of the distributions of the shares, 0.1 to 100.
    all_ops : bool
        Whether brightness, color, contrast and sharpness are among the operations.
    interpolation, fill
        As for `RandAugment`.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Notes
    -----
    From Hendrycks, Mu, Cubuk, Zoph, Gilmer and Lakshminarayanan, "AugMix: A Simple Data Processing Method to Improve
    Robustness and Uncertainty" (ICLR 2020, arXiv:1912.02781), with the operations and magnitudes of torchvision's
    ``AugMix``; the sum is rounded, where torchvision's is cut off. Masks and boxes cannot follow a mixture.

    The shares of the chains have a Dirichlet distribution: exponential numbers, divided by their sum. For an `alpha`
    other than 1 these have a gamma distribution, whose quantiles are read from a table, good to four digits. The share
    of the image itself has a beta distribution: the same with two numbers.

    `DrawnParameters` has, for each image, ``share``, float64 (N, 1 + mixture_width), that of the image first;
    ``operation`` and ``magnitude``, (N, mixture_width, depth), as for `RandAugment`, with places in
    `gpubeton.transforms.aug_mix.AUG_MIX`. A shorter chain ends with operation 0, which changes nothing.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> state = State(True, "cpu", (32, 32, 3), np.dtype("uint8"))
    >>> drawn = AugMix(mixture_width=2).drawn(lambda count: np.full((1, count), 0.5), 1, state)
    >>> drawn["share"].round(6).tolist(), drawn["operation"].shape
    ([[0.5, 0.25, 0.25]], (1, 2, 3))
    """

    moves: ClassVar[Moves] = Moves.UNKNOWN
    num_magnitude_bins: int = _BINS

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: Literal["nearest", "bilinear"] = "bilinear",
        fill: Sequence[float] | None = None,
    ) -> None:
        self.severity = checked_whole("AugMix: severity", severity, 1, _BINS)
        self.mixture_width = checked_whole("AugMix: mixture_width", mixture_width, 1)
        self.chain_depth = checked_whole("AugMix: chain_depth", chain_depth, -1)
        if self.chain_depth == 0:
            raise OptionError("AugMix: chain_depth is 0; expected a number of operations, or -1 for one to three")
        self.alpha = check_number("AugMix: alpha", alpha, 0.1, 100)
        self.all_ops = bool(all_ops)
        super().__init__(interpolation, fill)

    @property
    def space(self) -> Space:
        return AUG_MIX if self.all_ops else AUG_MIX[:_NUM_PARTIAL]

    @property
    def kinds(self) -> frozenset[int]:
        return super().kinds | MIXING

    @property
    def num_rows(self) -> int:
        return 3 + self.mixture_width * (self._depth + 1)

    @property
    def num_numbers(self) -> int:
        return 2 + self.mixture_width * (2 + 3 * self._depth)

    @property
    def _depth(self) -> int:
        """Operations of the longest chain."""
        return 3 if self.chain_depth < 0 else self.chain_depth

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return mixture_rows(super().draw(uniform, count, state), self._shares(uniform))

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        picked = super().drawn(uniform, count, state)
        chains = {name: values.reshape(count, self.mixture_width, -1) for name, values in picked.items()}
        return {"share": self._shares(uniform), **chains}

    def _shares(self, uniform: Uniform) -> NDArray[np.float64]:
        return mixture_shares(self.alpha, uniform(2 + self.mixture_width))

    def choose(self, uniform: Uniform) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        # Numbers: those of the shares, the depths of the chains; and of each operation which, its magnitude and sign.
        numbers, first = uniform(self.num_numbers), 2 + self.mixture_width
        depth = 1 + (3 * numbers[:, first : first + self.mixture_width]).astype(np.intp)
        which, column, sign = np.moveaxis(
            numbers[:, first + self.mixture_width :].reshape(len(numbers), self.mixture_width, -1, 3), 3, 0
        )
        place = 1 + (which * (len(self.space) - 1)).astype(np.intp)
        if self.chain_depth < 0:
            place[np.arange(self._depth) >= depth[:, :, None]] = 0
        picked = place, (column * self.severity).astype(np.intp), (sign < 0.5).astype(np.intp)
        of_operations, of_magnitudes, of_signs = (values.reshape(len(numbers), -1) for values in picked)
        return of_operations, of_magnitudes, of_signs


def mixture_rows(
    chains: NDArray[np.int32],  # (N, width * depth, STEP_COLUMNS): steps of the chains, one chain after the other
    shares: NDArray[np.float64],  # (N, 1 + width)
) -> NDArray[np.int32]:  # (N, 3 + width * (depth + 1), STEP_COLUMNS)
    """Write the steps that mix the results of chains."""
    count, width = len(shares), shares.shape[1] - 1
    depth = chains.shape[1] // width
    rows = np.zeros((count, 3 + width * (depth + 1), STEP_COLUMNS), np.int32)
    rows[:, :, SPAN] = 1
    rows[:, 0, KIND], rows[:, -1, KIND] = SAVE, FINISH
    linked = rows[:, 2:-1].reshape(count, width, depth + 1, STEP_COLUMNS)
    linked[:, :, :depth] = chains.reshape(count, width, depth, STEP_COLUMNS)
    rows[:, 2:-1] = linked.reshape(count, -1, STEP_COLUMNS)
    sums = np.rint(np.cumsum(shares, axis=1) * ONE)
    added = rows[:, 1 : -1 : depth + 1]
    added[:, :, KIND], added[:, :, PARAMETERS] = ADD, np.diff(sums, axis=1, prepend=0)
    return rows


def mixture_shares(
    alpha: float,
    numbers: NDArray[np.float64],  # (N, 2 + width): from 0 to 1
) -> NDArray[np.float64]:  # (N, 1 + width)
    """Return the shares of the image and of each chain."""
    own, mixed = dirichlet(alpha, numbers[:, :2]).T[:, :, None]
    return np.hstack([own, mixed * dirichlet(alpha, numbers[:, 2:])])


def dirichlet(
    alpha: float,
    numbers: NDArray[np.float64],  # (N, K): from 0 to 1
) -> NDArray[np.float64]:  # (N, K)
    """Return shares that add up to 1: the Dirichlet distribution with all parameters `alpha`."""
    middles = numbers + 2.0**-33  # of 0 the exponential number would be infinite
    gammas = -np.log(middles) if alpha == 1 else np.interp(middles, *_gamma_table(alpha))
    shares: NDArray[np.float64] = gammas / gammas.sum(axis=1, keepdims=True)
    return shares


@lru_cache(maxsize=16)
def _gamma_table(alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return cumulative shares of the gamma distribution, and the quantiles where they are reached."""
    # By the trapezium rule over the logarithm; below the first one are a 10**-10 of all.
    logs = np.linspace(-24 / alpha, np.log(alpha + 12 * alpha**0.5 + 24), 1 << 14)
    density = np.exp(alpha * logs - np.exp(logs))
    sums = np.cumsum(density[1:] + density[:-1])
    return np.append(0, sums / sums[-1]), np.exp(logs)
