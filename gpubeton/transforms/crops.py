"""Crops: cut a window out of images, or add pixels around them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.image_batch import as_nhwc, cut_windows
from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.validation import check_fill, check_size
from gpubeton.transforms import checks
from gpubeton.transforms.checks import checked_levels, checked_whole, given_draw, image_size
from gpubeton.transforms.transform import Geometry, Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Memory, Uniform
    from gpubeton.pipeline.state import State


class _WindowCrop(Transform):
    """Cuts a window out of each image; `draw` gives first row and column of each, in the image without padding."""

    is_random: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.ALONG_AXES

    size: tuple[int, int]
    padding: int = 0
    fill: Fill = (0, 0, 0)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        self._spare(previous_state)
        checked_levels(type(self).__name__, self.fill, previous_state)
        return replace(previous_state, shape=window_shape(previous_state, self.size)), None

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": with_sides(self.draw(uniform, count, state), self.size)}

    def fold(self, geometry: Geometry, draw: Any) -> None:
        geometry.crop(with_sides(draw, self.size), self.size)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        return cut_windows(batch, given_draw(self, draw, "the windows' places"), self.size, self.fill)

    def _spare(self, state: State) -> NDArray[np.int64]:
        """Rows and columns that are cut off."""
        height, width = image_size(self, state, any_channels=True)
        spare: NDArray[np.int64] = np.array([height, width]) + 2 * self.padding - np.array(self.size)
        if spare.min() < 0:
            padded = f" with a padding of {self.padding}" if self.padding else ""
            raise PipelineError(
                f"{type(self).__name__}: a window of {self.size[0]} x {self.size[1]} does not fit into images of "
                f"{height} x {width}{padded}; take a smaller size, or pad the images"
            )
        return spare


class RandomCrop(_WindowCrop):
    """Cut a window out of each image, every place equally likely.

    Parameters
    ----------
    size : int or sequence of two int
        Side of the window, or its height and width, in pixels.
    padding : int
        Pixels that are added on each side beforehand.
    fill : sequence of three numbers
        Color of the padding, in the units of the batch: levels from 0 to 255 before ``NormalizeImage``.

    Notes
    -----
    torchvision's ``RandomCrop``. With the images' own size it does what ``RandomTranslate`` does inside the one pass
    over the pixels, at no cost.

    `DrawnParameters` has, for each image, the box that was taken; it may begin outside, where there is padding.

    Examples
    --------
    >>> image = np.arange(1, 5, dtype="uint8").reshape(1, 1, 4, 1).repeat(3, axis=3)
    >>> RandomCrop((1, 2), padding=1).apply(image, np.array([[0, -1]]))[0, 0, :, 0].tolist()
    [0, 1]
    """

    def __init__(self, size: int | Sequence[int], padding: int = 0, fill: Sequence[float] = (0, 0, 0)) -> None:
        self.size = check_size("RandomCrop: size", size)
        self.padding = checked_whole("RandomCrop: padding", padding, 0)
        self.fill = check_fill("RandomCrop: fill", fill)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        corners: NDArray[np.int32] = (uniform(2) * (self._spare(state) + 1)).astype(np.int32) - np.int32(self.padding)
        return corners

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        return self.changed(fill=fill)


# Twice the share of the spare rows and columns that come before the window.
_PLACES = np.array([[0, 0], [0, 2], [2, 0], [2, 2], [1, 1]])


class CornerCrop(_WindowCrop):
    """Cut a window out of each image, at one of its corners or in its middle, all five equally likely.

    Parameters
    ----------
    size : int or sequence of two int
        Side of the window, or its height and width, in pixels.

    Notes
    -----
    From Wang, Xiong, Wang and Qiao, "Towards Good Practices for Very Deep Two-Stream ConvNets" (arXiv:1507.02159). The
    places are those of torchvision's ``FiveCrop``, which cuts all of them.

    `DrawnParameters` has, for each image, the box that was taken.

    Examples
    --------
    >>> image = np.arange(1, 5, dtype="uint8").reshape(1, 1, 4, 1).repeat(3, axis=3)
    >>> CornerCrop((1, 2)).apply(image, np.array([[0, 2]]))[0, 0, :, 0].tolist()
    [3, 4]
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = check_size("CornerCrop: size", size)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        # A middle between two pixels goes to the even one, as torchvision's.
        places = _PLACES[(uniform(1)[:, 0] * len(_PLACES)).astype(np.intp)]
        corners: NDArray[np.int32] = np.rint(self._spare(state) * places / 2).astype(np.int32)
        return corners


class Pad(Transform):
    """Add pixels of one color around each image.

    Parameters
    ----------
    padding : int or sequence of two or four int
        Pixels on each side; or left and right, and at the top and bottom; or left, top, right and bottom.
    fill : sequence of three numbers
        Their color, in the units of the batch: levels from 0 to 255 before ``NormalizeImage``.

    Notes
    -----
    torchvision's ``Pad``, and the meaning of its numbers.

    Examples
    --------
    >>> Pad((1, 0)).apply(np.full((1, 1, 2, 3), 5, "uint8"))[0, 0, :, 0].tolist()
    [0, 5, 5, 0]
    """

    moves: ClassVar[Moves] = Moves.ALONG_AXES

    def __init__(self, padding: int | Sequence[int], fill: Sequence[float] = (0, 0, 0)) -> None:
        self.padding = _checked_padding(padding)
        self.fill = check_fill("Pad: fill", fill)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        size = self._padded(image_size(self, previous_state, any_channels=True))
        checked_levels("Pad", self.fill, previous_state)
        return replace(previous_state, shape=window_shape(previous_state, size)), None

    def fold(self, geometry: Geometry, draw: Any) -> None:
        left, top, _, _ = self.padding
        size = self._padded(geometry.size)
        geometry.crop(np.array([[-top, -left, *size]]), size)

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        return self.changed(fill=fill)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        left, top, _, _ = self.padding
        height, width = as_nhwc(batch).shape[1:3]
        corners = np.tile([-top, -left], (len(batch), 1))
        return cut_windows(batch, corners, self._padded((height, width)), self.fill)

    def _padded(self, size: tuple[int, int]) -> tuple[int, int]:
        left, top, right, bottom = self.padding
        return size[0] + top + bottom, size[1] + left + right


def with_sides(corners: NDArray[np.int32], size: tuple[int, int]) -> NDArray[np.int32]:  # (N, 4), from (N, 2)
    """Write windows of one size down as boxes."""
    sides = np.broadcast_to(np.array(size, np.int32), (len(corners), 2))
    return np.hstack([corners, sides])


def window_shape(state: State, size: tuple[int, int]) -> tuple[int, ...]:
    """Shape of a sample after windows were cut."""
    channels = checks.num_channels(state)
    return (*size, channels) if checks.has_channels_last(state.shape) else (channels, *size)


def _checked_padding(padding: int | Sequence[int]) -> tuple[int, int, int, int]:
    pixels = np.asarray(padding)
    if pixels.dtype.kind in "iu" and pixels.shape in {(), (2,), (4,)} and pixels.min() >= 0:
        left, top, right, bottom = np.tile(pixels.reshape(-1), 4 // pixels.size).tolist()
        return left, top, right, bottom
    raise OptionError(
        f"Pad: padding is {padding!r}; expected pixels, 0 or more: 4, or (left and right, top and bottom), or (left, "
        f"top, right, bottom)"
    )
