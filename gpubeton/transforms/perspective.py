"""RandomPerspective: turn images in space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gpubeton._batch.step_rows import PERSPECTIVE, fill_columns, num_rows_of, step_rows, words
from gpubeton._batch.warp_steps import perspective_rows
from gpubeton.pipeline.validation import check_number
from gpubeton.transforms.affine import RandomWarp
from gpubeton.transforms.checks import image_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State

_COLUMNS = 2 + 2 * 9 + 1  # fill, numbers of `perspective_rows`, whether it is bilinear


class RandomPerspective(RandomWarp):
    """Move the corners of each image towards its middle by random amounts, with a given probability.

    Parameters
    ----------
    distortion_scale : float
        How far corners may move, as a share of the way to the middle, 0 to 1.
    p : float
        Probability for each image, 0 to 1.
    interpolation, fill
        As for `RandomRotation`.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Notes
    -----
    torchvision's ``RandomPerspective``, with other corners for each image. Masks follow.

    `DrawnParameters` has, for each image, where its corners went, int32 (N, 4, 2): x and y of the upper left one, and
    on clockwise.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> state = State(True, "cpu", (8, 8, 3), np.dtype("uint8"))
    >>> RandomPerspective(1.0).drawn(lambda count: np.zeros((1, count)), 1, state)[""].tolist()
    [[[0, 0], [3, 0], [3, 3], [0, 3]]]
    """

    kinds: ClassVar[frozenset[int]] = frozenset({PERSPECTIVE})
    num_rows: ClassVar[int] = num_rows_of(_COLUMNS)
    num_numbers: ClassVar[int] = 9

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Literal["nearest", "bilinear"] = "bilinear",
        fill: Sequence[float] = (0, 0, 0),
    ) -> None:
        self.distortion_scale = check_number("RandomPerspective: distortion_scale", distortion_scale, 0, 1)
        super().__init__(interpolation, fill, p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        start, end = self._corners(uniform, state)
        numbers = perspective_rows(np.broadcast_to(start, end.shape), end)
        parameters = np.empty((count, _COLUMNS), np.int32)
        parameters[:, :2], parameters[:, 2:-1] = fill_columns(self.fill), words(numbers)
        parameters[:, -1] = self.interpolation == "bilinear"
        return step_rows(PERSPECTIVE, parameters, (end != start).any(axis=(1, 2)))

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": self._corners(uniform, state)[1]}

    def _corners(self, uniform: Uniform, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the corners of an image, (1, 4, 2), and where they go, (N, 4, 2)."""
        height, width = image_size(self, state, any_channels=True)
        most = np.array([int(self.distortion_scale * (side // 2)) + 1 for side in (width, height)])
        is_far = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.int32)[None]  # from the left and from the top
        start = is_far * np.array([width - 1, height - 1], np.int32)
        numbers = uniform(9)
        moved = (numbers[:, 1:].reshape(-1, 4, 2) * most).astype(np.int32)
        end = moved + is_far * (np.array([width, height]) - most).astype(np.int32)
        return start, np.where(numbers[:, :1, None] < self.p, end, start)
