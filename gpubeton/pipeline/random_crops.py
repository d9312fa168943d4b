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

USUAL_NUMBERS = 12
"""Random numbers per image to make in advance: three tries, which mostly do for all images of a batch."""

_TRIES = 10
_NUMBERS_PER_TRY = 4

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
    from gpubeton._compile.draws import choose_crops  # Numba is imported when the first loader draws

    columns = np.ascontiguousarray(numbers.T)
    low, high = math.log(ratio[0]), math.log(ratio[1])
    # The exponential of compiled code differs from numpy's in the last bit.
    aspects = np.exp(low + columns[1::_NUMBERS_PER_TRY] * (high - low))
    is_last = len(aspects) == _TRIES
    choose_crops(sizes, columns, aspects, np.array([*scale, *ratio], np.float64), is_last, boxes)
