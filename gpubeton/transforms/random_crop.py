"""RandomCrop: cut a window at a random place out of images."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.errors import OptionError, PipelineError
from gpubeton.transforms.fill import checked_fill, checked_levels
from gpubeton.transforms.layout import image_size
from gpubeton.transforms.transform import Fill, Geometry, Moves, Transform
from gpubeton.transforms.window import checked_size, cut_windows, window_shape, with_sides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


class RandomCrop(Transform):
    """Cut a window out of each image, every place equally likely.

    Parameters
    ----------
    size : int or sequence of two int
        Side of the window, or its height and width, in pixels.
    padding : int
        Pixels that are added on each side beforehand.
    fill : sequence of three numbers
        Colour of the padding, in the units of the batch: levels from 0 to 255 before ``NormalizeImage``.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Notes
    -----
    torchvision's ``RandomCrop``. With the images' own size it does what ``RandomTranslate`` does inside the one pass
    over the pixels, at no cost.

    Examples
    --------
    >>> image = np.arange(1, 5, dtype="uint8").reshape(1, 1, 4, 1).repeat(3, axis=3)
    >>> RandomCrop((1, 2), padding=1).apply(image, np.array([[0, -1]]))[0, 0, :, 0].tolist()
    [0, 1]
    """

    is_random: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.ALONG_AXES

    def __init__(self, size: int | Sequence[int], padding: int = 0, fill: Sequence[float] = (0, 0, 0)) -> None:
        self.size = checked_size("RandomCrop", size)
        if padding != int(padding) or padding < 0:
            raise OptionError(f"RandomCrop: padding is {padding}; expected a number of pixels, 0 or more")
        self.padding = int(padding)
        self.fill = checked_fill("RandomCrop", fill)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        self._places(previous_state)
        checked_levels("RandomCrop", self.fill, previous_state)
        return replace(previous_state, shape=window_shape(previous_state, self.size)), None

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        # First row and column of the windows, counted in the image without its padding.
        corners: NDArray[np.int32] = (uniform(2) * self._places(state)).astype(np.int32) - np.int32(self.padding)
        return corners

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": with_sides(self.draw(uniform, count, state), self.size)}

    def fold(self, geometry: Geometry, draw: Any) -> None:
        geometry.crop(with_sides(draw, self.size), self.size)

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        copied = copy.copy(self)
        copied.fill = fill
        return copied

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        if draw is None:
            raise TypeError("RandomCrop.apply needs the windows' places: pass what draw() returned")
        return cut_windows(batch, draw, self.size, self.fill)

    def _places(self, state: State) -> NDArray[np.int64]:
        """How many first rows and columns there are."""
        height, width = image_size(self, state, any_channels=True)
        places: NDArray[np.int64] = np.array([height, width]) + 2 * self.padding - np.array(self.size) + 1
        if places.min() < 1:
            raise PipelineError(
                f"RandomCrop: a window of {self.size[0]} x {self.size[1]} does not fit into images of {height} x "
                f"{width} with a padding of {self.padding}; take a smaller size or a larger padding"
            )
        return places
