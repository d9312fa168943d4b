"""One image that lies in memory, of any number of channels and of 8 or 16 bits: its crop, resampled and finished.

Colours of RGBA images are resampled as Pillow does it: times alpha, and divided by the resampled alpha, so that what
nobody sees does not show at the edges. A pixel that is wholly transparent is black then; where every output pixel is
one stored pixel (no resizing, or the nearest one), all four numbers stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton.cpu.compile import stage
from gpubeton.cpu.image import ADDRESS, IMAGE_HEIGHT, IMAGE_WIDTH, PROGRAM, SIZE, TARGET
from gpubeton.cpu.jpeg.codes import OK, WRONG_CROP, WRONG_SIZE
from gpubeton.cpu.memory import load_u8, load_u16, store_i16, store_u8
from gpubeton.cpu.plain.output import (
    CHANNELS,
    FILLS,
    HEIGHT,
    INTERPOLATION,
    ITEM_SIZE,
    MAX_LEVEL,
    SOURCE_SIZE,
    TABLE,
    WIDTH,
    PlainOutputs,
)
from gpubeton.cpu.plain.rows import (
    LANES,
    sum_across,
    sum_down_8,
    sum_down_16,
    sum_opaque_down_8,
    sum_opaque_down_16,
)
from gpubeton.cpu.taps import effective, ideal, resized_index
from gpubeton.plan.draws import DRAW_COLUMNS, FLIP, LEFT, NUM_PAINTS, PAINT_COLUMNS, SHIFT_X, SHIFT_Y, TOP
from gpubeton.plan.draws import HEIGHT as CROP_HEIGHT
from gpubeton.plan.draws import WIDTH as CROP_WIDTH

if TYPE_CHECKING:
    from gpubeton.cpu.plain.scratch import PlainScratch
    from gpubeton.cpu.types import Array


@stage
def _fill_axis(
    rule: int, size: int, output: int, shift: int, flip: bool, first: Array, counts: Array, weights: Array, row: Array
) -> int:
    """Compute the weights of one side; return the largest number of source pixels of an output pixel."""
    most = 0
    for i in range(output):
        begin, count = ideal(rule, resized_index(i, output, shift, flip), size, output, row)
        # So that what is not resized at all is seen to be one pixel of one.
        while count > 1 and row[count - 1] == 0:
            count -= 1
        first[i], counts[i] = begin, count
        for k in range(count):
            weights[i, k] = row[k]
        most = max(most, count)
    return most


@stage
def _sum_down(
    source: int, stride: int, size: int, weights: Array, count: int, values: int, blends: bool, line: Array
) -> None:
    """Sum `count` rows of `values` numbers into `line`."""
    address, own = line.ctypes.data, weights.ctypes.data
    if blends:
        if size == 1:
            sum_opaque_down_8(address, source, stride, own, count, values // 4)
        else:
            sum_opaque_down_16(address, source, stride, own, count, values // 4)
        return
    chunks = values // LANES
    if size == 1:
        sum_down_8(address, source, stride, own, count, chunks)
    else:
        sum_down_16(address, source, stride, own, count, chunks)
    for i in range(chunks * LANES, values):
        total = np.float32(0)
        for k in range(count):
            at = source + k * stride + i * size
            value = load_u8(at) if size == 1 else load_u16(at)
            total += weights[k] * value
        line[i] = total


@stage
def _sum_across_gray(pixels: Array, line: Array, first: Array, counts: Array, weights: Array, columns: int) -> None:
    for x in range(columns):
        total = np.float32(0)
        for k in range(counts[x]):
            total += line[first[x] + k] * weights[x, k]
        pixels[x] = total


@stage
def _store(address: int, size: int, bits: int) -> None:
    if size == 1:
        store_u8(address, bits)
        return
    store_i16(address, bits)
    if size == 4:
        store_i16(address + 2, bits >> 16)


@stage
def _finish(pixels: Array, target: int, output: Array, tables: Array, blends: bool) -> None:
    """Round one row to levels, and write what the network reads."""
    channels, size, begin, most = output[CHANNELS], output[ITEM_SIZE], output[TABLE], output[MAX_LEVEL]
    for x in range(output[WIDTH]):
        opacity = pixels[x * channels + channels - 1]
        for c in range(channels):
            value = pixels[x * channels + c]
            if blends and c < channels - 1:
                value = value / opacity if opacity > 0 else np.float32(0)
            level = min(max(int(value + 0.5), 0), most)
            bits = level if begin < 0 else tables[begin + level, c]
            _store(target + (x * channels + c) * size, size, bits)


@stage
def _paint(draw: Array, output: Array, outputs: PlainOutputs, target: int) -> None:
    """Fill the rectangles, in order; see `gpubeton.cpu.paint`."""
    channels, size, begin = output[CHANNELS], output[ITEM_SIZE], output[TABLE]
    height, width = output[HEIGHT], output[WIDTH]
    for i in range(draw[NUM_PAINTS]):
        column = DRAW_COLUMNS + i * PAINT_COLUMNS
        top, left = max(draw[column], 0), max(draw[column + 1], 0)
        bottom, right = min(draw[column + 2], height), min(draw[column + 3], width)
        fill = outputs.fills[output[FILLS] + draw[column + 4]]
        for y in range(top, bottom):
            for x in range(left, right):
                for c in range(channels):
                    bits = fill[c] if begin < 0 else outputs.tables[begin + fill[c], c]
                    _store(target + ((y * width + x) * channels + c) * size, size, bits)


@stage
def make_plain(task: Array, draw: Array, outputs: PlainOutputs, scratch: PlainScratch) -> int:
    """Make one output image.

    Parameters
    ----------
    task : ndarray of int64, shape (TASK_FIELDS,)
        See `gpubeton.cpu.image`.
    draw : ndarray of int32
        The image's crop, flip, shift and paints, see `gpubeton.plan.draws`.
    outputs : PlainOutputs
        What each program wants.
    scratch : PlainScratch
        The worker's memory.

    Returns
    -------
    int
        OK, WRONG_CROP or WRONG_SIZE; the output image is complete if it is OK, and of no value otherwise.
    """
    output = outputs.settings[task[PROGRAM]]
    image_height, image_width = task[IMAGE_HEIGHT], task[IMAGE_WIDTH]
    top, left, height, width = draw[TOP], draw[LEFT], draw[CROP_HEIGHT], draw[CROP_WIDTH]
    if top < 0 or left < 0 or height < 1 or width < 1 or top + height > image_height or left + width > image_width:
        return WRONG_CROP
    channels, size = output[CHANNELS], output[SOURCE_SIZE]
    stride = image_width * channels * size
    if task[SIZE] != image_height * stride:
        return WRONG_SIZE
    rows, columns = output[HEIGHT], output[WIDTH]
    rule = effective(output[INTERPOLATION], height, width, rows, columns)
    first, counts, weights = scratch.first, scratch.counts, scratch.weights
    across = _fill_axis(
        rule, width, columns, draw[SHIFT_X], draw[FLIP] != 0, first[0], counts[0], weights[0], scratch.row
    )
    down = _fill_axis(rule, height, rows, draw[SHIFT_Y], False, first[1], counts[1], weights[1], scratch.row)
    blends = channels == 4 and (across > 1 or down > 1)
    crop = task[ADDRESS] + top * stride + left * channels * size
    line, pixels = scratch.line, scratch.pixels
    for y in range(rows):
        source = crop + first[1, y] * stride
        _sum_down(source, stride, size, weights[1, y], counts[1, y], width * channels, blends, line)
        if channels == 1:
            _sum_across_gray(pixels, line, first[0], counts[0], weights[0], columns)
        else:
            sum_across(
                pixels.ctypes.data,
                line.ctypes.data,
                first[0].ctypes.data,
                counts[0].ctypes.data,
                weights[0].ctypes.data,
                weights.strides[1],
                columns,
                channels,
            )
        target = task[TARGET] + y * columns * channels * output[ITEM_SIZE]
        _finish(pixels, target, output, outputs.tables, blends)
    _paint(draw, output, outputs, task[TARGET])
    return OK
