"""Making images smaller by averaging over the area of each new pixel, to the bit as OpenCV's INTER_AREA does."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def fitted_size(height: int, width: int, max_resolution: int | None) -> tuple[int, int]:
    """Give the size of an image whose longer side is to have at most `max_resolution` pixels."""
    if max_resolution is None or max_resolution >= max(height, width):
        return height, width
    ratio = max_resolution / max(height, width)
    return max(1, int(ratio * height)), max(1, int(ratio * width))


def area_average(pixels: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Make an image smaller."""
    # `pixels`: uint8, uint16 or float32 (H, W, C); returns the same type (height, width, C): the smaller image; whole
    # numbers are rounded
    if pixels.shape[:2] == (height, width):
        return pixels
    is_whole = pixels.dtype.kind != "f"
    if is_whole and pixels.shape[0] % height == 0 and pixels.shape[1] % width == 0:
        return _average_blocks(pixels, height, width)
    rows, row_weights = _taps(pixels.shape[0], height)
    columns, column_weights = _taps(pixels.shape[1], width)
    result = np.empty((height, width, pixels.shape[2]), pixels.dtype)
    # One color at a time: single numbers are gathered several times faster than triples.
    for color in range(pixels.shape[2]):
        plane = pixels[:, :, color].astype(np.float32)
        narrow = _weighted_sum(plane, columns, column_weights, axis=1)
        small = _weighted_sum(narrow, rows, row_weights, axis=0)
        result[:, :, color] = np.rint(small, out=small) if is_whole else small
    return result


def resizer(image: NDArray[Any], target_resolution: int | None) -> NDArray[Any]:
    """Make an image smaller if its longer side is too long, as the writer does; FFCV's function of that name.

    Parameters
    ----------
    image : ndarray of uint8, shape (H, W, 3)
        The image.
    target_resolution : int or None
        Most pixels that its longer side is to have; None for no limit.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
        The smaller image, or `image` itself.

    Examples
    --------
    >>> resizer(np.zeros((30, 40, 3), np.uint8), 20).shape
    (15, 20, 3)
    """
    return area_average(image, *fitted_size(image.shape[0], image.shape[1], target_resolution))


def _average_blocks(pixels: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Average blocks of whole pixels, in integers."""
    block_height, block_width = pixels.shape[0] // height, pixels.shape[1] // width
    columns = np.add.reduce(pixels.reshape(height, block_height, -1), axis=1, dtype=np.uint32)
    columns = columns.reshape(height, width, block_width, pixels.shape[2])
    total: NDArray[np.uint32] = columns[:, :, 0].copy()
    for number in range(1, block_width):
        total += columns[:, :, number]
    # OpenCV rounds halves up in blocks of 2 x 2 and to even in all others.
    if block_height == block_width == 2:
        return ((total + 2) >> 2).astype(pixels.dtype)
    scale = np.float32(1 / (block_height * block_width))
    mean: NDArray[np.float32] = total.astype(np.float32) * scale
    return np.rint(mean).astype(pixels.dtype)


@lru_cache(maxsize=256)
def _taps(old: int, new: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Find the filter taps of each new pixel: positions of old pixels and their weights, both (taps, new)."""
    # As in OpenCV, shares of less than a thousandth of a pixel are left out, and arithmetic is in single precision, in
    # the order of the old pixels.
    scale = old / new
    start = np.arange(new) * scale
    stop = start + scale
    extent = np.minimum(scale, old - start)
    last = np.minimum(np.floor(stop).astype(np.intp), old - 1)
    first = np.minimum(np.ceil(start).astype(np.intp), last)
    position = first - 1 + np.arange(int((last - first).max()) + 2)[:, None]
    weight = np.where((position >= first) & (position < last), 1 / extent, 0.0)
    weight[0] = np.where(first - start > 1e-3, (first - start) / extent, 0.0)
    tail = np.where(stop - last > 1e-3, np.minimum(np.minimum(stop - last, 1.0), extent) / extent, 0.0)
    weight[last - first + 1, np.arange(new)] = tail
    # Those that count first, in their order; the places without weight are then the same few for all new pixels.
    order = np.argsort(weight == 0, axis=0, kind="stable")[: int((weight != 0).sum(axis=0).max())]
    position = np.take_along_axis(np.clip(position, 0, old - 1), order, axis=0)
    return position, np.take_along_axis(weight, order, axis=0).astype(np.float32)


def _weighted_sum(
    plane: NDArray[np.float32], position: NDArray[np.intp], weight: NDArray[np.float32], axis: int
) -> NDArray[np.float32]:
    broadcast = weight[:, None, :] if axis == 1 else weight[:, :, None]
    total: NDArray[np.float32] = plane.take(position[0], axis=axis)
    total *= broadcast[0]
    part = np.empty_like(total)
    for number in range(1, len(position)):
        # mode="clip" spares numpy a copy of the result, which it makes to survive an index out of range.
        plane.take(position[number], axis=axis, out=part, mode="clip")
        part *= broadcast[number]
        total += part
    return total
