"""Window: a part of an image, of any place and size, with a fill where it reaches beyond the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.transforms.fill import Fill, fill_like
from gpubeton.transforms.layout import as_nchw, as_nhwc, channels_stand_last, is_nchw, num_channels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.state import State


def with_sides(corners: NDArray[np.int32], size: tuple[int, int]) -> NDArray[np.int32]:
    """Write windows of one size down as boxes.

    Parameters
    ----------
    corners : ndarray of int32, shape (N, 2)
        First row and column of each.
    size : tuple of int
        Height and width of all, in pixels.

    Returns
    -------
    ndarray of int32, shape (N, 4)
        Top, left, height and width.

    Examples
    --------
    >>> with_sides(np.array([[1, 2]], "int32"), (5, 6)).tolist()
    [[1, 2, 5, 6]]
    """
    sides = np.broadcast_to(np.array(size, np.int32), (len(corners), 2))
    return np.hstack([corners, sides])


def cut_windows(batch: Any, corners: NDArray[Any], size: tuple[int, int], fill: Fill) -> Any:
    """Cut a window out of each image.

    Parameters
    ----------
    batch : ndarray or torch.Tensor, shape (N, H, W, C) or (N, C, H, W)
        The images, of any type.
    corners : ndarray of integers, shape (N, 2)
        First row and column of each window; they may be negative.
    size : tuple of int
        Height and width of all windows in pixels.
    fill : tuple of numbers
        Colour of what lies outside the image.

    Returns
    -------
    ndarray or torch.Tensor
        A new batch; channels stand where they stood, in memory too.

    Examples
    --------
    >>> image = np.arange(1, 5, dtype="uint8").reshape(1, 1, 4, 1).repeat(3, axis=3)
    >>> cut_windows(image, np.array([[0, 2]]), (1, 3), (9, 9, 9))[0, 0, :, 0].tolist()
    [3, 4, 9]
    """
    images = as_nhwc(batch)
    height, width = images.shape[1:3]
    windows = _empty(batch, (len(images), *size, images.shape[3]))
    windows[:] = fill_like(batch, fill)
    for window, image, (top, left) in zip(windows, images, corners.tolist(), strict=True):
        first_row, last_row = max(top, 0), min(top + size[0], height)
        first, last = max(left, 0), min(left + size[1], width)
        if first_row < last_row and first < last:
            part = image[first_row:last_row, first:last]
            window[first_row - top : last_row - top, first - left : last - left] = part
    return as_nchw(windows) if is_nchw(batch) else windows


def _empty(batch: Any, shape: tuple[int, ...]) -> Any:
    """Memory for images, to be seen with their channels last, in the order that the batch's memory has."""
    if isinstance(batch, np.ndarray):
        return np.empty(shape, batch.dtype)
    if is_nchw(batch) and batch.is_contiguous():
        count, height, width, channels = shape
        windows = batch.new_empty((count, channels, height, width))
        # Of windows as wide as there are channels, only channels_last memory tells where these stand.
        if is_nchw(windows):
            return windows.permute(0, 2, 3, 1)
    return batch.new_empty(shape)


def window_shape(state: State, size: tuple[int, int]) -> tuple[int, ...]:
    """Shape of a sample after windows were cut.

    Parameters
    ----------
    state : State
        The images before.
    size : tuple of int
        Height and width of the windows in pixels.

    Returns
    -------
    tuple of int
        Channels stand where they stood.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> window_shape(State(False, "cpu", (3, 20, 30), None), (5, 6))
    (3, 5, 6)
    """
    channels = num_channels(state)
    return (*size, channels) if channels_stand_last(state.shape) else (channels, *size)


def checked_size(operation: str, size: int | Sequence[int]) -> tuple[int, int]:
    """Check the size of a window.

    Parameters
    ----------
    operation : str
        Name of the operation, for the error.
    size : int or sequence of two int
        Side of a square, or height and width, in pixels.

    Returns
    -------
    tuple of int
        Height and width.

    Raises
    ------
    OptionError
        If it is not.

    Examples
    --------
    >>> checked_size("RandomCrop", 32)
    (32, 32)
    """
    given = np.asarray(size)
    if given.dtype.kind in "iu" and given.shape in {(), (2,)} and given.min() > 0:
        height, width = np.broadcast_to(given, 2).tolist()
        return height, width
    raise OptionError(f"{operation}: size is {size!r}; expected pixels, 32, or height and width: (32, 48)")
