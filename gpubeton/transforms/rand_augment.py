"""RandAugment and TrivialAugmentWide: policies that pick operations for each image out of torchvision's table."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.step_rows import (
    AUTOCONTRAST,
    BRIGHTNESS,
    CONTRAST,
    EQUALIZE,
    INVERT,
    POSTERIZE,
    SATURATION,
    SHARPNESS,
    SOLARIZE,
    STEP_COLUMNS,
    step_rows,
)
from gpubeton.errors import OptionError
from gpubeton.pipeline.validation import check_fill
from gpubeton.transforms.affine import affine_rows, warp_kind, warp_steps
from gpubeton.transforms.checks import checked_interpolation, checked_levels, checked_whole, image_size
from gpubeton.transforms.step_transform import StepTransform
from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State

#: Least and largest magnitude of each operation, and whether it goes both ways; translates in parts of the image.
Space = tuple[tuple[str, float, float, bool], ...]

FACTORS = {"Brightness": BRIGHTNESS, "Color": SATURATION, "Contrast": CONTRAST, "Sharpness": SHARPNESS}

_KINDS = {
    **FACTORS,
    "Posterize": POSTERIZE,
    "Solarize": SOLARIZE,
    "AutoContrast": AUTOCONTRAST,
    "Equalize": EQUALIZE,
    "Invert": INVERT,
}
"""The kinds of all operations but the warps."""

RAND_AUGMENT: Space = (
    ("Identity", 0.0, 0.0, False),
    ("ShearX", 0.0, 0.3, True),
    ("ShearY", 0.0, 0.3, True),
    ("TranslateX", 0.0, 150 / 331, True),
    ("TranslateY", 0.0, 150 / 331, True),
    ("Rotate", 0.0, 30.0, True),
    ("Brightness", 0.0, 0.9, True),
    ("Color", 0.0, 0.9, True),
    ("Contrast", 0.0, 0.9, True),
    ("Sharpness", 0.0, 0.9, True),
    ("Posterize", 8.0, 4.0, False),
    ("Solarize", 1.0, 0.0, False),
    ("AutoContrast", 0.0, 0.0, False),
    ("Equalize", 0.0, 0.0, False),
)

TRIVIAL_AUGMENT_WIDE: Space = (
    ("Identity", 0.0, 0.0, False),
    ("ShearX", 0.0, 0.99, True),
    ("ShearY", 0.0, 0.99, True),
    ("TranslateX", 0.0, 32.0, True),
    ("TranslateY", 0.0, 32.0, True),
    ("Rotate", 0.0, 135.0, True),
    ("Brightness", 0.0, 0.99, True),
    ("Color", 0.0, 0.99, True),
    ("Contrast", 0.0, 0.99, True),
    ("Sharpness", 0.0, 0.99, True),
    ("Posterize", 8.0, 2.0, False),
    ("Solarize", 1.0, 0.0, False),
    ("AutoContrast", 0.0, 0.0, False),
    ("Equalize", 0.0, 0.0, False),
)


class Policy(StepTransform):
    """Operations picked at random."""

    moves_only: bool = False
    """Whether colors and levels stay as they are, for what follows an image."""

    def __init__(self, interpolation: str, fill: Sequence[float] | None) -> None:
        name = type(self).__name__
        self.interpolation = checked_interpolation(name, interpolation)
        self.fill = check_fill(f"{name}: fill", (0, 0, 0) if fill is None else fill)

    def check_state(self, state: State) -> None:
        super().check_state(state)
        checked_levels(type(self).__name__, self.fill, state)

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        interpolation = "nearest" if interpolation == "nearest" else "bilinear"
        return self.changed(fill=fill, interpolation=interpolation, moves_only=True, takes_any_kind=True)


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
    interpolation : {"nearest", "bilinear"}
        How pixels are read between others.
    fill : sequence of three numbers, optional
        Levels of the area outside the image; black by default.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Notes
    -----
    From Cubuk, Zoph, Shlens and Le, "RandAugment: Practical automated data augmentation with a reduced search space"
    (arXiv:1909.13719), with the operations and magnitudes of torchvision's ``RandAugment``.

    `DrawnParameters` has, for each image, ``operation``, int64 (N, num_ops), places in
    `gpubeton.transforms.rand_augment.RAND_AUGMENT`, and ``magnitude``, float64 (N, num_ops), negative to the left, up,
    and so on.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> augment = RandAugment(num_ops=2, magnitude=9)
    >>> state = State(True, "cpu", (32, 32, 3), np.dtype("uint8"))
    >>> augment.draw(lambda count: np.full((4, count), 0.99), 4, state).shape
    (4, 2, 16)
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

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Notes
    -----
    From Müller and Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation" (ICCV 2021,
    arXiv:2103.10158), with the operations and magnitudes of torchvision's ``TrivialAugmentWide``.

    `DrawnParameters` has, for each image, ``operation`` and ``magnitude``, (N, 1), as for `RandAugment`, with places
    in `gpubeton.transforms.rand_augment.TRIVIAL_AUGMENT_WIDE`.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> state = State(True, "cpu", (32, 32, 3), np.dtype("uint8"))
    >>> TrivialAugmentWide().draw(lambda count: np.full((4, count), 0.99), 4, state).shape
    (4, 1, 16)
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
        own = {"Posterize": (round(magnitude),), "Solarize": (math.ceil(255 * magnitude),)}
        parameters = own.get(name, (factor,) if name in FACTORS else ())
        is_done = np.array([name not in FACTORS or factor != ONE])
        return step_rows(_KINDS[name], np.array([parameters], np.int32), is_done)
    if name == "Identity":
        warp = affine_rows(size)
    elif name == "Rotate":
        warp = affine_rows(size, angle=-magnitude)
    elif name.startswith("Translate"):
        pixels = float(int(magnitude))
        warp = affine_rows(size, translate=(pixels, 0.0) if name == "TranslateX" else (0.0, pixels))
    elif name.startswith("Shear"):
        degrees = math.degrees(math.atan(magnitude))
        shear = (degrees, 0.0) if name == "ShearX" else (0.0, degrees)
        warp = affine_rows(size, shear=shear, center=(-size[1] / 2, -size[0] / 2))
    else:
        raise ValueError(f"{name} is no operation of a policy")
    return warp_steps(interpolation, fill, warp)
