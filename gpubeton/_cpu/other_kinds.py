"""Images that are not 8-bit RGB (gray, RGBA, 16 bits): one simple kernel resamples and stores them all.

It computes in single precision: an output value is the exact weighted mean, rounded, except for sums within a few
millionths of a half. RGBA colors are resampled as Pillow does it: times alpha, then divided by the resampled alpha, so
that invisible pixels do not show at edges. A fully transparent pixel becomes black. If every output pixel is one stored
pixel (no resizing, or nearest), all four values stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton._batch.step_code import carry_out
from gpubeton._batch.step_rows import STEP_COLUMNS
from gpubeton._compile.compile import device_function
from gpubeton._compile.intrinsics import copy, load_u8, load_u16
from gpubeton._compile.simd import F32, I8, I16, I32, I64, Vector, VectorBuilder, vector_kernel
from gpubeton._cpu.epilogue import (
    CHANNELS,
    FIRST_STEP,
    INTERPOLATION,
    ITEM_SIZE,
    MAX_CHANNELS,
    MAX_VALUE,
    NUM_STEPS,
    OUT_HEIGHT,
    OUT_WIDTH,
    SOURCE_SIZE,
    TABLE_ROW,
    Outputs,
    fill_rects,
    store_bits,
)
from gpubeton._cpu.image_tasks import ADDRESS, IMAGE_HEIGHT, IMAGE_WIDTH, PROGRAM, SIZE, TARGET, allocate_steps
from gpubeton._cpu.jpeg.codes import OK, WRONG_CROP, WRONG_SIZE
from gpubeton._cpu.taps import BICUBIC, effective, ideal, most_taps, resized_index
from gpubeton._plan.draw_rows import (
    FLIP,
    HEIGHT,
    LEFT,
    RESIZED_HEIGHT,
    RESIZED_WIDTH,
    SHIFT_X,
    SHIFT_Y,
    TOP,
    WIDTH,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpubeton._compile.intrinsics import Array
    from gpubeton._cpu.image_tasks import StepScratch
    from gpubeton._plan.program import ImageProgram

# Values of a row that are summed at a time, and of a pixel, of any number of channels.
_LANES = 16
_PIXEL = 4
# Four values are written at a time: rows have this many more than their pixels need.
_SLACK = 16


class OtherKindsScratch(NamedTuple):
    """One worker's memory; only one thread may use it at a time."""

    capacity: Array  # (3,) int64: the largest height and width that fit; the size is not limited, see `Scratch`
    first: Array  # (2, outputs) int32: first source pixel of each output pixel, across and down
    counts: Array  # (2, outputs) int32: number of source pixels
    weights: Array  # (2, outputs, taps) float32
    row: Array  # (taps,) float64
    line: Array  # float32: one source row, vertically resampled
    pixels: Array  # float32: one output row
    staging: Array  # uint8: an output image before its steps
    steps: StepScratch


def allocate_other_kinds(
    height: int,  # of the largest images, in pixels
    width: int,
    programs: Sequence[ImageProgram],
) -> OtherKindsScratch:
    """Allocate one worker's memory."""
    sides = [side for program in programs for side in (program.height, program.width)]
    taps = most_taps(max(program.largest_scale(height, width) for program in programs))
    steps = allocate_steps(programs)
    return OtherKindsScratch(
        capacity=np.array([height, width, np.iinfo(np.int64).max], np.int64),
        first=np.zeros((2, max(sides)), np.int32),
        counts=np.zeros((2, max(sides)), np.int32),
        weights=np.zeros((2, max(sides), taps), np.float32),
        row=np.zeros(taps, np.float64),
        line=np.zeros(width * MAX_CHANNELS + _SLACK, np.float32),
        pixels=np.zeros(max(sides) * MAX_CHANNELS + _SLACK, np.float32),
        staging=np.zeros_like(steps.other),
        steps=steps,
    )


# --- weighted sums in SIMD --------------------------------------------------------------------------------------------


def _weight(emit: VectorBuilder, address: Vector, lanes: int) -> Vector:
    return emit.splat(emit.load(address, F32, align=4), lanes)


def _sum_down_of(element: Any) -> Callable[..., int]:
    """Make a kernel that sums rows of integers, each times its weight."""
    size = element.width // 8

    @vector_kernel
    def sum_down(
        emit: VectorBuilder,
        line: Vector,  # address of (chunks * _LANES,) float32, written
        source: Vector,  # address of the first row
        stride: Vector,  # bytes from one row to the next
        weights: Vector,  # address of (taps,) float32
        taps: Vector,
        chunks: Vector,
    ) -> None:
        with emit.loop(chunks) as chunk:
            start = source + chunk * (_LANES * size)
            running = emit.variable(emit.fill(F32, _LANES, 0.0))
            with emit.loop(taps) as tap:
                values = emit.load(start + stride * tap, element, _LANES).zero_extend(I32).to_float()
                running.set(running.get() + values * _weight(emit, weights + tap * 4, _LANES))
            emit.store(running.get(), line + chunk * (4 * _LANES))

    return sum_down


def _sum_opaque_down_of(element: Any) -> Callable[..., int]:
    """Make a kernel that sums rows of `width` RGBA pixels, colors times alpha."""
    size = element.width // 8

    @vector_kernel
    def sum_opaque_down(
        emit: VectorBuilder, line: Vector, source: Vector, stride: Vector, weights: Vector, taps: Vector, width: Vector
    ) -> None:
        with emit.loop(width) as x:
            start = source + x * (_PIXEL * size)
            running = emit.variable(emit.fill(F32, _PIXEL, 0.0))
            with emit.loop(taps) as tap:
                values = emit.load(start + stride * tap, element, _PIXEL).zero_extend(I32).to_float()
                # Colors times alpha, and alpha itself.
                opacity = values.shuffle(values.like(1.0), [3, 3, 3, 4])
                running.set(running.get() + values * opacity * _weight(emit, weights + tap * 4, _PIXEL))
            emit.store(running.get(), line + x * (4 * _PIXEL))

    return sum_opaque_down


_sum_down_8, _sum_down_16 = _sum_down_of(I8), _sum_down_of(I16)
_sum_opaque_down_8, _sum_opaque_down_16 = _sum_opaque_down_of(I8), _sum_opaque_down_of(I16)


@vector_kernel
def _sum_across(
    emit: VectorBuilder,
    pixels: Vector,  # address of (columns, channels) float32 and 3 more, written; 4 per pixel, the next overwrites
    line: Vector,  # address of (n, channels) float32 and 3 more: the source row
    first: Vector,  # address of (columns,) int32: first source pixel of each output pixel
    counts: Vector,  # address of (columns,) int32: number of source pixels
    weights: Vector,  # address of float32
    weight_stride: Vector,  # bytes from one output pixel's weights to the next's
    columns: Vector,
    channels: Vector,  # at most four
) -> None:
    """Sum pixels of a row, each times its weight."""
    with emit.loop(columns) as x:
        begin = emit.load(first + x * 4, I32, align=4).sign_extend(I64)
        start = line + begin * channels * 4
        tap_weights = weights + x * weight_stride
        running = emit.variable(emit.fill(F32, _PIXEL, 0.0))
        with emit.loop(emit.load(counts + x * 4, I32, align=4).sign_extend(I64)) as tap:
            values = emit.load(start + tap * channels * 4, F32, _PIXEL)
            running.set(running.get() + values * _weight(emit, tap_weights + tap * 4, _PIXEL))
        emit.store(running.get(), pixels + x * channels * 4)


# --- an image ---------------------------------------------------------------------------------------------------------


@device_function
def _fill_axis(
    rule: int,
    size: int,
    output: int,
    resized: int,
    shift: int,
    flip: bool,
    first: Array,
    counts: Array,
    weights: Array,
    row: Array,
) -> int:
    """Compute the weights of one side; return the largest number of source pixels of an output pixel."""
    most = 0
    for i in range(output):
        begin, count = ideal(rule, resized_index(i, output, resized, shift, flip), size, resized, row)
        # Without resizing, one tap is left: `make_other_kind` depends on it.
        while count > 1 and row[count - 1] == 0:
            count -= 1
        first[i], counts[i] = begin, count
        for k in range(count):
            weights[i, k] = row[k]
        most = max(most, count)
    return most


@device_function
def _sum_down(
    source: int, stride: int, size: int, weights: Array, count: int, values: int, blends: bool, line: Array
) -> None:
    """Sum `count` rows of `values` values into `line`."""
    address, tap_weights = line.ctypes.data, weights.ctypes.data
    if blends:
        if size == 1:
            _sum_opaque_down_8(address, source, stride, tap_weights, count, values // 4)
        else:
            _sum_opaque_down_16(address, source, stride, tap_weights, count, values // 4)
        return
    chunks = values // _LANES
    if size == 1:
        _sum_down_8(address, source, stride, tap_weights, count, chunks)
    else:
        _sum_down_16(address, source, stride, tap_weights, count, chunks)
    for i in range(chunks * _LANES, values):
        total = np.float32(0)
        for k in range(count):
            at = source + k * stride + i * size
            value = load_u8(at) if size == 1 else load_u16(at)
            total += weights[k] * value
        line[i] = total


@device_function
def _sum_across_gray(pixels: Array, line: Array, first: Array, counts: Array, weights: Array, columns: int) -> None:
    for x in range(columns):
        total = np.float32(0)
        for k in range(counts[x]):
            total += line[first[x] + k] * weights[x, k]
        pixels[x] = total


@device_function
def _limit(line: Array, values: int, most: int, blends: bool) -> None:
    """Limit sums with negative weights to the levels, as Pillow does in both directions; colors may be times alpha."""
    for i in range(values):
        limit = np.float32(most * most if blends and i & 3 != 3 else most)
        line[i] = min(max(line[i], np.float32(0)), limit)


@device_function
def _store_row(pixels: Array, target: int, output: Array, tables: Array, blends: bool) -> None:
    """Round one row, look its output values up, and store them."""
    channels, size, begin, most = output[CHANNELS], output[ITEM_SIZE], output[TABLE_ROW], output[MAX_VALUE]
    for x in range(output[OUT_WIDTH]):
        opacity = pixels[x * channels + channels - 1]
        for c in range(channels):
            value = pixels[x * channels + c]
            if blends and c < channels - 1:
                value = value / opacity if opacity > 0 else np.float32(0)
            rounded = min(max(int(value + 0.5), 0), most)
            bits = rounded if begin < 0 else tables[begin + rounded, c]
            store_bits(target + (x * channels + c) * size, size, bits)


@device_function
def finish_levels(rows: Array, program: int, image: int, target: int, outputs: Outputs, steps: StepScratch) -> None:
    """Carry out the steps of an image that is not RGB; look its output values up, and store them."""
    output, layout, tables = outputs.settings[program], outputs.layouts[program].ctypes.data, outputs.other_tables
    other, memory = steps.other.ctypes.data, steps.memory.ctypes.data
    levels = carry_out(rows, 0, output[NUM_STEPS], outputs.step_addresses, image, other, memory, layout)
    channels, size, begin = output[CHANNELS], output[ITEM_SIZE], output[TABLE_ROW]
    count = output[OUT_HEIGHT] * output[OUT_WIDTH] * channels
    if begin < 0:
        copy(target, levels, count * size)
        return
    for i in range(count):
        level = load_u8(levels + i) if output[SOURCE_SIZE] == 1 else load_u16(levels + 2 * i)
        store_bits(target + i * size, size, tables[begin + level, i % channels])


@device_function
def make_other_kind(
    task: Array,  # (TASK_FIELDS,) int64: see `image_tasks`
    draw: Array,  # int32: see `gpubeton._plan.draw_rows`
    outputs: Outputs,
    scratch: OtherKindsScratch,
) -> int:
    """Make one output image; return OK, WRONG_CROP or WRONG_SIZE. Only with OK the image is complete."""
    program = task[PROGRAM]
    output, target = outputs.settings[program], task[TARGET]
    rows = draw[output[FIRST_STEP] : output[FIRST_STEP] + STEP_COLUMNS * output[NUM_STEPS]]
    if output[NUM_STEPS] > 0:
        output, target = outputs.staging[program], scratch.staging.ctypes.data
    image_height, image_width = task[IMAGE_HEIGHT], task[IMAGE_WIDTH]
    top, left, height, width = draw[TOP], draw[LEFT], draw[HEIGHT], draw[WIDTH]
    if top < 0 or left < 0 or height < 1 or width < 1 or top + height > image_height or left + width > image_width:
        return WRONG_CROP
    channels, size = output[CHANNELS], output[SOURCE_SIZE]
    stride = image_width * channels * size
    if task[SIZE] != image_height * stride:
        return WRONG_SIZE
    lines, columns = output[OUT_HEIGHT], output[OUT_WIDTH]
    resized_height, resized_width = draw[RESIZED_HEIGHT] or lines, draw[RESIZED_WIDTH] or columns
    rule = effective(output[INTERPOLATION], height, width, resized_height, resized_width)
    first, counts, weights = scratch.first, scratch.counts, scratch.weights
    flip, row = draw[FLIP] != 0, scratch.row
    across = _fill_axis(rule, width, columns, resized_width, draw[SHIFT_X], flip, first[0], counts[0], weights[0], row)
    down = _fill_axis(rule, height, lines, resized_height, draw[SHIFT_Y], False, first[1], counts[1], weights[1], row)
    blends = channels == 4 and (across > 1 or down > 1)
    crop = task[ADDRESS] + top * stride + left * channels * size
    line, pixels = scratch.line, scratch.pixels
    for y in range(lines):
        source = crop + first[1, y] * stride
        _sum_down(source, stride, size, weights[1, y], counts[1, y], width * channels, blends, line)
        if rule == BICUBIC:
            _limit(line, width * channels, output[MAX_VALUE], blends)
        if channels == 1:
            _sum_across_gray(pixels, line, first[0], counts[0], weights[0], columns)
        else:
            _sum_across(
                pixels.ctypes.data,
                line.ctypes.data,
                first[0].ctypes.data,
                counts[0].ctypes.data,
                weights[0].ctypes.data,
                weights.strides[1],
                columns,
                channels,
            )
        if rule == BICUBIC:
            _limit(pixels, columns * channels, output[MAX_VALUE], blends)
        place = target + y * columns * channels * output[ITEM_SIZE]
        _store_row(pixels, place, output, outputs.other_tables, blends)
    fill_rects(draw, output, outputs.fills, target)
    if target != task[TARGET]:
        finish_levels(rows, program, target, task[TARGET], outputs, scratch.steps)
    return OK
