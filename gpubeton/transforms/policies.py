"""Policies: operations that are picked at random for each image, out of torchvision's tables."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gpubeton._batch import step_rows as kinds
from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.step_rows import KIND, MIXING, PARAMETERS, SPAN, STEP_COLUMNS, step_rows
from gpubeton.errors import OptionError
from gpubeton.pipeline.validation import check_choice, check_number
from gpubeton.transforms.checks import checked_whole, image_size
from gpubeton.transforms.step_transform import FilledSteps
from gpubeton.transforms.transform import Moves, Transform
from gpubeton.transforms.warps import affine_rows, warp_kind, warp_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


#: Least and largest magnitude of each operation, and whether it goes both ways; translates in parts of the image.
Space = tuple[tuple[str, float, float, bool], ...]

FACTORS = {
    "Brightness": kinds.BRIGHTNESS,
    "Color": kinds.SATURATION,
    "Contrast": kinds.CONTRAST,
    "Sharpness": kinds.SHARPNESS,
}
_KINDS = {  # of all operations but the warps
    **FACTORS, "Posterize": kinds.POSTERIZE, "Solarize": kinds.SOLARIZE, "AutoContrast": kinds.AUTOCONTRAST,
    "Equalize": kinds.EQUALIZE, "Invert": kinds.INVERT,
}  # fmt: skip


def _space(shear: float, translate: float, degrees: float, factor: float, bits: tuple[float, float]) -> Space:
    """List torchvision's fourteen operations with their largest magnitudes."""
    moves = {"ShearX": shear, "ShearY": shear, "TranslateX": translate, "TranslateY": translate, "Rotate": degrees}
    others = {"Posterize": bits, "Solarize": (1.0, 0.0), "AutoContrast": (0.0, 0.0), "Equalize": (0.0, 0.0)}
    return (
        ("Identity", 0.0, 0.0, False),
        *((name, 0.0, most, True) for name, most in {**moves, **dict.fromkeys(FACTORS, factor)}.items()),
        *((name, *ends, False) for name, ends in others.items()),
    )


RAND_AUGMENT = _space(0.3, 150 / 331, 30.0, 0.9, (8.0, 4.0))
TRIVIAL_AUGMENT_WIDE = _space(0.99, 32.0, 135.0, 0.99, (8.0, 2.0))


class Policy(FilledSteps):
    """Operations picked at random."""

    moves_only: bool = False  # whether colors and levels stay as they are, for what follows an image

    def __init__(self, interpolation: str, fill: Sequence[float] | None) -> None:
        super().__init__(interpolation, (0, 0, 0) if fill is None else fill)

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        return super().follower(interpolation, fill).changed(moves_only=True, takes_any_kind=True)


class BinnedPolicy(Policy):
    """A policy with a table of magnitudes."""

    moves: ClassVar[Moves] = Moves.FREELY

    num_magnitude_bins: int

    @property
    @abstractmethod
    def space(self) -> Space:
        """The operations that it picks from."""

    @abstractmethod
    def choose(self, uniform: Uniform) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Pick operations, bins of their magnitudes, and signs, (N, num_rows) each."""

    @property
    def kinds(self) -> frozenset[int]:
        names = {name for name, *_ in self.space}
        return frozenset({warp_kind(self.interpolation), *(kind for name, kind in _KINDS.items() if name in names)})

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        chosen: NDArray[np.int32] = self._rows(image_size(self, state, any_channels=True))[self.choose(uniform)]
        return chosen

    def _rows(self, size: tuple[int, int]) -> NDArray[np.int32]:
        space = self.space
        if self.moves_only:
            space = tuple(("Identity", 0.0, 0.0, False) if row[0] in _KINDS else row for row in space)
        return policy_rows(space, self.num_magnitude_bins, size, self.interpolation, self.fill)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        which, column, sign = self.choose(uniform)
        table = magnitudes(self.space, self.num_magnitude_bins, image_size(self, state, any_channels=True))
        return {"operation": which, "magnitude": table[which, column, sign]}


class RandAugment(BinnedPolicy):
    """Carry out some operations, picked for each image out of fourteen, all with the same magnitude.

    Parameters
    ----------
    num_ops : int
        How many, one after another; one may come twice.
    magnitude : int
        Number of the magnitude, from 0 to ``num_magnitude_bins - 1``.
    num_magnitude_bins : int
        Magnitudes of each operation, at least 2.
    interpolation, fill
        As for `RandomRotation`.

    Notes
    -----
    From Cubuk, Zoph, Shlens and Le, "RandAugment: Practical automated data augmentation with a reduced search space"
    (arXiv:1909.13719), with the operations and magnitudes of torchvision's ``RandAugment``.

    `DrawnParameters` has, for each image, ``operation``, int64 (N, num_ops), places in
    `gpubeton.transforms.policies.RAND_AUGMENT`, and ``magnitude``, float64 (N, num_ops), negative to the left, up,
    and so on.

    Examples
    --------
    >>> RandAugment(num_ops=2, magnitude=9).generate_code()(np.zeros((4, 32, 32, 3), "uint8")).shape
    (4, 32, 32, 3)
    """

    space: ClassVar[Space] = RAND_AUGMENT

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Literal["nearest", "bilinear"] = "nearest",
        fill: Sequence[float] | None = None,
    ) -> None:
        self.num_ops = checked_whole("RandAugment: num_ops", num_ops, 0)
        self.magnitude = checked_whole("RandAugment: magnitude", magnitude, 0)
        self.num_magnitude_bins = checked_whole("RandAugment: num_magnitude_bins", num_magnitude_bins, 2)
        super().__init__(interpolation, fill)
        if self.magnitude >= self.num_magnitude_bins:
            raise OptionError(
                f"RandAugment: magnitude is {magnitude}; expected 0 to {num_magnitude_bins - 1}, as there are "
                f"{num_magnitude_bins} bins"
            )

    @property
    def num_rows(self) -> int:
        return self.num_ops

    @property
    def num_numbers(self) -> int:
        return 2 * self.num_ops

    def choose(self, uniform: Uniform) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        numbers = uniform(2 * self.num_ops)
        which = (numbers[:, ::2] * len(RAND_AUGMENT)).astype(np.intp)
        return which, np.full_like(which, self.magnitude), (numbers[:, 1::2] < 0.5).astype(np.intp)


class TrivialAugmentWide(BinnedPolicy):
    """Carry out one operation, picked for each image out of fourteen, with a magnitude picked as well.

    Parameters
    ----------
    num_magnitude_bins, interpolation, fill
        As for `RandAugment`.

    Notes
    -----
    From Müller and Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation" (ICCV 2021,
    arXiv:2103.10158), with the operations and magnitudes of torchvision's ``TrivialAugmentWide``.

    `DrawnParameters` has, for each image, ``operation`` and ``magnitude``, (N, 1), as for `RandAugment`, with places
    in `gpubeton.transforms.policies.TRIVIAL_AUGMENT_WIDE`.

    Examples
    --------
    >>> TrivialAugmentWide().generate_code()(np.zeros((4, 32, 32, 3), "uint8")).shape
    (4, 32, 32, 3)
    """

    space: ClassVar[Space] = TRIVIAL_AUGMENT_WIDE
    num_numbers: ClassVar[int] = 3

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: Literal["nearest", "bilinear"] = "nearest",
        fill: Sequence[float] | None = None,
    ) -> None:
        self.num_magnitude_bins = checked_whole("TrivialAugmentWide: num_magnitude_bins", num_magnitude_bins, 2)
        super().__init__(interpolation, fill)

    def choose(self, uniform: Uniform) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        numbers = uniform(3) * [len(TRIVIAL_AUGMENT_WIDE), 2, self.num_magnitude_bins]
        which, sign, column = np.split(numbers.astype(np.intp), 3, axis=1)
        return which, column, 1 - sign


@lru_cache(maxsize=64)
def policy_rows(
    space: Space, num_bins: int, size: tuple[int, int], interpolation: str, fill: Fill
) -> NDArray[np.int32]:  # (operations, bins, 2 signs, STEP_COLUMNS)
    """Write the steps of all operations, at all magnitudes."""
    table = magnitudes(space, num_bins, size)
    rows = np.zeros((*table.shape, STEP_COLUMNS), np.int32)
    for place in np.ndindex(table.shape):
        rows[place] = policy_step(space[place[0]][0], float(table[place]), size, interpolation, fill)
    rows.flags.writeable = False
    return rows


def magnitudes(space: Space, num_bins: int, size: tuple[int, int]) -> NDArray[np.float64]:
    """List the magnitudes of all operations: (operations, bins, 2 signs)."""
    table = np.empty((len(space), num_bins, 2))
    for bins, (name, least, largest, goes_both_ways) in zip(table, space, strict=True):
        side = {"TranslateX": size[1], "TranslateY": size[0]}.get(name, 1) if largest < 1 else 1
        bins[:] = np.linspace(least, largest * side, num_bins)[:, None]
        if goes_both_ways:
            bins[:, 1] *= -1
    return table


def policy_step(
    name: str, magnitude: float, size: tuple[int, int], interpolation: str, fill: Fill
) -> NDArray[np.int32]:  # (1, 1, STEP_COLUMNS)
    """Write the step of an operation of torchvision's policies."""
    if name in _KINDS:
        factor = round((1 + magnitude) * ONE)
        arguments = {"Posterize": (round(magnitude),), "Solarize": (math.ceil(255 * magnitude),)}
        parameters = arguments.get(name, (factor,) if name in FACTORS else ())
        is_done = np.array([name not in FACTORS or factor != ONE])
        return step_rows(_KINDS[name], np.array([parameters], np.int32), is_done)
    pixels, degrees, corner = float(int(magnitude)), math.degrees(math.atan(magnitude)), (-size[1] / 2, -size[0] / 2)
    changes: dict[str, dict[str, Any]] = {
        "Identity": {},
        "Rotate": {"angle": -magnitude},
        "TranslateX": {"translate": (pixels, 0.0)},
        "TranslateY": {"translate": (0.0, pixels)},
        "ShearX": {"shear": (degrees, 0.0), "center": corner},
        "ShearY": {"shear": (0.0, degrees), "center": corner},
    }
    return warp_steps(interpolation, fill, affine_rows(size, **changes[name]))


AUTO_AUGMENT: Space = (*RAND_AUGMENT, ("Invert", 0.0, 0.0, False))

#: Of each operation of a pair: its name, its probability, and the number of its magnitude.
PAIRS = {
    "imagenet": """
        Posterize 0.4 8 + Rotate 0.6 9, Solarize 0.6 5 + AutoContrast 0.6, Equalize 0.8 + Equalize 0.6,
        Posterize 0.6 7 + Posterize 0.6 6, Equalize 0.4 + Solarize 0.2 4, Equalize 0.4 + Rotate 0.8 8,
        Solarize 0.6 3 + Equalize 0.6, Posterize 0.8 5 + Equalize 1, Rotate 0.2 3 + Solarize 0.6 8,
        Equalize 0.6 + Posterize 0.4 6, Rotate 0.8 8 + Color 0.4 0, Rotate 0.4 9 + Equalize 0.6,
        Equalize 0 + Equalize 0.8, Invert 0.6 + Equalize 1, Color 0.6 4 + Contrast 1 8, Rotate 0.8 8 + Color 1 2,
        Color 0.8 8 + Solarize 0.8 7, Sharpness 0.4 7 + Invert 0.6, ShearX 0.6 5 + Equalize 1,
        Color 0.4 0 + Equalize 0.6, Equalize 0.4 + Solarize 0.2 4, Solarize 0.6 5 + AutoContrast 0.6,
        Invert 0.6 + Equalize 1, Color 0.6 4 + Contrast 1 8, Equalize 0.8 + Equalize 0.6
    """,
    "cifar10": """
        Invert 0.1 + Contrast 0.2 6, Rotate 0.7 2 + TranslateX 0.3 9, Sharpness 0.8 1 + Sharpness 0.9 3,
        ShearY 0.5 8 + TranslateY 0.7 9, AutoContrast 0.5 + Equalize 0.9, ShearY 0.2 7 + Posterize 0.3 7,
        Color 0.4 3 + Brightness 0.6 7, Sharpness 0.3 9 + Brightness 0.7 9, Equalize 0.6 + Equalize 0.5,
        Contrast 0.6 7 + Sharpness 0.6 5, Color 0.7 7 + TranslateX 0.5 8, Equalize 0.3 + AutoContrast 0.4,
        TranslateY 0.4 3 + Sharpness 0.2 6, Brightness 0.9 6 + Color 0.2 8, Solarize 0.5 2 + Invert 0,
        Equalize 0.2 + AutoContrast 0.6, Equalize 0.2 + Equalize 0.6, Color 0.9 9 + Equalize 0.6,
        AutoContrast 0.8 + Solarize 0.2 8, Brightness 0.1 3 + Color 0.7 0, Solarize 0.4 5 + AutoContrast 0.9,
        TranslateY 0.9 9 + TranslateY 0.7 9, AutoContrast 0.9 + Solarize 0.8 3, Equalize 0.8 + Invert 0.1,
        TranslateY 0.7 9 + AutoContrast 0.9
    """,
    "svhn": """
        ShearX 0.9 4 + Invert 0.2, ShearY 0.9 8 + Invert 0.7, Equalize 0.6 + Solarize 0.6 6, Invert 0.9 + Equalize 0.6,
        Equalize 0.6 + Rotate 0.9 3, ShearX 0.9 4 + AutoContrast 0.8, ShearY 0.9 8 + Invert 0.4,
        ShearY 0.9 5 + Solarize 0.2 6, Invert 0.9 + AutoContrast 0.8, Equalize 0.6 + Rotate 0.9 3,
        ShearX 0.9 4 + Solarize 0.3 3, ShearY 0.8 8 + Invert 0.7, Equalize 0.9 + TranslateY 0.6 6,
        Invert 0.9 + Equalize 0.6, Contrast 0.3 3 + Rotate 0.8 4, Invert 0.8 + TranslateY 0 2,
        ShearY 0.7 6 + Solarize 0.4 8, Invert 0.6 + Rotate 0.8 4, ShearY 0.3 7 + TranslateX 0.9 3,
        ShearX 0.1 6 + Invert 0.6, Solarize 0.7 2 + TranslateY 0.6 7, ShearY 0.8 4 + Invert 0.8,
        ShearX 0.7 9 + TranslateY 0.8 3, ShearY 0.8 5 + AutoContrast 0.7, ShearX 0.7 2 + Invert 0.1
    """,
}


class AutoAugment(BinnedPolicy):
    """Carry out one of 25 pairs of operations, picked for each image; each operation has a probability.

    Parameters
    ----------
    policy : {"imagenet", "cifar10", "svhn"}
        The dataset for which the pairs were found.
    interpolation, fill
        As for `RandAugment`.

    Notes
    -----
    From Cubuk, Zoph, Mane, Vasudevan and Le, "AutoAugment: Learning Augmentation Policies from Data" (CVPR 2019,
    arXiv:1805.09501), with the pairs, operations and magnitudes of torchvision's ``AutoAugment``.

    `DrawnParameters` has, for each image, ``operation`` and ``magnitude``, (N, 2), as for `RandAugment`, with places in
    `gpubeton.transforms.policies.AUTO_AUGMENT`.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> state = State(True, "cpu", (32, 32, 3), np.dtype("uint8"))
    >>> drawn = AutoAugment("svhn").drawn(lambda count: np.zeros((1, count)), 1, state)
    >>> [AUTO_AUGMENT[place][0] for place in drawn["operation"][0]]
    ['ShearX', 'Invert']
    """

    space: ClassVar[Space] = AUTO_AUGMENT
    num_rows: ClassVar[int] = 2
    num_numbers: ClassVar[int] = 5
    num_magnitude_bins: int = 10

    def __init__(
        self,
        policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet",
        interpolation: Literal["nearest", "bilinear"] = "nearest",
        fill: Sequence[float] | None = None,
    ) -> None:
        # torchvision's AutoAugmentPolicy is taken, too.
        self.policy = check_choice("AutoAugment: policy", getattr(policy, "value", policy), PAIRS)
        super().__init__(interpolation, fill)

    def choose(self, uniform: Uniform) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        # Numbers: which pair; of each operation, whether, and its sign.
        numbers, pairs = uniform(5), operations_of(PAIRS[self.policy], [name for name, *_ in AUTO_AUGMENT])
        place, probability, column = np.moveaxis(pairs[(numbers[:, 0] * len(pairs)).astype(np.intp)], 2, 0)
        which = np.where(numbers[:, 1::2] < probability, place, 0).astype(np.intp)  # the first one changes nothing
        return which, column.astype(np.intp), (numbers[:, 2::2] < 0.5).astype(np.intp)


def operations_of(text: str, names: Sequence[str]) -> NDArray[np.float64]:  # (C, L, 3)
    """Return place among all names, probability and magnitude of operations that are written as in `PAIRS`."""
    words = [[f"{step} 0".split()[:3] for step in pair.split("+")] for pair in text.split(",")]
    return np.array([[(names.index(name), float(p), float(place)) for name, p, place in pair] for pair in words])


_BINS = 10

_MIXED = _space(0.3, 1 / 3, 30.0, 0.9, (4.0, 0.0))

AUG_MIX: Space = (*_MIXED[:6], *_MIXED[10:], *_MIXED[6:10])

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
    `gpubeton.transforms.policies.AUG_MIX`. A shorter chain ends with operation 0, which changes nothing.

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


def mixture_rows(chains: NDArray[np.int32], shares: NDArray[np.float64]) -> NDArray[np.int32]:
    """Write the steps that mix the results of chains, (N, width * depth, STEP_COLUMNS), with shares, (N, 1 + width)."""
    count, width = len(shares), shares.shape[1] - 1
    depth = chains.shape[1] // width
    rows = np.zeros((count, 3 + width * (depth + 1), STEP_COLUMNS), np.int32)
    rows[:, :, SPAN] = 1
    rows[:, 0, KIND], rows[:, -1, KIND] = kinds.SAVE, kinds.FINISH
    linked = rows[:, 2:-1].reshape(count, width, depth + 1, STEP_COLUMNS)
    linked[:, :, :depth] = chains.reshape(count, width, depth, STEP_COLUMNS)
    rows[:, 2:-1] = linked.reshape(count, -1, STEP_COLUMNS)
    sums = np.rint(np.cumsum(shares, axis=1) * ONE)
    added = rows[:, 1 : -1 : depth + 1]
    added[:, :, KIND], added[:, :, PARAMETERS] = kinds.ADD, np.diff(sums, axis=1, prepend=0)
    return rows


def mixture_shares(alpha: float, numbers: NDArray[np.float64]) -> NDArray[np.float64]:  # (N, 1 + W), from (N, 2 + W)
    """Return the shares of the image and of each chain, from uniform numbers."""
    original, mixed = dirichlet(alpha, numbers[:, :2]).T[:, :, None]
    return np.hstack([original, mixed * dirichlet(alpha, numbers[:, 2:])])


def dirichlet(alpha: float, numbers: NDArray[np.float64]) -> NDArray[np.float64]:  # (N, K), from (N, K)
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
