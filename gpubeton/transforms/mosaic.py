"""Mosaic: put windows of four images together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.mosaic import PARTNER, PLACE, TILE_COLUMNS, TILES, WINDOW, make_mosaics
from gpubeton.pipeline.validation import check_probability, check_range
from gpubeton.transforms.checks import given_draw, image_size
from gpubeton.transforms.placements import MosaicPlacement
from gpubeton.transforms.transform import Geometry, Moves, Transform, between

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


class Mosaic(Transform):
    """Put windows of four images of the batch together, with a given probability: the image itself and three others.

    The image itself is at the upper left, the others at the upper right, the lower left and the lower right. Each is a
    window of an image, as large as its place, and taken from anywhere. Masks follow by `FollowImage`, and objects by
    `TransformBoxes` and `TransformKeypoints`: a sample gets those of all four, one image after the other.

    Parameters
    ----------
    p : float
        Probability for each image, 0 to 1.
    center : sequence of two floats
        Where the four meet: least and largest share of the height, and of the width.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Notes
    -----
    From Bochkovskiy, Wang and Liao, "YOLOv4: Optimal Speed and Accuracy of Object Detection" (arXiv:2004.10934). There
    the images come from the whole dataset; here, as for `ImageMixup`, from the batch, all others equally likely. No
    area is left empty, so there is no fill. Images keep their scale: a `RandomResizedCrop` afterwards changes it.

    It runs on the finished batch, of levels or floating-point values, on the CPU and on a GPU.

    `DrawnParameters` has, for each image, ``partner``, the four rows of the batch, int64 (N, 4), and ``box``, the part
    taken of each, int32 (N, 4, 4). An image that stays is the whole first one.

    Examples
    --------
    >>> images = np.arange(4, dtype="uint8").reshape(4, 1, 1, 1).repeat(2, axis=1).repeat(2, axis=2).repeat(3, axis=3)
    >>> tiles = np.array([[[0, 0, 0, 0, 0, 1, 1], [1, 0, 0, 0, 1, 1, 2], [2, 0, 0, 1, 0, 2, 1], [3, 0, 0, 1, 1, 2, 2]]])
    >>> Mosaic().apply(images, tiles.repeat(4, axis=0))[0, ..., 0].tolist()
    [[0, 1], [2, 3]]
    """

    is_random: ClassVar[bool] = True
    takes_memory: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.ALONG_AXES

    def __init__(self, p: float = 1.0, center: Sequence[float] = (0.25, 0.75)) -> None:
        self.p = check_probability("Mosaic: p", p)
        self.center = check_range("Mosaic: center", center, 0, 1)

    def check_state(self, state: State) -> None:
        image_size(self, state, any_channels=True)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        # Numbers: whether, center, partners, and windows.
        numbers, size = uniform(6 + 2 * TILES), np.array(image_size(self, state, any_channels=True))
        center = np.where(numbers[:, :1] < self.p, np.rint(between(self.center, numbers[:, 1:3]) * size), size)
        tiles = np.zeros((count, TILES, TILE_COLUMNS), np.int32)
        partners = np.arange(count)[:, None] + 1 + (numbers[:, 3:6] * (count - 1)).astype(np.int64)
        tiles[:, 0, PARTNER], tiles[:, 1:, PARTNER] = np.arange(count), partners % max(count, 1)
        is_far = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])  # from the top and from the left
        first, last = np.where(is_far, center[:, None], 0), np.where(is_far, size, center[:, None])
        tiles[..., PLACE] = np.concatenate([first, last], axis=2)
        tiles[..., WINDOW] = numbers[:, 6:].reshape(-1, TILES, 2) * (size - (last - first) + 1)
        return tiles

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        tiles = self.draw(uniform, count, state)
        place = tiles[..., PLACE]
        box = np.concatenate([tiles[..., WINDOW], place[..., 2:] - place[..., :2]], axis=2)
        return {"partner": tiles[..., PARTNER].astype(np.int64), "box": box}

    def fold(self, geometry: Geometry, draw: Any) -> None:
        geometry.place(MosaicPlacement(draw, geometry.size))

    def apply(self, batch: Any, draw: NDArray[Any] | None = None, take: Callable[..., Any] = np.empty) -> Any:
        """Make mosaics; ``take(shape, dtype)`` gives the memory of a resulting array."""
        return make_mosaics(batch, given_draw(self, draw, "the images' tiles"), take)
