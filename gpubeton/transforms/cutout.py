"""Cutout: paint a square over a random place of each image."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.errors import OptionError, PipelineError
from gpubeton.transforms.fill import checked_fill, checked_levels, fill_like
from gpubeton.transforms.layout import as_nhwc, image_size
from gpubeton.transforms.transform import Fill, Geometry, ImagePass, Moves, Transform
from gpubeton.transforms.window import with_sides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


class Cutout(Transform):
    """Paint a square of one colour over a random place of each image; the square lies wholly inside.

    Parameters
    ----------
    crop_size : int
        Side of the square in pixels.
    fill : sequence of three numbers, or number
        Red, green and blue, in the units of the batch: levels from 0 to 255 before ``NormalizeImage``, of which
        fractions are dropped. For images with one channel or four, so many numbers.

    Raises
    ------
    OptionError
        If `crop_size` is negative or `fill` is not such numbers.

    Notes
    -----
    From DeVries and Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout" (arXiv:1708.04552).
    As in FFCV the square lies inside; the paper's may reach beyond the border.

    Examples
    --------
    >>> image = np.full((1, 2, 2, 3), 9, "uint8")
    >>> Cutout(1).apply(image, np.array([[0, 1]]))[0, :, :, 0].tolist()
    [[9, 0], [9, 9]]
    """

    is_random: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.NOTHING
    num_paints: ClassVar[int] = 1

    def __init__(self, crop_size: int, fill: float | Sequence[float] = (0, 0, 0)) -> None:
        if crop_size != int(crop_size) or crop_size < 0:
            raise OptionError(f"Cutout: crop_size is {crop_size}; expected a number of pixels, 0 or more")
        self.crop_size = int(crop_size)
        self.fill = checked_fill("Cutout", fill)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        height, width = image_size(self, previous_state, any_channels=True)
        if self.crop_size > min(height, width):
            raise PipelineError(
                f"Cutout: a square of {self.crop_size} pixels does not fit into images of {height} x {width}; "
                f"expected a crop_size of at most {min(height, width)}"
            )
        checked_levels("Cutout", self.fill, previous_state)
        return replace(previous_state, shape=tuple(previous_state.shape)), None

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        # The squares' first row and column, every place equally likely.
        height, width = image_size(self, state, any_channels=True)
        places = np.array([height - self.crop_size + 1, width - self.crop_size + 1])
        corners: NDArray[np.int32] = (uniform(2) * places).astype(np.int32)
        return corners

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": with_sides(self.draw(uniform, count, state), (self.crop_size, self.crop_size))}

    def fuse(self, image_pass: ImagePass) -> bool:
        return image_pass.add_step(self)

    def fold(self, geometry: Geometry, draw: Any) -> None:
        geometry.paint(np.hstack([draw, draw + self.crop_size]), self.fill)

    def fills(self) -> tuple[Fill, ...]:
        return (self.fill,)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        if draw is None:
            raise TypeError("Cutout.apply needs the squares' places: pass what draw() returned")
        images, fill = as_nhwc(batch), fill_like(batch, self.fill)
        for image, (top, left) in zip(images, draw.tolist(), strict=True):
            image[top : top + self.crop_size, left : left + self.crop_size] = fill
        return batch
