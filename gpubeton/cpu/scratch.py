"""The memory that one worker needs to decode, sized once for the largest image of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton.cpu.colour_vectors import GROUP, LEVELS, STEP_FIELDS
from gpubeton.cpu.colours import ColourMemory
from gpubeton.cpu.jpeg.entropy import BLOCK_FIELDS, MAX_BLOCKS
from gpubeton.cpu.jpeg.markers import FRAME_SIZE, ZIGZAG
from gpubeton.cpu.jpeg.scan import OVERRUN, PADDING
from gpubeton.cpu.jpeg.tables import Tables, allocate_tables
from gpubeton.cpu.taps import most_taps
from gpubeton.cpu.views import VIEW_FIELDS
from gpubeton.plan.program import MAX_COLOUR_STEPS

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array

# Vectors are written whole: rows are this much longer than their pixels need.
_SLACK = 64
_MCU_SIDE = 16
# Restart intervals kept track of: one for each MCU row of the largest image that JPEG knows.
_MAX_INTERVALS = 8192


class Scratch(NamedTuple):
    """One worker's working memory."""

    capacity: Array  # int64 (2,): longest side in pixels and largest JPEG in bytes that it is for
    frame: Array  # int64 (FRAME_SIZE,): headers
    tables: Tables
    scan: Array  # uint8: the scan without stuffing
    starts: Array  # int64: restart intervals in it
    ends: Array
    coefficients: Array  # int16 (96,), aligned: one block and a place behind it
    zigzag: Array
    blocks: Array  # int64 (MAX_BLOCKS, BLOCK_FIELDS): see `jpeg.entropy`
    predictors: Array  # int64 (3,)
    strips: Array  # uint16 (2, n), aligned: luma, and Cb beside Cr
    views: Array  # int64 (V, VIEW_FIELDS): see `views`
    planes: Array  # uint16 (V, 3, n): horizontally resampled Y, Cb, Cr of each view
    first: Array  # int32 (V, 4, padded side): taps of luma and chroma, across and down
    words: Array  # uint32 (V, 4, padded side, taps)
    row: Array  # float64 (taps,)
    pixels: Array  # uint8: one output row of RGB
    source_row: Array  # uint8: one source row of RGB, vertically resampled
    lane_words: Array  # uint16: weights of a raw image's taps, one for each vector lane
    levels: Array  # uint8 (V, n): output images whose colours are still to be changed
    colours: ColourMemory


def aligned(size: int, dtype: Any, alignment: int = 64) -> Array:
    """Return an uninitialised array whose first byte lies at a multiple of `alignment`."""
    item = np.dtype(dtype).itemsize
    memory = np.zeros(size * item + alignment, np.uint8)
    offset = -memory.ctypes.data % alignment
    return memory[offset : offset + size * item].view(dtype)


def allocate(
    source_side: int,
    source_bytes: int,
    output_height: int,
    output_width: int,
    narrowest: int,
    coloured: tuple[int, int] = (0, 0),
    views: int = 1,
) -> Scratch:
    """Allocate one worker's memory.

    Parameters
    ----------
    source_side : int
        Longest side of any image, in pixels.
    source_bytes : int
        Size of the largest JPEG.
    output_height, output_width : int
        Largest output.
    narrowest : int
        Shortest output side of any program: it decides how many taps there may be.
    coloured : tuple of int
        Largest height and width of an output whose colours are changed.
    views : int
        Most outputs that are made of one stored image. Memory that is not used is never touched.

    Returns
    -------
    Scratch
        Memory that only one thread may use at a time.
    """
    padded = -(-max(output_height, output_width) // _MCU_SIDE) * _MCU_SIDE
    width = -(-output_width // _MCU_SIDE) * _MCU_SIDE
    taps = most_taps(source_side, narrowest)
    side = source_side + 2 * _MCU_SIDE
    rows = side + taps
    return Scratch(
        capacity=np.array([source_side, source_bytes], np.int64),
        frame=np.zeros(FRAME_SIZE, np.int64),
        tables=allocate_tables(),
        scan=np.zeros(source_bytes + PADDING * _MAX_INTERVALS + 2 * OVERRUN, np.uint8),
        starts=np.zeros(_MAX_INTERVALS, np.int64),
        ends=np.zeros(_MAX_INTERVALS, np.int64),
        coefficients=aligned(96, np.int16),
        zigzag=ZIGZAG.copy(),
        blocks=np.zeros((MAX_BLOCKS, BLOCK_FIELDS), np.int64),
        predictors=np.zeros(3, np.int64),
        strips=aligned(2 * (side + taps) * 16, np.uint16).reshape(2, -1),
        views=np.zeros((views, VIEW_FIELDS), np.int64),
        planes=np.zeros((views, 3, rows * width), np.uint16),
        first=np.zeros((views, 4, padded), np.int32),
        words=np.zeros((views, 4, padded, taps), np.uint32),
        row=np.zeros(taps, np.float64),
        pixels=np.zeros(3 * width + _SLACK, np.uint8),
        source_row=np.zeros(3 * (side + taps) + _SLACK, np.uint8),
        lane_words=np.zeros(padded * 4 * (taps + 2), np.uint16),
        levels=np.zeros((views, 3 * coloured[0] * coloured[1] + _SLACK), np.uint8),
        colours=ColourMemory(
            rows=np.zeros((MAX_COLOUR_STEPS, STEP_FIELDS), np.int16),
            tables=np.zeros((MAX_COLOUR_STEPS, LEVELS), np.uint8),
            line=np.zeros(3 * max(coloured[1], GROUP) if coloured[1] else 0, np.int32),
        ),
    )
