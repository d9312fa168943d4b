"""RandomHorizontalFlip: mirror images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.image_batch import flip_images
from gpubeton.pipeline.validation import check_probability
from gpubeton.transforms.checks import given_draw, image_size
from gpubeton.transforms.transform import Geometry, ImagePass, Moves, Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


class RandomHorizontalFlip(Transform):
    """Mirror each image left to right with a given probability.

    Parameters
    ----------
    flip_prob : float
        Probability for each image, 0 to 1.

    Raises
    ------
    OptionError
        If `flip_prob` is not from 0 to 1.

    Notes
    -----
    torchvision's and FFCV's ``RandomHorizontalFlip``; before and after an `ImageMixup`, each image has its own draw.

    `DrawnParameters` has, for each image, whether it was mirrored, bool (N,).

    Examples
    --------
    >>> row = np.arange(9, dtype="uint8").reshape(1, 1, 3, 3)
    >>> RandomHorizontalFlip().apply(row, np.array([[1]]))[0, 0, :, 0].tolist()
    [6, 3, 0]
    """

    is_random: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.ALONG_AXES

    def __init__(self, flip_prob: float = 0.5) -> None:
        self.flip_prob = check_probability("RandomHorizontalFlip: flip_prob", flip_prob)

    def check_state(self, state: State) -> None:
        check_probability("RandomHorizontalFlip: flip_prob", self.flip_prob)  # it may have been set since
        image_size(self, state, any_channels=True)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return (uniform(1) < self.flip_prob).astype(np.int32)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": self.draw(uniform, count, state)[:, 0] == 1}

    def fuse(self, image_pass: ImagePass) -> bool:
        return image_pass.add_fold(self)

    def fold(self, geometry: Geometry, draw: Any) -> None:
        geometry.flip(draw[:, 0])

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        flip_images(batch, given_draw(self, draw, "to know which images")[:, 0])
        return batch
