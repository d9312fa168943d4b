"""Flips and quarter turns: mirror images, and exchange their rows and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.image_batch import flip_images
from gpubeton._batch.place_steps import ACROSS, DIAGONAL, DOWN
from gpubeton._batch.step_rows import TURN, step_rows
from gpubeton.errors import PipelineError
from gpubeton.pipeline.validation import check_probability
from gpubeton.transforms.checks import given_draw, image_size
from gpubeton.transforms.step_transform import FoldTransform, RandomStep
from gpubeton.transforms.transform import Geometry, Moves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


class RandomHorizontalFlip(FoldTransform):
    """Mirror each image left to right with a given probability.

    Parameters
    ----------
    flip_prob : float
        Probability for each image, 0 to 1.

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

    kind: ClassVar[int] = TURN
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

    def fold(self, geometry: Geometry, draw: Any) -> None:
        geometry.turn(draw[:, 0])  # 1 is ACROSS

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        flip_images(batch, given_draw(self, draw, "to know which images")[:, 0])
        return batch


class RandomVerticalFlip(RandomStep):
    """Mirror each image top to bottom with a given probability.

    Parameters
    ----------
    p : float
        Probability for each image, 0 to 1.

    Notes
    -----
    torchvision's ``RandomVerticalFlip``. Boxes and masks follow.

    `DrawnParameters` has, for each image, whether it was mirrored, bool (N,).

    Examples
    --------
    >>> column = np.arange(9, dtype="uint8").reshape(1, 3, 1, 3)
    >>> RandomVerticalFlip().apply(column, step_rows(TURN, np.array([[2]], "int32")))[0, :, 0, 0].tolist()
    [6, 3, 0]
    """

    takes_any_kind = True
    moves: ClassVar[Moves] = Moves.ALONG_AXES
    kind: ClassVar[int] = TURN
    parameters: ClassVar[tuple[int, ...]] = (DOWN,)


class RandomQuarterTurn(RandomStep):
    """Turn each image by 90, 180 or 270 degrees, all equally likely, with a given probability.

    Parameters
    ----------
    p : float
        Probability for each image, 0 to 1; with 0.75 each of the four positions is equally likely.

    Raises
    ------
    PipelineError
        If the images are not square, when a loader is made.

    Notes
    -----
    torch's ``rot90``, for images without an up, such as those of satellites and microscopes. Boxes and masks follow.

    `DrawnParameters` has, for each image, its quarter turns counter-clockwise, int64 (N,).

    Examples
    --------
    >>> image = np.repeat(np.array([[[1, 2, 0], [3, 4, 0], [0, 0, 0]]], "uint8")[..., None], 3, axis=3)
    >>> RandomQuarterTurn().apply(image, step_rows(TURN, np.array([[5]], "int32")))[0, :, :, 0].tolist()
    [[0, 0, 0], [2, 4, 0], [1, 3, 0]]
    """

    takes_any_kind = True
    moves: ClassVar[Moves] = Moves.ALONG_AXES
    kind: ClassVar[int] = TURN
    num_numbers: ClassVar[int] = 2

    def __init__(self, p: float = 0.75) -> None:
        super().__init__(p)

    def check_state(self, state: State) -> None:
        super().check_state(state)
        height, width = image_size(self, state, any_channels=True)
        if height != width:
            raise PipelineError(
                f"RandomQuarterTurn: images are {height} x {width}; expected square ones, which a quarter turn leaves "
                f"as large as they are. Crop them to a square before it."
            )

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        turns = self.drawn(uniform, count, state)[""]
        bits = np.array([0, ACROSS | DIAGONAL, ACROSS | DOWN, DOWN | DIAGONAL], np.int32)[turns]
        return step_rows(TURN, bits[:, None], turns > 0)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        numbers = uniform(2)
        return {"": np.where(numbers[:, 0] < self.p, 1 + (3 * numbers[:, 1]).astype(np.int64), 0)}
