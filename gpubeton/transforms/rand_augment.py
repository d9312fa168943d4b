"""RandAugment and TrivialAugmentWide: policies that pick operations for each image out of torchvision's table.

Each operation becomes a row of eleven int64: a color step (kind, factor), a change of levels (kind, parameter), a
sharpness factor, and a warp. All parts but those of the operation are neutral.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gpubeton._batch.color_formulas import BRIGHTNESS, CONTRAST, ONE, SATURATION, change_colors
from gpubeton._batch.filters import change_sharpness
from gpubeton._batch.image_batch import ImageChange
from gpubeton._batch.level_tables import AUTOCONTRAST, EQUALIZE, KEEP, POSTERIZE, SOLARIZE, change_levels
from gpubeton._batch.warp import IDENTITY, warp
from gpubeton.errors import OptionError
from gpubeton.pipeline.validation import check_fill
from gpubeton.transforms.affine import affine_rows
from gpubeton.transforms.checks import checked_interpolation, checked_levels, checked_whole, image_size
from gpubeton.transforms.levels import ChangeTransform
from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State

POLICY_COLUMNS = 11

#: Least and largest magnitude of each operation, and whether it goes both ways; translates in parts of the image.
Space = tuple[tuple[str, float, float, bool], ...]

_COLORS = {"Brightness": BRIGHTNESS, "Color": SATURATION, "Contrast": CONTRAST}

_NEUTRAL = np.array([BRIGHTNESS, ONE, KEEP, 0, ONE, *IDENTITY], np.int64)

_COLOR, _LEVELS, _SHARPNESS, _WARP = slice(0, 2), slice(2, 4), slice(4, 5), slice(5, 11)

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


class Policy(ChangeTransform):
    """Operations picked at random; `draw` gives a row of ``num_ops * POLICY_COLUMNS`` int64 for each image."""

    moves: ClassVar[Moves] = Moves.FREELY
    space: ClassVar[Space]  # the operations that it picks from

    num_ops: int = 1

    moves_only: bool = False
    """Whether colors and levels stay as they are, for what follows an image."""

    def __init__(self, num_magnitude_bins: int, interpolation: str, fill: Sequence[float] | None) -> None:
        name = type(self).__name__
        self.num_magnitude_bins = checked_whole(f"{name}: num_magnitude_bins", num_magnitude_bins, 2)
        self.interpolation = checked_interpolation(name, interpolation)
        self.fill = check_fill(f"{name}: fill", (0, 0, 0) if fill is None else fill)

    @abstractmethod
    def choose(self, uniform: Uniform) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Pick operations, bins of their magnitudes, and signs, (N, num_ops) each."""

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int64]:
        rows = policy_rows(self.space, self.num_magnitude_bins, image_size(self, state, any_channels=True))
        chosen: NDArray[np.int64] = rows[self.choose(uniform)]
        return chosen.reshape(count, -1)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        which, column, sign = self.choose(uniform)
        table = magnitudes(self.space, self.num_magnitude_bins, image_size(self, state, any_channels=True))
        return {"operation": which, "magnitude": table[which, column, sign]}

    def check_state(self, state: State) -> None:
        super().check_state(state)
        checked_levels(type(self).__name__, self.fill, state)

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        interpolation = "nearest" if interpolation == "nearest" else "bilinear"
        return self.changed(fill=fill, interpolation=interpolation, moves_only=True, takes_any_kind=True)

    def image_change(self) -> ImageChange:
        moves = (_WARP, warp(self.interpolation, tuple(map(int, self.fill))))
        changes = (
            (_COLOR, change_colors),
            (_LEVELS, change_levels),
            (_SHARPNESS, change_sharpness),
            moves,
        )

        def change_images(images: Any, rows: NDArray[Any]) -> None:
            for row in np.split(rows, rows.shape[1] // POLICY_COLUMNS, axis=1) if rows.shape[1] else ():
                for columns, change in (moves,) if self.moves_only else changes:
                    part = row[:, columns]
                    if (part != _NEUTRAL[columns]).any():
                        change(images, part if columns is _WARP else part.astype(np.int32))

        return ImageChange(change_images, change_images)


class RandAugment(Policy):
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
    (4, 22)
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
        super().__init__(num_magnitude_bins, interpolation, fill)
        if self.magnitude >= self.num_magnitude_bins:
            raise OptionError(
                f"RandAugment: magnitude is {magnitude}; expected 0 to {num_magnitude_bins - 1}, as there are "
                f"{num_magnitude_bins} bins"
            )

    def choose(self, uniform: Uniform) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        numbers = uniform(2 * self.num_ops)
        which = (numbers[:, ::2] * len(RAND_AUGMENT)).astype(np.intp)
        return which, np.full_like(which, self.magnitude), (numbers[:, 1::2] < 0.5).astype(np.intp)


class TrivialAugmentWide(Policy):
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
    (4, 11)
    """

    space: ClassVar[Space] = TRIVIAL_AUGMENT_WIDE

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: Literal["nearest", "bilinear"] = "nearest",
        fill: Sequence[float] | None = None,
    ) -> None:
        super().__init__(num_magnitude_bins, interpolation, fill)

    def choose(self, uniform: Uniform) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        numbers = uniform(3) * [len(TRIVIAL_AUGMENT_WIDE), 2, self.num_magnitude_bins]
        which, sign, column = np.split(numbers.astype(np.intp), 3, axis=1)
        return which, column, 1 - sign


@lru_cache(maxsize=64)
def policy_rows(space: Space, num_bins: int, size: tuple[int, int]) -> NDArray[np.int64]:
    """Make the rows of all operations, at all magnitudes: (operations, bins, 2 signs, POLICY_COLUMNS)."""
    table = magnitudes(space, num_bins, size)
    rows = np.tile(_NEUTRAL, (*table.shape, 1))
    for place in np.ndindex(table.shape):
        _write(rows[place], space[place[0]][0], float(table[place]), size)
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


def _write(row: NDArray[np.int64], name: str, magnitude: float, size: tuple[int, int]) -> None:
    """Write one operation into its row."""
    height, width = size
    if name in _COLORS:
        row[_COLOR] = _COLORS[name], round((1 + magnitude) * ONE)
    elif name == "Sharpness":
        row[_SHARPNESS] = round((1 + magnitude) * ONE)
    elif name == "Posterize":
        row[_LEVELS] = POSTERIZE, round(magnitude)
    elif name == "Solarize":
        row[_LEVELS] = SOLARIZE, math.ceil(255 * magnitude)
    elif name in {"AutoContrast", "Equalize"}:
        row[_LEVELS] = AUTOCONTRAST if name == "AutoContrast" else EQUALIZE, 0
    elif name == "Rotate":
        row[_WARP] = affine_rows(size, angle=-magnitude)[0]
    elif name.startswith("Translate"):
        pixels = float(int(magnitude))
        row[_WARP] = affine_rows(size, translate=(pixels, 0.0) if name == "TranslateX" else (0.0, pixels))[0]
    elif name.startswith("Shear"):
        degrees = math.degrees(math.atan(magnitude))
        shear = (degrees, 0.0) if name == "ShearX" else (0.0, degrees)
        row[_WARP] = affine_rows(size, shear=shear, center=(-width / 2, -height / 2))[0]
    elif name != "Identity":
        raise ValueError(f"{name} is no operation of a policy")
