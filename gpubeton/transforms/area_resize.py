"""Resizing as OpenCV's INTER_AREA does it: means over areas where images shrink, two pixels where they grow."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubeton.pipeline.compiler import Compiler

_SLIVER = 1e-3
"""Smaller shares of a pixel are left out, as OpenCV does."""


class _Taps(NamedTuple):
    """What the pixels of a resized line are made of: first pixel and weights of each, zeros behind them."""

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
        grows = rows < height or columns < width
        down, across = _taps(rows, height, grows=grows), _taps(columns, width, grows=grows)
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
    for image, (top, left, rows, columns), target in zip(images, boxes.tolist(), out, strict=True):
        down = top + (2 * np.arange(height) + 1) * rows // (2 * height)
        across = left + (2 * np.arange(width) + 1) * columns // (2 * width)
        target[:] = image[down[:, None], across]


def _compiled_resize(channels: int, most: int) -> Callable[..., Any]:
    def resize(source: Any, top: Any, down: Any, left: Any, across: Any, is_halved: bool, out: Any) -> None:
        """Resize one image: its rows first, then across them, in single precision and in the order of the pixels."""
        narrow = np.empty((source.shape[0], out.shape[1], channels), np.float32)
        for y in range(source.shape[0]):
            for x in range(out.shape[1]):
                for channel in range(channels):
                    total = np.float32(0)
                    for k in range(across.shape[1]):
                        total += source[y, left[x] + k, channel] * across[x, k]
                    narrow[y, x, channel] = total
        for y in range(out.shape[0]):
            for x in range(out.shape[1]):
                for channel in range(channels):
                    total = np.float32(0)
                    for k in range(down.shape[1]):
                        total += narrow[top[y] + k, x, channel] * down[y, k]
                    level = np.floor(total + np.float32(0.5)) if is_halved else np.rint(total)
                    out[y, x, channel] = min(max(level, np.float32(0)), np.float32(most))

    return Compiler.compile(resize)


@lru_cache(maxsize=1024)
def _taps(size: int, output: int, *, grows: bool) -> _Taps:
    """Taps of a line of `size` pixels that is to have `output` of them; `grows` if any side of the image does."""
    shares = _two_pixels(size, output) if grows else _areas(size, output)
    # As many for each, inside the line: those at its end begin earlier, with zeros in front.
    position, weights = shares
    most = int((weights > 0).sum(axis=1).max())
    begin = np.where(weights > 0, position, size).min(axis=1)
    first = np.minimum(begin, size - most)
    packed = np.zeros((output, most + 1), np.float64)
    np.add.at(packed, (np.arange(output)[:, None], np.where(weights > 0, position - first[:, None], most)), weights)
    return _Taps(first.astype(np.int32), packed[:, :most].astype(np.float32))


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
