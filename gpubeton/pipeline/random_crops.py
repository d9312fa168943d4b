"""Draw random resized crops by torchvision's rule.

A try draws four numbers: area, aspect ratio, top, left. If none of ten tries fits into the image, the crop is the
largest central one whose aspect ratio is within the limits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform


USUAL_NUMBERS = 24
"""Random numbers per image to make in advance: six tries, which mostly do for all images of a batch."""

_TRIES = 10
_NUMBERS_PER_TRY = 4

Limits = tuple[float, float]


def draw_crops(
    heights: NDArray[Any], widths: NDArray[Any], scale: Limits, ratio: Limits, uniform: Uniform
) -> NDArray[np.int32]:
    """Draw a crop of each image."""
    # `heights, widths`: integers (N,); returns int32 (N, 4): top, left, height and width in pixels
    size = np.empty((len(heights), 2))
    size[:, 0], size[:, 1] = heights, widths
    numbers = uniform(USUAL_NUMBERS)
    crop = _crop_sizes(size, numbers, scale, ratio)
    corner = numbers[:, 2:_NUMBERS_PER_TRY].copy()
    misses = np.flatnonzero(~_fits(crop, size))
    if len(misses):
        crop[misses], corner[misses] = _retry(size[misses], numbers[misses], misses, scale, ratio, uniform)
    box = np.empty((len(size), 4), np.int32)
    box[:, :2] = corner * (size - crop + 1)  # storing as integers rounds down
    box[:, 2:] = crop
    return box


def _crop_sizes(
    size: NDArray[np.float64], numbers: NDArray[np.float64], scale: Limits, ratio: Limits
) -> NDArray[np.float64]:
    """Heights and widths that one try asks for, whether they fit or not."""
    area = size[..., 0] * size[..., 1] * (scale[0] + numbers[..., 0] * (scale[1] - scale[0]))
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = np.exp(low + numbers[..., 1] * (high - low))
    crop = np.empty((*area.shape, 2))
    np.divide(area, aspect, out=crop[..., 0])
    np.multiply(area, aspect, out=crop[..., 1])
    np.sqrt(crop, out=crop)
    return np.rint(crop, out=crop)


def _retry(
    size: NDArray[np.float64],
    numbers: NDArray[np.float64],
    rows: NDArray[np.intp],
    scale: Limits,
    ratio: Limits,
    uniform: Uniform,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first try that fits, else the central part: sizes, and where they lie as shares of the room left."""
    tries = numbers.reshape(len(rows), -1, _NUMBERS_PER_TRY)
    crops = _crop_sizes(size[:, None], tries, scale, ratio)
    fits = _fits(crops, size[:, None])
    row, first = np.arange(len(rows)), fits.argmax(axis=1)
    crop, corner = crops[row, first], tries[row, first, 2:]
    rest = np.flatnonzero(~fits[row, first])
    if len(rest) and tries.shape[1] < _TRIES:
        numbers = uniform(_TRIES * _NUMBERS_PER_TRY, rows[rest])
        crop[rest], corner[rest] = _retry(size[rest], numbers, rows[rest], scale, ratio, uniform)
    elif len(rest):
        crop[rest] = _central_sizes(size[rest], ratio)
        # floor(corner * (room + 1)) is to be room // 2.
        room = size[rest] - crop[rest]
        corner[rest] = (room // 2 + 0.5) / (room + 1)
    return crop, corner


def _central_sizes(size: NDArray[np.float64], ratio: Limits) -> NDArray[np.float64]:
    height, width = size[:, 0], size[:, 1]
    low, high = ratio
    aspect = width / height
    crop_height = np.where(aspect < low, np.rint(width / low), height)
    crop_width = np.where(aspect > high, np.rint(height * high), width)
    sides: NDArray[np.float64] = np.maximum(np.stack([crop_height, crop_width], axis=1), 1)
    return sides


def _fits(crop: NDArray[np.float64], size: NDArray[np.float64]) -> NDArray[np.bool_]:
    inside = (crop > 0) & (crop <= size)
    both: NDArray[np.bool_] = inside[..., 0] & inside[..., 1]
    return both
