"""Cutout: paint a square over a random place of each image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.image_batch import paint_rectangles
from gpubeton.errors import PipelineError
from gpubeton.pipeline.validation import check_fill
from gpubeton.transforms.checks import checked_levels, checked_whole, given_draw, image_size
from gpubeton.transforms.crops import with_sides
from gpubeton.transforms.transform import Geometry, ImagePass, Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


class Cutout(Transform):
    """Paint a square of one color over a random place of each image; the square lies wholly inside.

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

    `DrawnParameters` has, for each image, the box that was painted over.

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
        self.crop_size = checked_whole("Cutout: crop_size", crop_size, 0)
        self.fill = check_fill("Cutout: fill", fill)

    def check_state(self, state: State) -> None:
        height, width = image_size(self, state, any_channels=True)
        if self.crop_size > min(height, width):
            raise PipelineError(
                f"Cutout: a square of {self.crop_size} pixels does not fit into images of {height} x {width}; "
                f"expected a crop_size of at most {min(height, width)}"
            )
        checked_levels("Cutout", self.fill, state)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        # The squares' first row and column, every place equally likely.
        height, width = image_size(self, state, any_channels=True)
        places = np.array([height - self.crop_size + 1, width - self.crop_size + 1])
        corners: NDArray[np.int32] = (uniform(2) * places).astype(np.int32)
        return corners

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": with_sides(self.draw(uniform, count, state), (self.crop_size, self.crop_size))}

    def fuse(self, image_pass: ImagePass) -> bool:
        return image_pass.add_fold(self)

    def fold(self, geometry: Geometry, draw: Any) -> None:
        geometry.paint(self._rectangles(draw), self.fill)

    def fills(self) -> tuple[Fill, ...]:
        return (self.fill,)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        paint_rectangles(batch, self._rectangles(given_draw(self, draw, "the squares' places")), self.fill)
        return batch

    def _rectangles(self, corners: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return top, left, bottom and right."""
        return np.hstack([corners, corners + self.crop_size])
