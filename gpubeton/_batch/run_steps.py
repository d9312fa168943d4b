"""Run steps on finished batches: for operations after a user's own, and for whoever calls `Transform.apply`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.augmix_steps import AUGMIX_CODES
from gpubeton._batch.color_steps import COLOR_CODES
from gpubeton._batch.filter_steps import FILTER_CODES
from gpubeton._batch.image_batch import as_nhwc, as_tensor
from gpubeton._batch.level_steps import LEVEL_CODES
from gpubeton._batch.place_steps import PLACE_CODES
from gpubeton._batch.step_code import addresses_of, carry_out, image_nbytes, layout_of, memory_nbytes
from gpubeton._batch.step_rows import STEP_COLUMNS, step_kinds
from gpubeton._batch.warp_steps import WARP_CODES
from gpubeton._compile.compile import compiled
from gpubeton._compile.intrinsics import copy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton._compile.intrinsics import Array

#: The functions of all kinds of steps.
STEP_FUNCTIONS = COLOR_CODES | LEVEL_CODES | FILTER_CODES | WARP_CODES | PLACE_CODES | AUGMIX_CODES


def run_steps(batch: Any, rows: NDArray[np.int32]) -> None:
    """Carry out step rows, (N, S, STEP_COLUMNS), on images, in place: NHWC or NCHW, any strides, uint8 or uint16."""
    images = as_nhwc(batch)
    array = images if isinstance(images, np.ndarray) else images.cpu().numpy()
    levels = np.ascontiguousarray(array)
    _, height, width, channels = levels.shape
    kinds = set(step_kinds(rows).ravel().tolist())
    image, other = (np.zeros(image_nbytes(height, width, channels, levels.itemsize), np.uint8) for _ in range(2))
    memory = np.zeros(memory_nbytes(height, width, channels, kinds), np.uint8)
    layout = layout_of(height, width, channels, levels.dtype)
    listed = np.ascontiguousarray(rows, np.int32).reshape(len(rows), -1)
    pixels, addresses = levels.reshape(len(levels), -1).view(np.uint8), addresses_of(STEP_FUNCTIONS, kinds)
    run_listed(pixels, listed, addresses, image, other, memory, layout)
    if levels is not array:
        array[...] = levels
    if not isinstance(images, np.ndarray) and images.device.type != "cpu":
        images.copy_(as_tensor(array))


@compiled
def run_listed(
    levels: Array,  # (N, bytes of an image) uint8
    rows: Array,  # (N, S * STEP_COLUMNS) int32
    addresses: Array,
    image: Array,  # uint8: see `image_nbytes`
    other: Array,
    memory: Array,
    layout: Array,
) -> None:
    """Carry out the rows of each image of a batch."""
    count, size, first, second = rows.shape[1] // STEP_COLUMNS, levels.shape[1], image.ctypes.data, other.ctypes.data
    for number in range(len(levels)):
        pixels = levels[number].ctypes.data
        copy(first, pixels, size)
        result = carry_out(rows[number], 0, count, addresses, first, second, memory.ctypes.data, layout.ctypes.data)
        copy(pixels, result, size)
