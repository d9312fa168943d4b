"""The memory of one worker, sized for the largest image so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton._cpu.color_simd import GROUP, STEP_FIELDS, TABLE_SIZE, ColorScratch
from gpubeton._cpu.image_tasks import VIEW_FIELDS
from gpubeton._cpu.jpeg.columns import BLOCK_FIELDS, CURSOR_FIELDS, ENTRY_BYTES, MAX_BLOCKS, OVERRUN, PADDING
from gpubeton._cpu.jpeg.huffman import Tables, allocate_tables
from gpubeton._cpu.jpeg.markers import FRAME_SIZE, SCAN_PLACES
from gpubeton._cpu.taps import most_taps
from gpubeton._plan.program import MAX_COLOR_STEPS
from gpubeton.format.layout import MAX_INTERVALS

if TYPE_CHECKING:
    from gpubeton._cpu.intrinsics import Array

# Whole vectors are written: rows have this many bytes more than their pixels need.
_SLACK = 64
_MCU_SIDE = 16


class Scratch(NamedTuple):
    """One worker's memory; only one thread may use it at a time."""

    capacity: Array  # (3,) int64: the largest height, width and size of a JPEG in bytes that fit
    frame: Array  # (FRAME_SIZE,) int64: headers, see `jpeg.markers`
    tables: Tables
    cursor: Array  # (CURSOR_FIELDS,) int64: see `jpeg.intervals`
    entries: Array  # uint8: an ENTRY_DTYPE for each restart interval
    scan: Array  # uint8: an interval without byte stuffing
    coefficients: Array  # (96,) int16, aligned: one block, and room for values past its end
    scan_places: Array  # (256,) uint8: `jpeg.markers.SCAN_PLACES`
    blocks: Array  # (MAX_BLOCKS, BLOCK_FIELDS) int64: see `jpeg.entropy`
    predictors: Array  # (3,) int64
    strips: Array  # (2, n) uint16, aligned: luma, and Cb next to Cr
    views: Array  # (V, VIEW_FIELDS) int64: see `image_tasks`
    planes: Array  # (V, 3, n) uint16: horizontally resampled Y, Cb, Cr of each view
    first: Array  # (V, 4, padded side) int32: taps of luma and chroma, across and down
    words: Array  # (V, 4, padded side, taps) int32
    row: Array  # (taps,) float64
    pixels: Array  # uint8: one output row of RGB
    source_row: Array  # uint8: one source row of RGB, vertically resampled
    lane_words: Array  # uint16: weights of a raw image's taps, repeated for each SIMD lane
    staging: Array  # (V, n) uint8: output images before their color steps
    colors: ColorScratch


def aligned(size: int, dtype: Any, alignment: int = 64) -> Array:
    """Allocate an array whose address is a multiple of `alignment`."""
    item = np.dtype(dtype).itemsize
    memory = np.zeros(size * item + alignment, np.uint8)
    offset = -memory.ctypes.data % alignment
    return memory[offset : offset + size * item].view(dtype)


def allocate(
    source: tuple[int, int, int],  # largest height and width of any image, and size of the largest JPEG in bytes
    output: tuple[int, int],  # largest height and width of any output
    scale: float,  # largest `ImageProgram.largest_scale`: it limits the number of taps
    staging: tuple[int, int] = (0, 0),  # largest height and width of an output that needs a u8 staging image
    views: int = 1,  # most outputs of one stored image; memory that is not used is never touched
) -> Scratch:
    """Allocate one worker's memory."""
    padded = -(-max(output) // _MCU_SIDE) * _MCU_SIDE
    width = -(-output[1] // _MCU_SIDE) * _MCU_SIDE
    taps = most_taps(scale)
    source_height, source_width, source_bytes = source
    # Down and across: whole MCUs, and taps that reach past the last pixel.
    rows, columns = source_height + 2 * _MCU_SIDE + taps, source_width + 2 * _MCU_SIDE + taps
    return Scratch(
        capacity=np.array(source, np.int64),
        frame=np.zeros(FRAME_SIZE, np.int64),
        tables=allocate_tables(),
        cursor=np.zeros(CURSOR_FIELDS, np.int64),
        entries=np.zeros(MAX_INTERVALS * ENTRY_BYTES, np.uint8),
        scan=np.zeros(source_bytes + PADDING + OVERRUN, np.uint8),
        coefficients=aligned(96, np.int16),
        scan_places=SCAN_PLACES.copy(),
        blocks=np.zeros((MAX_BLOCKS, BLOCK_FIELDS), np.int64),
        predictors=np.zeros(3, np.int64),
        strips=aligned(2 * columns * 16, np.uint16).reshape(2, -1),
        views=np.zeros((views, VIEW_FIELDS), np.int64),
        planes=np.zeros((views, 3, rows * width), np.uint16),
        first=np.zeros((views, 4, padded), np.int32),
        words=np.zeros((views, 4, padded, taps), np.int32),
        row=np.zeros(taps, np.float64),
        pixels=np.zeros(3 * width + _SLACK, np.uint8),
        source_row=np.zeros(3 * columns + _SLACK, np.uint8),
        lane_words=np.zeros(padded * 4 * (taps + 2), np.uint16),
        staging=np.zeros((views, 3 * staging[0] * staging[1] + _SLACK), np.uint8),
        colors=ColorScratch(
            steps=np.zeros((MAX_COLOR_STEPS, STEP_FIELDS), np.int16),
            tables=np.zeros((MAX_COLOR_STEPS, TABLE_SIZE), np.uint8),
            planes=np.zeros(3 * max(staging[1], GROUP) if staging[1] else 0, np.int32),
        ),
    )
