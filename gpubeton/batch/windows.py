"""Windows: flip and shift images, and cut parts of any position and size out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.batch.image_batch import as_nchw, as_nhwc, is_nchw, writable
from gpubeton.batch.painting import fill_like

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.batch.painting import Fill


def flip_images(batch: Any, is_flipped: NDArray[Any]) -> None:
    """Mirror images, in place, where `is_flipped`, (N,), is not 0."""
    rows = np.flatnonzero(is_flipped)
    images = as_nhwc(writable(batch))
    chosen = images[rows]
    images[rows] = chosen[:, :, ::-1] if isinstance(chosen, np.ndarray) else chosen.flip(2)


def shift_images(batch: Any, shifts: NDArray[np.int32], fill: Fill) -> None:
    """Read each image `shifts` rows and columns, (N, 2), further on, in place; the rest becomes `fill`."""
    images, colour = as_nhwc(batch), fill_like(batch, fill)
    for image, (down, right) in zip(images, shifts.tolist(), strict=True):
        height, width = image.shape[:2]
        kept = image[_overlap(down, height), _overlap(right, width)]
        kept = kept.copy() if isinstance(kept, np.ndarray) else kept.clone()
        image[:] = colour
        image[_overlap(-down, height), _overlap(-right, width)] = kept


def _overlap(shift: int, length: int) -> slice:
    """Return the part of an axis that remains after a shift."""
    return slice(min(max(shift, 0), length), max(min(length + shift, length), 0))


def cut_windows(
    batch: Any,  # (N, H, W, C) or (N, C, H, W): the images, of any type
    corners: NDArray[Any],  # (N, 2) integers
    size: tuple[int, int],
    fill: Fill,
) -> Any:
    """Cut a window out of each image."""
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
    """Return memory for images, viewed as NHWC, with the axis order of the batch's memory."""
    if isinstance(batch, np.ndarray):
        return np.empty(shape, batch.dtype)
    if is_nchw(batch) and batch.is_contiguous():
        count, height, width, channels = shape
        windows = batch.new_empty((count, channels, height, width))
        # Windows as wide as the number of channels are recognized as NCHW in channels_last memory only.
        if is_nchw(windows):
            return windows.permute(0, 2, 3, 1)
    return batch.new_empty(shape)
