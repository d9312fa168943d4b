"""CornerCrop: cut a window at a corner or in the middle out of images."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.errors import PipelineError
from gpubeton.transforms.layout import image_size
from gpubeton.transforms.transform import Geometry, Moves, Transform
from gpubeton.transforms.window import checked_size, cut_windows, window_shape, with_sides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State

_PLACES = np.array([[0, 0], [0, 2], [2, 0], [2, 2], [1, 1]])
"""Half of the image's spare rows and columns that stand before the window, twice."""


class CornerCrop(Transform):
    """Cut a window out of each image, at one of its corners or in its middle, all five equally likely.

    Parameters
    ----------
    size : int or sequence of two int
        Side of the window, or its height and width, in pixels.

    Raises
    ------
    OptionError
        If `size` is not one or two numbers of pixels.

    Notes
    -----
    From Wang, Xiong, Wang and Qiao, "Towards Good Practices for Very Deep Two-Stream ConvNets" (arXiv:1507.02159). The
    places are those of torchvision's ``FiveCrop``, which cuts all of them.

    Examples
    --------
    >>> image = np.arange(1, 5, dtype="uint8").reshape(1, 1, 4, 1).repeat(3, axis=3)
    >>> CornerCrop((1, 2)).apply(image, np.array([[0, 2]]))[0, 0, :, 0].tolist()
    [3, 4]
    """

    is_random: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.ALONG_AXES

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = checked_size("CornerCrop", size)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        self._spare(previous_state)
        return replace(previous_state, shape=window_shape(previous_state, self.size)), None

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        # First row and column of the windows; a middle between two pixels goes to the even one, as torchvision's.
        places = _PLACES[(uniform(1)[:, 0] * len(_PLACES)).astype(np.intp)]
        corners: NDArray[np.int32] = np.rint(self._spare(state) * places / 2).astype(np.int32)
        return corners

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": with_sides(self.draw(uniform, count, state), self.size)}

    def fold(self, geometry: Geometry, draw: Any) -> None:
        geometry.crop(with_sides(draw, self.size), self.size)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        if draw is None:
            raise TypeError("CornerCrop.apply needs the windows' places: pass what draw() returned")
        return cut_windows(batch, draw, self.size, (0, 0, 0))

    def _spare(self, state: State) -> NDArray[np.int64]:
        """Rows and columns that are cut off."""
        height, width = image_size(self, state, any_channels=True)
        spare: NDArray[np.int64] = np.array([height, width]) - np.array(self.size)
        if spare.min() < 0:
            raise PipelineError(
                f"CornerCrop: a window of {self.size[0]} x {self.size[1]} does not fit into images of {height} x "
                f"{width}; take a smaller size"
            )
        return spare
