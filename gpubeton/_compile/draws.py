"""The loops that draw: Philox's random numbers, and the crops that they choose."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._compile.compile import compiled

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    Array = NDArray[Any]

_ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_WORD = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_SCALE = 2.0**-32
_INTEGERS = 2.0**52  # from here on, neighboring numbers are one apart


@compiled
def fill_uniform(
    low: int,  # word of the key
    high: int,
    epoch: int,
    samples: Array,  # (N,) uint64
    counters: Array,  # (B, 2) uint32: operation and block of each block of four numbers
    numbers: Array,  # (4 * B, N) float64, C-contiguous, written
) -> None:
    """Compute Philox 4x32-10 for each block and sample: multiples of 2**-32, at least 0 and less than 1."""
    for block in range(len(counters)):
        stream, number = np.uint64(counters[block, 0]), np.uint64(counters[block, 1])
        rows = numbers[4 * block : 4 * block + 4]
        # LLVM makes SIMD instructions of this loop: whole vectors of samples.
        for n in range(len(samples)):
            first, second, third, fourth = np.uint64(epoch), samples[n] & _WORD, stream, number
            key, other_key = np.uint64(low), np.uint64(high)
            for _ in range(_ROUNDS):
                product, other = first * _MULTIPLIERS[0], third * _MULTIPLIERS[1]
                first, second = (other >> _HALF) ^ second ^ key, other & _WORD
                third, fourth = (product >> _HALF) ^ fourth ^ other_key, product & _WORD
                key, other_key = (key + _KEY_STEPS[0]) & _WORD, (other_key + _KEY_STEPS[1]) & _WORD
            rows[0, n], rows[1, n] = np.int64(first) * _SCALE, np.int64(second) * _SCALE
            rows[2, n], rows[3, n] = np.int64(third) * _SCALE, np.int64(fourth) * _SCALE


@compiled
def choose_crops(
    sizes: Array,  # (2, N) float64: heights and widths of the images
    numbers: Array,  # (4 * T, N) float64, of each try: area, aspect ratio, top, left
    aspects: Array,  # (T, N) float64: the aspect ratio of each try
    limits: Array,  # (4,) float64: least and greatest share of the area, and aspect ratio
    is_last: bool,  # whether an image that no try fits gets its central part; otherwise its box stays
    boxes: Array,  # (N, 4) int32, written: top, left, height, width
) -> None:
    """Take the first try that fits into each image."""
    for n in range(len(boxes)):
        height, width = sizes[0, n], sizes[1, n]
        found = False
        for attempt in range(len(aspects)):
            area = height * width * (limits[0] + numbers[4 * attempt, n] * (limits[1] - limits[0]))
            # Adding this rounds to the nearest integer, halves to even.
            rows = math.sqrt(area / aspects[attempt, n]) + _INTEGERS - _INTEGERS
            columns = math.sqrt(area * aspects[attempt, n]) + _INTEGERS - _INTEGERS
            if 0 < rows <= height and 0 < columns <= width:
                boxes[n, 0] = numbers[4 * attempt + 2, n] * (height - rows + 1)
                boxes[n, 1] = numbers[4 * attempt + 3, n] * (width - columns + 1)
                boxes[n, 2], boxes[n, 3] = rows, columns
                found = True
                break
        if is_last and not found:
            rows, columns = height, width
            if width / height < limits[2]:
                rows = max(width / limits[2] + _INTEGERS - _INTEGERS, 1.0)
            elif width / height > limits[3]:
                columns = max(height * limits[3] + _INTEGERS - _INTEGERS, 1.0)
            boxes[n, 0], boxes[n, 1] = (height - rows) // 2, (width - columns) // 2
            boxes[n, 2], boxes[n, 3] = rows, columns
