"""RandomAffine: turn, shift, scale and shear images by random amounts."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.transforms.colour import between, checked_probability
from gpubeton.transforms.fill import checked_fill, checked_levels
from gpubeton.transforms.image_change import ChangeTransform, ImageChange
from gpubeton.transforms.layout import image_size
from gpubeton.transforms.rotation import checked_angles
from gpubeton.transforms.transform import Fill, Moves, Transform
from gpubeton.transforms.warp import IDENTITY, affine_rows, checked_interpolation, warp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


class RandomAffine(ChangeTransform):
    """Shear, scale, turn and shift each image by random amounts; its middle is the centre.

    Parameters
    ----------
    degrees : float or sequence of two floats
        Angles are drawn from ``-degrees`` to ``degrees``, or from the first to the second; clockwise.
    translate : sequence of two floats, optional
        Largest shift along x and y, as shares of width and height; rounded to pixels. Without it nothing is shifted.
    scale : sequence of two floats, optional
        Least and largest factor. Without it nothing is scaled.
    shear : float or sequence of two or four floats, optional
        Degrees: a range around 0 along x, or its ends, or the ends along x and y. Without it nothing is sheared.
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
    torchvision's ``RandomAffine``, with numbers of its own for each image.

    Examples
    --------
    >>> image = np.arange(1, 4, dtype="uint8").reshape(1, 1, 3, 1).repeat(3, axis=3)
    >>> moved = affine_rows((1, 3), translate=(1.0, 0.0))
    >>> RandomAffine(0).apply(image, moved)[0, 0, :, 0].tolist()
    [0, 1, 2]
    """

    takes_any_kind = True
    moves: ClassVar[Moves] = Moves.FREELY

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: str = "nearest",
        fill: Sequence[float] = (0, 0, 0),
        p: float = 1.0,
    ) -> None:
        self.degrees = checked_angles("RandomAffine", "degrees", degrees)
        self.translate = _checked_pair("translate", (0.0, 0.0) if translate is None else translate, 0.0, 1.0)
        self.scale = _checked_pair("scale", (1.0, 1.0) if scale is None else scale, 2**-8, 2**8)
        if self.scale[0] > self.scale[1]:
            raise OptionError(f"RandomAffine: scale is {scale!r}; expected the least factor first")
        given = (0.0, 0.0, 0.0, 0.0) if shear is None else np.ravel(shear).tolist()
        along_x = given[:2] if len(given) > 1 else given[0]
        ranges = (
            *checked_angles("RandomAffine", "shear", along_x),
            *checked_angles("RandomAffine", "shear", given[2:] or (0.0, 0.0)),
        )
        if max(map(abs, ranges)) > 89:
            raise OptionError(f"RandomAffine: shear is {shear!r}; expected degrees of at most 89")
        self.shear = ranges
        self.interpolation = checked_interpolation("RandomAffine", interpolation)
        self.fill = checked_fill("RandomAffine", fill)
        self.p = checked_probability("RandomAffine", p)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        declared = super().declare_state_and_memory(previous_state)
        checked_levels("RandomAffine", self.fill, previous_state)
        return declared

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int64]:
        own, stays = self._drawn(uniform, image_size(self, state, any_channels=True))
        rows = affine_rows(
            image_size(self, state, any_channels=True),
            angle=own["angle"],
            translate=(own["translate"][:, 0], own["translate"][:, 1]),
            scale=own["scale"],
            shear=(own["shear"][:, 0], own["shear"][:, 1]),
        )
        rows[stays] = IDENTITY
        return rows

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        own, stays = self._drawn(uniform, image_size(self, state, any_channels=True))
        for name, values in own.items():
            values[stays] = name == "scale"
        return own

    def _drawn(self, uniform: Uniform, size: tuple[int, int]) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
        """What is done to each image, and whether it stays as it is."""
        numbers = uniform(7).T
        height, width = size
        right, down = (
            np.rint(between((-most, most), own))
            for most, own in zip((self.translate[0] * width, self.translate[1] * height), numbers[2:4], strict=True)
        )
        shear = between(self.shear[:2], numbers[5]), between(self.shear[2:], numbers[6])
        own = {
            "angle": between(self.degrees, numbers[1]),
            "translate": np.stack([right, down], axis=1),
            "scale": between(self.scale, numbers[4]),
            "shear": np.stack(shear, axis=1),
        }
        return own, numbers[0] >= self.p

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        copied = copy.copy(self)
        copied.fill = fill
        copied.interpolation = "nearest" if interpolation == "nearest" else "bilinear"
        return copied

    def image_change(self) -> ImageChange:
        return warp(self.interpolation, tuple(map(int, self.fill)))


def _checked_pair(name: str, value: Sequence[float], least: float, most: float) -> tuple[float, float]:
    pair = np.asarray(value)
    if pair.shape == (2,) and pair.dtype.kind in "iuf" and least <= pair.min() and pair.max() <= most:
        first, second = map(float, pair.tolist())
        return first, second
    raise OptionError(f"RandomAffine: {name} is {value!r}; expected two numbers from {least} to {most}")
