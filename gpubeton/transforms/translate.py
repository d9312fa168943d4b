"""RandomTranslate: shift images by a random number of pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.image_batch import as_nhwc, cut_windows
from gpubeton._batch.step_rows import SHIFT
from gpubeton.pipeline.validation import check_fill
from gpubeton.transforms.checks import checked_levels, checked_whole, given_draw, image_size
from gpubeton.transforms.step_transform import FoldTransform
from gpubeton.transforms.transform import Geometry, Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


class RandomTranslate(FoldTransform):
    """Shift each image by up to `padding` pixels along each axis: pad on all sides, then cut a window of the old size.

    Parameters
    ----------
    padding : int
        Pixels of padding on each side.
    fill : sequence of three numbers, or number
        Color of the padding, as for `Cutout`.

    Notes
    -----
    FFCV's. With ``padding=4`` it is the augmentation of He, Zhang, Ren and Sun, "Deep Residual Learning for Image
    Recognition" (arXiv:1512.03385) for CIFAR: pad, then crop.

    `DrawnParameters` has, for each image, how far down and to the right it was moved, int32 (N, 2).

    Examples
    --------
    >>> image = np.arange(1, 4, dtype="uint8").reshape(1, 1, 3, 1).repeat(3, axis=3)
    >>> RandomTranslate(1).apply(image, np.array([[1, 2]]))[0, 0, :, 0].tolist()
    [2, 3, 0]
    """

    kind: ClassVar[int] = SHIFT
    moves: ClassVar[Moves] = Moves.ALONG_AXES
    num_paints: ClassVar[int] = 2  # a band along each axis

    def __init__(self, padding: int, fill: float | Sequence[float] = (0, 0, 0)) -> None:
        self.padding = checked_whole("RandomTranslate: padding", padding, 0)
        self.fill = check_fill("RandomTranslate: fill", fill)

    def check_state(self, state: State) -> None:
        image_size(self, state, any_channels=True)
        checked_levels("RandomTranslate", self.fill, state)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        # The windows' first row and column in the padded images, each from 0 to 2 * padding.
        return (uniform(2) * (2 * self.padding + 1)).astype(np.int32)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": np.int32(self.padding) - self.draw(uniform, count, state)}

    def fold(self, geometry: Geometry, draw: Any) -> None:
        geometry.translate(draw - self.padding, self.fill)

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        return self.changed(fill=fill)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        corners = given_draw(self, draw, "the windows' places") - self.padding
        batch[:] = cut_windows(batch, corners, as_nhwc(batch).shape[1:3], self.fill)
        return batch
