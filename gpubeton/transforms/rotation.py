"""RandomRotation: turn images by a random angle."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.transforms.colour import between, checked_probability
from gpubeton.transforms.fill import checked_fill, checked_levels
from gpubeton.transforms.image_change import ChangeTransform, ImageChange
from gpubeton.transforms.layout import image_size
from gpubeton.transforms.transform import Fill, Moves, Transform
from gpubeton.transforms.warp import IDENTITY, affine_rows, checked_interpolation, warp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


class RandomRotation(ChangeTransform):
    """Turn each image around its middle by a random angle.

    Parameters
    ----------
    degrees : float or sequence of two floats
        Angles are drawn from ``-degrees`` to ``degrees``, or from the first to the second; counter-clockwise.
    interpolation : {"nearest", "bilinear"}
        How pixels are read between others.
    fill : sequence of three numbers
        Levels of what comes from outside the image.
    p : float
        Probability for each image, 0 to 1.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Notes
    -----
    torchvision's ``RandomRotation``, with an angle of its own for each image, and the image's size kept. At the border
    "bilinear" weighs the fill with the image once, where torchvision does so twice.

    Examples
    --------
    >>> image = np.arange(1, 4, dtype="uint8").reshape(1, 1, 3, 1).repeat(3, axis=3)
    >>> turned = affine_rows((1, 3), angle=180.0)
    >>> RandomRotation(180).apply(image, turned)[0, 0, :, 0].tolist()
    [3, 2, 1]
    """

    takes_any_kind = True
    moves: ClassVar[Moves] = Moves.FREELY

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: str = "nearest",
        fill: Sequence[float] = (0, 0, 0),
        p: float = 1.0,
    ) -> None:
        self.degrees = checked_angles("RandomRotation", "degrees", degrees)
        self.interpolation = checked_interpolation("RandomRotation", interpolation)
        self.fill = checked_fill("RandomRotation", fill)
        self.p = checked_probability("RandomRotation", p)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        declared = super().declare_state_and_memory(previous_state)
        checked_levels("RandomRotation", self.fill, previous_state)
        return declared

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int64]:
        angle, stays = self._drawn(uniform)
        rows = affine_rows(image_size(self, state, any_channels=True), angle=-angle)
        rows[stays] = IDENTITY
        return rows

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        angle, stays = self._drawn(uniform)
        return {"": np.where(stays, 0.0, angle)}

    def _drawn(self, uniform: Uniform) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Angle of each image, counter-clockwise, and whether it stays as it is."""
        numbers = uniform(2)
        return between(self.degrees, numbers[:, 1]), numbers[:, 0] >= self.p

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        copied = copy.copy(self)
        copied.fill = fill
        copied.interpolation = "nearest" if interpolation == "nearest" else "bilinear"
        return copied

    def image_change(self) -> ImageChange:
        return warp(self.interpolation, tuple(map(int, self.fill)))


def checked_angles(operation: str, name: str, value: float | Sequence[float]) -> tuple[float, float]:
    """Check a range of angles.

    Parameters
    ----------
    operation, name : str
        Names of the operation and its argument, for the error.
    value : float or sequence of two floats
        Degrees: a range around 0, or its ends.

    Returns
    -------
    tuple of float
        The ends.

    Raises
    ------
    OptionError
        If they are not.

    Examples
    --------
    >>> checked_angles("RandomRotation", "degrees", 30)
    (-30.0, 30.0)
    """
    given = np.asarray(value)
    if given.dtype.kind in "iuf" and np.isfinite(given).all():
        if given.shape == () and given >= 0:
            return -float(given), float(given)
        if given.shape == (2,) and given[0] <= given[1]:
            return float(given[0]), float(given[1])
    raise OptionError(f"{operation}: {name} is {value!r}; expected degrees, 30 for -30 to 30, or both ends: (-30, 30)")
