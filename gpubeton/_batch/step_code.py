"""Step code: how compiled code carries out step rows on one image.

A step function is called with five addresses: the image, (H, W, C) uint8 or uint16, C-contiguous, which it may
change; another image of the same size; memory for itself; the layout; and the step's first row. It returns 1 if the
result is in the other image, else 0. Both images have `image_nbytes` bytes.

Each is compiled by itself, when a pipeline first has a step of its kind, and called by its address: loaders without
such steps never wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.step_rows import KEEP, KIND, MIXING, NUM_KINDS, SPAN, STEP_COLUMNS
from gpubeton._compile.compile import device_function
from gpubeton._compile.intrinsics import call_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpubeton._compile.compile import AddressedFunction
    from gpubeton._compile.intrinsics import Array

# Columns of a layout, int64; ITEM_SIZE: bytes of a level, 1 or 2; MOST: the largest level.
HEIGHT, WIDTH, CHANNELS, ITEM_SIZE, MOST = range(5)
LAYOUT_FIELDS = 5

BORDER = 2  # pixels that a step may put around an image, in place
_SLACK = 64  # bytes: whole vectors are written
_LINES = 1 << 16


def layout_of(height: int, width: int, channels: int, dtype: np.dtype[Any]) -> Array:  # (LAYOUT_FIELDS,) int64
    """Describe images for step functions."""
    return np.array([height, width, channels, dtype.itemsize, np.iinfo(dtype).max], np.int64)


def image_nbytes(height: int, width: int, channels: int, item_size: int) -> int:
    """Return how many bytes an image needs; between two rows is one border."""
    return ((height + 2 * BORDER) * (width + BORDER) + 2 * BORDER) * channels * item_size + _SLACK


def common_nbytes(height: int, width: int, channels: int) -> int:
    """Return how many bytes of memory every step may use: two for each level, and some lines."""
    lines = -(-height * width * channels // 32) + (height + width) * channels
    return 64 * lines + _LINES


def memory_nbytes(height: int, width: int, channels: int, kinds: Iterable[int]) -> int:
    """Return how many bytes of memory step functions need; the mixture of AugMix comes after the common ones."""
    mixture = 6 * height * width * channels + _SLACK
    return common_nbytes(height, width, channels) + mixture * bool(MIXING & set(kinds))


def addresses_of(functions: Mapping[int, AddressedFunction], kinds: Iterable[int]) -> Array:  # (NUM_KINDS,) int64
    """Compile the functions of some kinds of steps, and return their addresses; of all others 0."""
    addresses = np.zeros(NUM_KINDS, np.int64)
    for kind in set(kinds) - {KEEP}:
        addresses[kind] = functions[kind].address
    return addresses


@device_function
def carry_out(
    rows: Array, start: int, stop: int, addresses: Array, image: int, other: int, memory: int, layout: int
) -> int:
    """Carry out the int32 rows from `start` to `stop`; return the address of the result: `image` or `other`."""
    row = start
    while row < stop:
        kind = rows[STEP_COLUMNS * row + KIND]
        if kind != KEEP:
            address = rows.ctypes.data + 4 * STEP_COLUMNS * row
            if call_step(addresses[kind], image, other, memory, layout, address) != 0:
                image, other = other, image
        row += max(rows[STEP_COLUMNS * row + SPAN], 1)
    return image
