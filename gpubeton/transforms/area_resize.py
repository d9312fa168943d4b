"""Resizing as OpenCV's INTER_AREA does it: means over areas where images shrink, two pixels where they grow."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton.pipeline.compiler import Compiler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_SLIVER = 1e-3
"""Smaller shares of a pixel are left out, as OpenCV does."""


class Taps(NamedTuple):
    """What the pixels of a resized line are made of.

    Parameters
    ----------
    first : ndarray of int32, shape (output,)
        First pixel of each, counted from the part's own.
    weights : ndarray of float32, shape (output, taps)
        Weights of that and the next ones; zeros behind or in front of those that count.
    """

    first: NDArray[np.int32]
    weights: NDArray[np.float32]


def resize_crops(images: NDArray[Any], boxes: NDArray[np.int32], out: NDArray[Any]) -> None:
    """Resize a part of each image of a batch.

    Parameters
    ----------
    images : ndarray of uint8 or uint16, shape (N, H, W, C)
        Levels.
    boxes : ndarray of int32, shape (N, 4)
        Top, left, height and width of each part, in pixels; inside the image.
    out : ndarray of the same type, shape (N, h, w, C)
        Written.

    Examples
    --------
    >>> images = np.array([0, 60, 90, 200], "uint8").reshape(1, 1, 4, 1).repeat(3, axis=3)
    >>> out = np.empty((1, 1, 2, 3), "uint8")
    >>> resize_crops(images, np.array([[0, 0, 1, 3]], "int32"), out)
    >>> out[0, 0, :, 0].tolist()
    [20, 80]
    """
    resize = _compiled_resize(out.shape[3], np.iinfo(out.dtype).max)
    height, width = out.shape[1:3]
    for image, (top, left, rows, columns), target in zip(images, boxes.tolist(), out, strict=True):
        down, across = crop_taps((top, left, rows, columns), (height, width))
        # OpenCV rounds halves up in blocks of 2 x 2 and to even in all others.
        is_halved = rows == 2 * height and columns == 2 * width
        resize(image[top : top + rows, left : left + columns], *down, *across, is_halved, target)


def pick_crops(images: NDArray[Any], boxes: NDArray[np.int32], out: NDArray[Any]) -> None:
    """Resize a part of each image of a batch by taking the pixels in which the new ones' centres lie.

    Parameters
    ----------
    images : ndarray of uint8 or uint16, shape (N, H, W, C)
        Levels.
    boxes : ndarray of int32, shape (N, 4)
        Top, left, height and width of each part, in pixels; inside the image.
    out : ndarray of the same type, shape (N, h, w, C)
        Written.

    Examples
    --------
    >>> images = np.array([0, 60, 90, 200], "uint8").reshape(1, 1, 4, 1).repeat(3, axis=3)
    >>> out = np.empty((1, 1, 2, 3), "uint8")
    >>> pick_crops(images, np.array([[0, 0, 1, 3]], "int32"), out)
    >>> out[0, 0, :, 0].tolist()
    [0, 90]
    """
    height, width = out.shape[1:3]
    for image, down, across, target in zip(images, *nearest_places(boxes, (height, width)), out, strict=True):
        target[:] = image[down[:, None], across]


def nearest_places(boxes: NDArray[np.int32], size: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the rows and columns in which the centres of new pixels lie.

    Parameters
    ----------
    boxes : ndarray of int32, shape (N, 4)
        Top, left, height and width of each part, in pixels.
    size : tuple of int
        Height and width of the results in pixels.

    Returns
    -------
    tuple of ndarray of int64, shapes (N, height) and (N, width)
        Rows and columns of the images.

    Examples
    --------
    >>> nearest_places(np.array([[5, 0, 1, 3]], "int32"), (1, 2))
    (array([[5]]), array([[0, 2]]))
    """
    corners, sides = boxes[:, :2].astype(np.int64), boxes[:, 2:].astype(np.int64)
    rows, columns = (
        corners[:, axis, None] + (2 * np.arange(length) + 1) * sides[:, axis, None] // (2 * length)
        for axis, length in enumerate(size)
    )
    return rows, columns


def crop_taps(box: Sequence[int], size: tuple[int, int]) -> tuple[Taps, Taps]:
    """Say what the pixels of a resized part are made of.

    Parameters
    ----------
    box : sequence of four int
        Top, left, height and width of the part, in pixels.
    size : tuple of int
        Height and width of the result in pixels.

    Returns
    -------
    tuple of Taps
        Those down and those across.

    Examples
    --------
    >>> down, across = crop_taps((0, 0, 2, 3), (1, 1))
    >>> down.weights.tolist(), across.weights.shape
    ([[0.5, 0.5]], (1, 3))
    """
    _, _, rows, columns = box
    grows = rows < size[0] or columns < size[1]
    return _taps(rows, size[0], grows=grows), _taps(columns, size[1], grows=grows)


def _compiled_resize(channels: int, most: int) -> Callable[..., Any]:
    def resize(source: Any, top: Any, down: Any, left: Any, across: Any, is_halved: bool, out: Any) -> None:
        """Resize one image: its rows first, then across them, in single precision and in the order of the pixels."""
        narrow = np.empty((source.shape[0], out.shape[1], channels), np.float32)
        for y in range(source.shape[0]):
            for x in range(out.shape[1]):
                for channel in range(channels):
                    total = np.float32(0)
                    for k in range(across.shape[1]):
                        total += np.float32(source[y, left[x] + k, channel]) * across[x, k]
                    narrow[y, x, channel] = total
        for y in range(out.shape[0]):
            for x in range(out.shape[1]):
                for channel in range(channels):
                    total = np.float32(0)
                    for k in range(down.shape[1]):
                        total += narrow[top[y] + k, x, channel] * down[y, k]
                    level = np.floor(total + np.float32(0.5)) if is_halved else np.rint(total)
                    out[y, x, channel] = min(max(level, np.float32(0)), np.float32(most))

    # Exact, so that a GPU gets the same levels: fast arithmetic reorders, and rounds a product and a sum once.
    return Compiler.compile_exact(resize)


@lru_cache(maxsize=1024)
def _taps(size: int, output: int, *, grows: bool) -> Taps:
    """Taps of a line of `size` pixels that is to have `output` of them; `grows` if any side of the image does."""
    shares = _two_pixels(size, output) if grows else _areas(size, output)
    # As many for each, inside the line: those at its end begin earlier, with zeros in front.
    position, weights = shares
    most = int((weights > 0).sum(axis=1).max())
    begin = np.where(weights > 0, position, size).min(axis=1)
    first = np.minimum(begin, size - most)
    packed = np.zeros((output, most + 1), np.float64)
    np.add.at(packed, (np.arange(output)[:, None], np.where(weights > 0, position - first[:, None], most)), weights)
    return Taps(first.astype(np.int32), packed[:, :most].astype(np.float32))


def _areas(size: int, output: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Pixels that each new pixel covers, and shares of them in it: both (output, taps)."""
    scale = size / output
    start = np.arange(output)[:, None] * scale
    stop = np.minimum(start + scale, size)
    position = np.floor(start).astype(np.intp) + np.arange(int(np.ceil(scale)) + 1)
    covered = np.minimum(stop, position + 1) - np.maximum(start, position)
    covered[(covered <= _SLIVER) | (position >= size)] = 0
    return np.minimum(position, size - 1), covered / np.minimum(scale, size - start)


def _two_pixels(size: int, output: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """OpenCV's rule for images that grow: two pixels, mixed only where a new pixel covers both."""
    index = np.arange(output)
    inverse = output / size
    first = np.floor(index * (1.0 / inverse)).astype(np.intp)  # rounded twice, as OpenCV does
    share = ((index + 1) - (first + 1) * inverse).astype(np.float32).astype(np.float64)
    share = np.where(share <= 0, 0, share - np.floor(share))
    first = np.minimum(first, size - 1)
    return np.minimum(first[:, None] + [0, 1], size - 1), np.stack([1 - share, share], axis=1)
