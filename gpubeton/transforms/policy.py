"""Policy: what RandAugment and TrivialAugment have in common.

A policy picks operations for each image out of torchvision's table, with a magnitude out of equally spaced bins. Each
operation becomes a row of eleven int64, all of which change nothing but those of the operation: a colour step (kind,
factor), a change of levels (kind, parameter), a sharpness factor, and a warp.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.transforms import colour_lines, colour_tensors
from gpubeton.transforms.colour_kinds import BRIGHTNESS, CONTRAST, ONE, SATURATION
from gpubeton.transforms.fill import checked_fill, checked_levels
from gpubeton.transforms.image_change import ChangeTransform, ImageChange
from gpubeton.transforms.layout import image_size
from gpubeton.transforms.levels import AUTOCONTRAST, EQUALIZE, KEEP, POSTERIZE, SOLARIZE, change_levels
from gpubeton.transforms.sharpness import change_sharpness
from gpubeton.transforms.transform import Fill, Moves, Transform
from gpubeton.transforms.warp import IDENTITY, affine_rows, checked_interpolation, warp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State

POLICY_COLUMNS = 11

#: Least and largest magnitude of each operation, and whether it goes both ways; translates in parts of the image.
Space = tuple[tuple[str, float, float, bool], ...]

_COLOURS = {"Brightness": BRIGHTNESS, "Color": SATURATION, "Contrast": CONTRAST}
_NEUTRAL = np.array([BRIGHTNESS, ONE, KEEP, 0, ONE, *IDENTITY], np.int64)
_COLOUR, _LEVELS, _SHARPNESS, _WARP = slice(0, 2), slice(2, 4), slice(4, 5), slice(5, 11)


class Policy(ChangeTransform):
    """Operations picked at random; `draw` gives a row of ``num_ops * POLICY_COLUMNS`` int64 for each image."""

    moves: ClassVar[Moves] = Moves.FREELY

    num_ops: int = 1

    moves_only: bool = False
    """Whether colours and levels stay as they are, for what follows an image."""

    def __init__(self, num_magnitude_bins: int, interpolation: str, fill: Sequence[float] | None) -> None:
        name = type(self).__name__
        self.num_magnitude_bins = checked_whole(name, "num_magnitude_bins", num_magnitude_bins, 2)
        self.interpolation = checked_interpolation(name, interpolation)
        self.fill = checked_fill(name, (0, 0, 0) if fill is None else fill)

    @property
    @abstractmethod
    def space(self) -> Space:
        """The operations that it picks from."""

    @abstractmethod
    def choose(self, uniform: Uniform) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Pick operations.

        Parameters
        ----------
        uniform : Uniform
            Random numbers of the images.

        Returns
        -------
        tuple of three ndarrays of intp, each of shape (N, num_ops)
            Place in `space`, bin of the magnitude, and 1 for a negative magnitude where the operation knows such.
        """

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int64]:
        rows = policy_rows(self.space, self.num_magnitude_bins, image_size(self, state, any_channels=True))
        chosen: NDArray[np.int64] = rows[self.choose(uniform)]
        return chosen.reshape(count, -1)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        which, column, sign = self.choose(uniform)
        size = image_size(self, state, any_channels=True)
        table = np.zeros((len(self.space), self.num_magnitude_bins, 2))
        for place, (name, least, largest, goes_both_ways) in enumerate(self.space):
            magnitude = magnitudes(name, least, largest, self.num_magnitude_bins, size)
            table[place] = np.stack([magnitude, -magnitude if goes_both_ways else magnitude], axis=1)
        return {"operation": which, "magnitude": table[which, column, sign]}

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        declared = super().declare_state_and_memory(previous_state)
        checked_levels(type(self).__name__, self.fill, previous_state)
        return declared

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        copied = copy.copy(self)
        copied.fill = fill
        copied.interpolation = "nearest" if interpolation == "nearest" else "bilinear"
        copied.moves_only = copied.takes_any_kind = True
        return copied

    def image_change(self) -> ImageChange:
        moves = (_WARP, warp(self.interpolation, tuple(map(int, self.fill))))
        changes = (
            (_COLOUR, ImageChange(colour_lines.apply_steps, colour_tensors.apply_steps)),
            (_LEVELS, change_levels),
            (_SHARPNESS, change_sharpness),
            moves,
        )

        def change_images(images: Any, rows: NDArray[Any]) -> None:
            for row in np.split(rows, rows.shape[1] // POLICY_COLUMNS, axis=1) if rows.shape[1] else ():
                for columns, change in (moves,) if self.moves_only else changes:
                    own = row[:, columns]
                    if (own != _NEUTRAL[columns]).any():
                        change(images, own if columns is _WARP else own.astype(np.int32))

        return ImageChange(change_images, change_images)


@lru_cache(maxsize=64)
def policy_rows(space: Space, num_bins: int, size: tuple[int, int]) -> NDArray[np.int64]:
    """Make the rows of all operations, at all magnitudes.

    Parameters
    ----------
    space : tuple of (str, float, float, bool)
        The operations.
    num_bins : int
        Magnitudes of each.
    size : tuple of int
        Height and width of the images in pixels.

    Returns
    -------
    ndarray of int64, shape (len(space), num_bins, 2, POLICY_COLUMNS)
        One for each operation, magnitude and sign, the negative last. Not to be changed.

    Examples
    --------
    >>> policy_rows((("Posterize", 8, 4, False),), 3, (32, 32))[0, :, 0, 2:4].tolist()
    [[2, 8], [2, 6], [2, 4]]
    """
    rows = np.tile(_NEUTRAL, (len(space), num_bins, 2, 1))
    for place, (name, least, largest, goes_both_ways) in enumerate(space):
        for column, magnitude in enumerate(magnitudes(name, least, largest, num_bins, size).tolist()):
            for sign in range(2):
                _write(rows[place, column, sign], name, -magnitude if sign and goes_both_ways else magnitude, size)
    rows.flags.writeable = False
    return rows


def magnitudes(name: str, least: float, largest: float, num_bins: int, size: tuple[int, int]) -> NDArray[np.float64]:
    """Magnitudes of an operation.

    Parameters
    ----------
    name : str
        The operation.
    least, largest : float
        The first and the last; a share of the image's side for a translate below 1.
    num_bins : int
        How many.
    size : tuple of int
        Height and width of the images in pixels.

    Returns
    -------
    ndarray of float64, shape (num_bins,)
        Equally spaced.

    Examples
    --------
    >>> magnitudes("TranslateX", 0, 0.5, 3, (20, 40)).tolist()
    [0.0, 10.0, 20.0]
    """
    if name.startswith("Translate") and largest < 1:
        largest *= size[1] if name == "TranslateX" else size[0]
    return np.linspace(least, largest, num_bins)


def _write(row: NDArray[np.int64], name: str, magnitude: float, size: tuple[int, int]) -> None:
    """Write one operation into its row."""
    height, width = size
    if name in _COLOURS:
        row[_COLOUR] = _COLOURS[name], round((1 + magnitude) * ONE)
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
        row[_WARP] = affine_rows(size, shear=shear, centre=(-width / 2, -height / 2))[0]
    elif name != "Identity":
        raise ValueError(f"{name} is no operation of a policy")


def checked_whole(operation: str, name: str, value: int, least: int) -> int:
    """Check a number of things.

    Parameters
    ----------
    operation, name : str
        Names of the operation and its argument, for the error.
    value : int
        The number.
    least : int
        The smallest that is allowed.

    Returns
    -------
    int
        The same.

    Raises
    ------
    OptionError
        If it is not whole, or too small.

    Examples
    --------
    >>> checked_whole("RandAugment", "num_ops", 2, 0)
    2
    """
    if value != int(value) or value < least:
        raise OptionError(f"{operation}: {name} is {value!r}; expected a whole number of at least {least}")
    return int(value)
