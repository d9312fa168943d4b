"""Random resized crops, drawn by torchvision's rule.

A try draws four numbers: area, aspect ratio, top, left. If none of ten tries fits into the image, the crop is the
largest central one whose aspect ratio is within the limits.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform

USUAL_NUMBERS = 12  # of an image, made in advance: three tries, which mostly do for all images of a batch
_TRIES = 10
_NUMBERS_PER_TRY = 4
_INTEGERS = 2.0**52  # from here on, neighboring numbers are one apart

Limits = tuple[float, float]


def draw_crops(
    heights: NDArray[Any], widths: NDArray[Any], scale: Limits, ratio: Limits, uniform: Uniform
) -> NDArray[np.int32]:
    """Draw a crop of each image."""
    # `heights, widths`: integers (N,); returns int32 (N, 4): top, left, height and width in pixels
    sizes = np.array([heights, widths], np.float64)
    boxes = np.zeros((len(heights), 4), np.int32)
    _choose(sizes, uniform(USUAL_NUMBERS), scale, ratio, boxes)
    misses = np.flatnonzero(boxes[:, 2] == 0)
    if len(misses):
        others = boxes[misses]
        _choose(sizes.take(misses, axis=1), uniform(_TRIES * _NUMBERS_PER_TRY, misses), scale, ratio, others)
        boxes[misses] = others
    return boxes


def _choose(
    sizes: NDArray[np.float64],  # (2, N)
    numbers: NDArray[np.float64],  # (N, numbers of the tries)
    scale: Limits,
    ratio: Limits,
    boxes: NDArray[np.int32],  # (N, 4), written
) -> None:
    columns = np.ascontiguousarray(numbers.T)
    low, high = math.log(ratio[0]), math.log(ratio[1])
    # The exponential of compiled code differs from numpy's in the last bit.
    aspects = np.exp(low + columns[1::_NUMBERS_PER_TRY] * (high - low))
    is_last = len(aspects) == _TRIES
    compiled_rule()(sizes, columns, aspects, np.array([*scale, *ratio], np.float64), is_last, boxes)


@cache
def compiled_rule() -> Callable[..., None]:
    """Compile `choose_crops`."""
    from gpubeton._compile.compile import compiled  # imports Numba: not before the first loader draws

    return compiled(choose_crops)


def choose_crops(
    sizes: NDArray[Any],  # (2, N) float64: heights and widths of the images
    numbers: NDArray[Any],  # (4 * T, N) float64, of each try: area, aspect ratio, top, left
    aspects: NDArray[Any],  # (T, N) float64: the aspect ratio of each try
    limits: NDArray[Any],  # (4,) float64: least and greatest share of the area, and aspect ratio
    is_last: bool,  # whether an image that no try fits gets its central part; otherwise its box stays
    boxes: NDArray[Any],  # (N, 4) int32, written: top, left, height, width
) -> None:
    """Take the first try that fits into each image."""
    for n in range(len(boxes)):
        height, width = sizes[0, n], sizes[1, n]
        fits_any = False
        for attempt in range(len(aspects)):
            area = height * width * (limits[0] + numbers[4 * attempt, n] * (limits[1] - limits[0]))
            # Adding this rounds to the nearest integer, halves to even.
            rows = math.sqrt(area / aspects[attempt, n]) + _INTEGERS - _INTEGERS
            columns = math.sqrt(area * aspects[attempt, n]) + _INTEGERS - _INTEGERS
            if 0 < rows <= height and 0 < columns <= width:
                boxes[n, 0] = numbers[4 * attempt + 2, n] * (height - rows + 1)
                boxes[n, 1] = numbers[4 * attempt + 3, n] * (width - columns + 1)
                boxes[n, 2], boxes[n, 3] = rows, columns
                fits_any = True
                break
        if is_last and not fits_any:
            rows, columns = height, width
            if width / height < limits[2]:
                rows = max(width / limits[2] + _INTEGERS - _INTEGERS, 1.0)
            elif width / height > limits[3]:
                columns = max(height * limits[3] + _INTEGERS - _INTEGERS, 1.0)
            boxes[n, 0], boxes[n, 1] = (height - rows) // 2, (width - columns) // 2
            boxes[n, 2], boxes[n, 3] = rows, columns
