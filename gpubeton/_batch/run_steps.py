"""Run steps on finished batches: for operations after a user's own, and for whoever calls `Transform.apply`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.augmix_steps import ADD_CODE, FINISH_CODE, SAVE_CODE
from gpubeton._batch.hsv_step import HSV_CODE
from gpubeton._batch.image_batch import as_nhwc, as_tensor
from gpubeton._batch.place_steps import PAINT_CODE, SHIFT_CODE, TURN_CODE
from gpubeton._batch.step_code import SLACK, addresses_of, carry_out, layout_of, memory_nbytes
from gpubeton._batch.step_rows import (
    ADD,
    FINISH,
    HSV,
    KIND,
    PAINT,
    PERSPECTIVE,
    SAVE,
    SHIFT,
    STEP_COLUMNS,
    TURN,
    WARP_BILINEAR,
    WARP_NEAREST,
)
from gpubeton._batch.warp_steps import PERSPECTIVE_CODE, WARP_BILINEAR_CODE, WARP_NEAREST_CODE
from gpubeton._compile.compile import compiled
from gpubeton._compile.intrinsics import copy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton._compile.compile import AddressedFunction
    from gpubeton._compile.intrinsics import Array

STEP_FUNCTIONS: dict[int, AddressedFunction] = {
    PAINT: PAINT_CODE,
    TURN: TURN_CODE,
    SHIFT: SHIFT_CODE,
    WARP_NEAREST: WARP_NEAREST_CODE,
    WARP_BILINEAR: WARP_BILINEAR_CODE,
    PERSPECTIVE: PERSPECTIVE_CODE,
    HSV: HSV_CODE,
    SAVE: SAVE_CODE,
    ADD: ADD_CODE,
    FINISH: FINISH_CODE,
}
"""The functions of all kinds of steps."""


def run_steps(batch: Any, rows: NDArray[np.int32]) -> None:
    """Carry out step rows, (N, S, STEP_COLUMNS), on images, in place: NHWC or NCHW, any strides, uint8 or uint16."""
    images = as_nhwc(batch)
    array = images if isinstance(images, np.ndarray) else images.cpu().numpy()
    levels = np.ascontiguousarray(array)
    _, height, width, channels = levels.shape
    kinds = set(np.unique(rows[..., KIND]).tolist())
    buffers = [np.zeros(levels[0].nbytes + SLACK, np.uint8) for _ in range(2)]
    memory = np.zeros(memory_nbytes(height, width, channels, kinds), np.uint8)
    layout = layout_of(height, width, channels, levels.dtype)
    listed = np.ascontiguousarray(rows, np.int32).reshape(len(rows), -1)
    _run(
        levels.reshape(len(levels), -1).view(np.uint8),
        listed,
        addresses_of(STEP_FUNCTIONS, kinds),
        *buffers,
        memory,
        layout,
    )
    if levels is not array:
        array[...] = levels
    if not isinstance(images, np.ndarray) and images.device.type != "cpu":
        images.copy_(as_tensor(array))


@compiled
def _run(
    levels: Array,  # (N, bytes of an image) uint8
    rows: Array,  # (N, S * STEP_COLUMNS) int32
    addresses: Array,
    image: Array,  # uint8: two buffers, with slack
    other: Array,
    memory: Array,
    layout: Array,
) -> None:
    count, size = rows.shape[1] // STEP_COLUMNS, levels.shape[1]
    for number in range(len(levels)):
        pixels = levels[number].ctypes.data
        copy(image.ctypes.data, pixels, size)
        result = carry_out(
            rows[number],
            0,
            count,
            addresses,
            image.ctypes.data,
            other.ctypes.data,
            memory.ctypes.data,
            layout.ctypes.data,
        )
        copy(pixels, result, size)
