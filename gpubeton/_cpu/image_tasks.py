"""Image tasks: a task is one stored image, a view is one output of it with its crop; and the memory to make them in.

A worker makes all views of an image in one pass over its compressed bits. The crop decoder gives each view the same
bits as if it were alone. libjpeg-turbo, if the crop decoder refuses the image, decodes it once for all views, and
rounds some values differently by one or two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from gpubeton._batch.step_code import image_nbytes, memory_nbytes
from gpubeton._batch.step_rows import MAX_STEPS
from gpubeton._compile.compile import device_function
from gpubeton._cpu.color_simd import GROUP, STEP_FIELDS, TABLE_SIZE, ColorScratch
from gpubeton._cpu.epilogue import IS_GRAY, NUM_STEPS, Outputs
from gpubeton._cpu.jpeg.huffman import (
    BLOCK_FIELDS,
    CURSOR_FIELDS,
    ENTRY_BYTES,
    MAX_BLOCKS,
    OVERRUN,
    PADDING,
    Tables,
    allocate_tables,
)
from gpubeton._cpu.jpeg.markers import FRAME_SIZE, SCAN_PLACES
from gpubeton._cpu.taps import most_taps
from gpubeton.format.layout import MAX_INTERVALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton._compile.intrinsics import Array
    from gpubeton._plan.program import ImageProgram

# Columns of a task, int64: an image to be made.
ADDRESS = 0
SIZE = 1
IMAGE_HEIGHT = 2  # from the file's metadata
IMAGE_WIDTH = 3
MODE = 4
PROGRAM = 5
TARGET = 6  # address of the output image; 0: nothing to do
NEXT_VIEW = 7  # next image of the batch with the same stored image; 0: none
IS_LATER_VIEW = 8  # 1: it is made together with an earlier task
ENTRIES = 9  # address of the JPEG's entry points, see `gpubeton.format.entry_points`
NUM_ENTRIES = 10  # 0: none; -1: they do not fit the JPEG
SEAL = 11  # of the JPEG and its entry points, see `jpeg.intervals.seal_of`
CHECKSUM = 12  # CRC-32 that the bytes are compared with; 0: none
TASK_FIELDS = 13

# MODE: the format of the bytes at ADDRESS. The first two are the file format's, of RGB images.
JPEG = 0
RAW = 1
RAW_OTHER = 2  # raw pixels of another kind, see `other_kinds`
PACKED = 3  # a file that Python decodes into RAW or RAW_OTHER

# Columns of a view, int64; the first nine are those of a row of draws.
VIEW_TOP = 0  # the crop, in source pixels
VIEW_LEFT = 1
VIEW_HEIGHT = 2
VIEW_WIDTH = 3
VIEW_FLIP = 4
VIEW_SHIFT_Y = 5  # in output pixels
VIEW_SHIFT_X = 6
VIEW_RESIZED_HEIGHT = 7  # what the crop is resized to: the output, or less if it is padded
VIEW_RESIZED_WIDTH = 8
VIEW_IMAGE = 9  # its number in the batch
VIEW_PROGRAM = 10
VIEW_TARGET = 11  # address of the output image, or of its u8 staging image
FIRST_ROW = 12  # the MCUs that it needs
LAST_ROW = 13
FIRST_COLUMN = 14
LAST_COLUMN = 15
TAPS = 16  # four, see `taps.TapCounts`
EMITTED = 20  # output rows that are written
VIEW_FIELDS = 21

# Top, left, height and width of a crop in source pixels; whether the result is mirrored; its shift down and across in
# output pixels; the height and width that it is resized to.
Box: TypeAlias = tuple[int, int, int, int, bool, int, int, int, int]


@device_function
def box_of(view: Array) -> Box:
    """Return the crop and the placement of a view."""
    return (
        view[VIEW_TOP],
        view[VIEW_LEFT],
        view[VIEW_HEIGHT],
        view[VIEW_WIDTH],
        view[VIEW_FLIP] != 0,
        view[VIEW_SHIFT_Y],
        view[VIEW_SHIFT_X],
        view[VIEW_RESIZED_HEIGHT],
        view[VIEW_RESIZED_WIDTH],
    )


@device_function
def needs_staging(settings: Array) -> bool:
    """Return True if levels come first: for steps, and for gray, which is made of three channels."""
    return bool(settings[NUM_STEPS] > 0 or settings[IS_GRAY] != 0)


@device_function
def epilogue_of(view: Array, outputs: Outputs) -> tuple[Array, Array, Array]:
    """Return how a view's resampled pixels are stored: settings, factors and table, see `epilogue.store_row`."""
    program = view[VIEW_PROGRAM]
    settings = outputs.staging if needs_staging(outputs.settings[program]) else outputs.settings
    return settings[program], outputs.factors[program], outputs.tables[program]


@device_function
def next_stretch(
    views: Array,  # (V, VIEW_FIELDS) int64
    count: int,  # how many of them are in use
    row: int,
    column: int,
) -> tuple[int, int]:
    """Return the first and last + 1 of the next adjacent MCUs of a row, from `column` on, that some view needs."""
    # They are equal if there are none.
    begin, end = 0, 0
    for i in range(count):
        is_left = end == 0 or views[i, FIRST_COLUMN] < begin
        if is_left and views[i, FIRST_ROW] <= row < views[i, LAST_ROW] and views[i, LAST_COLUMN] > column:
            begin, end = views[i, FIRST_COLUMN], views[i, LAST_COLUMN]
    grows = end > 0
    while grows:
        grows = False
        for i in range(count):
            is_in_row = views[i, FIRST_ROW] <= row < views[i, LAST_ROW]
            if is_in_row and views[i, FIRST_COLUMN] <= end < views[i, LAST_COLUMN]:
                end = views[i, LAST_COLUMN]
                grows = True
    return begin, end


# --- memory -----------------------------------------------------------------------------------------------------------

# Whole vectors are written: rows have this many bytes more than their pixels need.
_SLACK = 64
_MCU_SIDE = 16


class Scratch(NamedTuple):
    """One worker's memory; only one thread may use it at a time."""

    capacity: Array  # (3,) int64: the largest height, width and size of a JPEG in bytes that fit
    frame: Array  # (FRAME_SIZE,) int64: headers, see `jpeg.markers`
    tables: Tables
    cursor: Array  # (CURSOR_FIELDS,) int64: see `jpeg.huffman`
    entries: Array  # uint8: an ENTRY_DTYPE for each restart interval
    scan: Array  # uint8: an interval without byte stuffing
    coefficients: Array  # (96,) int16, aligned: one block, and room for values past its end
    scan_places: Array  # (256,) uint8: `jpeg.markers.SCAN_PLACES`
    blocks: Array  # (MAX_BLOCKS, BLOCK_FIELDS) int64: see `jpeg.huffman`
    predictors: Array  # (3,) int64
    strips: Array  # (2, n) uint16, aligned: luma, and Cb next to Cr
    views: Array  # (V, VIEW_FIELDS) int64: see above
    planes: Array  # (V, 3, n) uint16: horizontally resampled Y, Cb, Cr of each view
    first: Array  # (V, 4, padded side) int32: taps of luma and chroma, across and down
    words: Array  # (V, 4, padded side, taps) int32
    row: Array  # (taps,) float64
    pixels: Array  # uint8: one output row of RGB
    source_row: Array  # uint8: one source row of RGB, vertically resampled
    lane_words: Array  # uint16: weights of a raw image's taps, repeated for each SIMD lane
    staging: Array  # (V, n) uint8: output images before their steps
    colors: ColorScratch
    steps: StepScratch


class StepScratch(NamedTuple):
    """One worker's memory for steps, see `gpubeton._batch.step_code`."""

    other: Array  # uint8: an image
    memory: Array  # uint8


def aligned(size: int, dtype: Any) -> Array:
    """Allocate an array whose address is a multiple of 64."""
    item = np.dtype(dtype).itemsize
    memory = np.zeros(size * item + 64, np.uint8)
    offset = -memory.ctypes.data % 64
    return memory[offset : offset + size * item].view(dtype)


def allocate(
    source: tuple[int, int, int],  # largest height and width of any image, and size of the largest JPEG in bytes
    output: tuple[int, int],  # largest height and width of any output
    scale: float,  # largest `ImageProgram.largest_scale`: it limits the number of taps
    staging: tuple[int, int] = (0, 0),  # largest height and width of an output that needs a u8 staging image
    views: int = 1,  # most outputs of one stored image; memory that is not used is never touched
    steps: StepScratch | None = None,
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
        staging=np.zeros((views, image_nbytes(*staging, 3, 1)), np.uint8),
        colors=ColorScratch(
            steps=np.zeros((MAX_STEPS, STEP_FIELDS), np.int16),
            tables=np.zeros((MAX_STEPS, TABLE_SIZE), np.uint8),
            planes=np.zeros(3 * max(staging[1], GROUP) if staging[1] else 0, np.int32),
        ),
        steps=steps or allocate_steps([]),
    )


def allocate_steps(programs: Sequence[ImageProgram]) -> StepScratch:
    """Allocate one worker's memory for the steps of some programs."""
    other = memory = 0
    for program in programs:
        if program.steps:
            size = program.height, program.width, program.kind.channels
            other = max(other, image_nbytes(*size, program.kind.dtype.itemsize))
            memory = max(memory, memory_nbytes(*size, program.kinds))
    return StepScratch(aligned(other, np.uint8), aligned(memory, np.uint8))
