"""Steps that mix a pixel with those around it: SHARPNESS and BLUR. For uint8 images.

The sharpened image is ``factor * level + (1 - factor) * mean``, rounded down; the mean is that of 3 x 3 pixels, the
middle one counted five times, and rounded. The border stays.

A blur's weights are less than 1 and sum to 1. Rows are blurred first and kept in units of 2**-7 of a level, then
columns: it is within 0.004 of a level of the exact sum before it is rounded. The image is mirrored at its border.
"""

from __future__ import annotations

from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.step_code import CHANNELS, HEIGHT, LAYOUT_FIELDS, WIDTH
from gpubeton._batch.step_rows import BLUR, PARAMETERS, SHARPNESS, SPAN, STEP_COLUMNS
from gpubeton._compile.compile import AddressedFunction, device_function
from gpubeton._compile.intrinsics import clear, copy, i32_at, i64_at, u8_at, u16_at
from gpubeton._compile.simd import HAS_AVX512, I8, I16, I32, Vector, VectorBuilder, vector_kernel

_LANES = 16 if HAS_AVX512 else 8
_BLOCK = 4 * _LANES  # levels that are blurred at a time
_OVERLAP = 4 * _BLOCK  # bytes that whole blocks take more


@device_function
def _keep_opacity(image: int, other: int, layout: int) -> None:
    sizes = i64_at(layout, LAYOUT_FIELDS)
    if sizes[CHANNELS] == 4:
        count = 4 * sizes[HEIGHT] * sizes[WIDTH]
        source, target = u8_at(image, count), u8_at(other, count)
        for place in range(3, count, 4):
            target[place] = source[place]


# --- sharpness --------------------------------------------------------------------------------------------------------


@vector_kernel
def _sharpen(
    emit: VectorBuilder, source: Vector, target: Vector, groups: Vector, stride: Vector, pixel: Vector, away: Vector
) -> None:
    # `away`, 1 - factor, is a whole number and a part in units of 2**-15. A mean differs from its own pixel by 157 at
    # most, so that all of it fits 16 bits.
    whole, part = (emit.splat(half.narrow(I16), 32) for half in (away.shift_right(15), away & (ONE - 1)))
    with emit.loop(groups) as group:
        first = source + group * 32
        rows = [first - stride, first, first + stride]
        around = [emit.load(row + side, I8, 32).zero_extend(I16) for row in rows for side in (pixel * -1, 0, pixel)]
        level = around[4]
        total = level * 4 + 6
        for other in around:
            total = total + other
        apart = total.times_fraction(total.like(5042)) - level  # 65536 / 13, rounded up: exact for these sums
        changed = level + apart * whole + apart.shift_left(1).times_signed_fraction(part)
        emit.store(changed.clamp(0, 255).narrow(I8), target + group * 32)


def sharpen(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Move each pixel away from the mean around it, or towards it."""
    sizes, factor = i64_at(layout, LAYOUT_FIELDS), i32_at(row, STEP_COLUMNS)[PARAMETERS]
    height, pixel = sizes[HEIGHT], sizes[CHANNELS]
    stride = sizes[WIDTH] * pixel
    if height < 3:
        return 0
    # As if the image were a single row; then the left and right border are put back.
    first, last = stride + pixel, (height - 1) * stride
    _sharpen(image + first, other + first, -((first + pixel - last) // 32), stride, pixel, ONE - factor)
    copy(other, image, stride)
    copy(other + last, image + last, stride)
    for start in range(stride - pixel, last, stride):
        copy(other + start, image + start, 2 * pixel)
    _keep_opacity(image, other, layout)
    return 1


# --- blur -------------------------------------------------------------------------------------------------------------
#
# CPUs add two products of 16-bit numbers at a time: a word of 32 bits holds the levels of two neighbors, first in a row
# and then in a column, and another their weights.


@vector_kernel
def _mirror(emit: VectorBuilder, source: Vector, target: Vector, count: Vector, pixel: Vector) -> None:
    # Four bytes each: the next pixel overwrites those that are too many.
    with emit.loop(count) as number:
        emit.store(emit.load(source - number * pixel, I32), target + number * pixel)


@vector_kernel
def _pair_pixels(emit: VectorBuilder, levels: Vector, words: Vector, groups: Vector, pixel: Vector) -> None:
    with emit.loop(groups) as group:
        first = levels + group * _LANES
        left, right = (emit.load(place, I8, _LANES).zero_extend(I32) for place in (first, first + pixel))
        emit.store(left | right.shift_left(16), words + group * (4 * _LANES))


def _sums(
    emit: VectorBuilder, starts: list[Vector], step: Vector, weights: Vector, taps: Vector, added: int
) -> list[list[Vector]]:
    """Sum the products of words and weights, for the blocks that start at some addresses."""
    totals = [[emit.variable(emit.fill(I32, _LANES, added)) for _ in range(4)] for _ in starts]
    with emit.loop(taps) as tap:
        weight = emit.splat(emit.load(weights + tap * 4, I32), _LANES).bits(I16, 2 * _LANES)
        for start, block in zip(starts, totals, strict=True):
            for number, total in enumerate(block):
                words = emit.load(start + tap * step + number * (4 * _LANES), I16, 2 * _LANES)
                total.set(total.get() + words.paired(weight))
    return [[total.get() for total in block] for block in totals]


@vector_kernel
def _blur_rows(
    emit: VectorBuilder, even: Vector, odd: Vector, step: Vector, weights: Vector, taps: Vector, target: Vector,
    blocks: Vector,
) -> None:  # fmt: skip
    with emit.loop(blocks) as block:
        place = block * (4 * _BLOCK)
        uppers, lowers = _sums(emit, [even + place, odd + place], step, weights, taps, 128)
        for number, (upper, lower) in enumerate(zip(uppers, lowers, strict=True)):
            word = (upper.shift_right_logical(8) & 0xFFFF) | (lower.shift_left(8) & -0x10000)
            emit.store(word, target + place + number * (4 * _LANES))


@vector_kernel
def _blur_columns(
    emit: VectorBuilder, words: Vector, step: Vector, weights: Vector, taps: Vector, target: Vector, blocks: Vector
) -> None:
    with emit.loop(blocks) as block:
        (totals,) = _sums(emit, [words + block * (4 * _BLOCK)], step, weights, taps, 1 << 21)
        levels = Vector.joined([total.shift_right_logical(22).narrow(I8) for total in totals])
        emit.store(levels, target + block * _BLOCK)


@device_function
def _write_line(source: int, padded: int, words: int, layout: int, reach: int) -> None:
    """Mirror a row of pixels at its ends, and pair neighbors."""
    sizes = i64_at(layout, LAYOUT_FIELDS)
    width, pixel = sizes[WIDTH], sizes[CHANNELS]
    _mirror(source + reach * pixel, padded, reach, pixel)
    copy(padded + reach * pixel, source, width * pixel)
    _mirror(source + (width - 2) * pixel, padded + (reach + width) * pixel, reach, pixel)
    _pair_pixels(padded, words, -(-(width + 2 * reach) * pixel // _LANES), pixel)


@device_function
def _fold_weights(weights: int, folded: int, y: int, height: int, reach: int, first: int) -> int:
    """Write the weights of the rows from `first` on that make row `y`, near the border; return how many pairs."""
    stop = min(y + reach + 1, height)
    pairs = (stop - first + 1) // 2
    clear(folded, 4 * pairs)
    source, target = u16_at(weights, 2 * reach + 1), u16_at(folded, 2 * pairs)
    for tap in range(2 * reach + 1):
        target[height - 1 - abs(height - 1 - abs(y + tap - reach)) - first] += source[tap]
    return pairs


def blur(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Blur rows, then columns."""
    sizes, head = i64_at(layout, LAYOUT_FIELDS), i32_at(row, STEP_COLUMNS)
    height, width, pixel = sizes[HEIGHT], sizes[WIDTH], sizes[CHANNELS]
    reach = min(head[PARAMETERS], STEP_COLUMNS * head[SPAN] - PARAMETERS - 2)
    columns = i32_at(row + 4 * (PARAMETERS + 1), reach + 1)
    while reach > 0 and columns[reach] == 0:
        reach -= 1
    if reach <= 0 or reach >= min(height, width):
        return 0
    stride = width * pixel
    words = (memory + 63) // 64 * 64  # whole cache lines
    even = words + 4 * stride * ((height + 1) // 2) + _OVERLAP
    odd = even + 4 * (stride + 2 * reach * pixel) + _OVERLAP
    padded = odd + 4 * (stride + 2 * reach * pixel) + _OVERLAP
    weights = padded + stride + 2 * reach * pixel + _OVERLAP
    folded = weights + 4 * reach + 8
    # With a zero before and after them: rows in pairs may begin one row before.
    values = u16_at(weights, 2 * reach + 3)
    values[0] = values[2 * reach + 2] = 0
    for distance in range(reach + 1):
        values[reach + 1 - distance] = values[reach + 1 + distance] = columns[distance]
    blocks = -(-stride // _BLOCK)
    for y in range(0, height, 2):
        _write_line(image + y * stride, padded, even, layout, reach)
        if y + 1 < height:
            _write_line(image + (y + 1) * stride, padded, odd, layout, reach)
        _blur_rows(even, odd, 8 * pixel, weights + 2, reach + 1, words + 2 * y * stride, blocks)
    for y in range(height):
        begin = max(y - reach, 0)
        first = begin // 2 * 2
        chosen, pairs = weights + 2 * (1 - begin + first), reach + 1
        if y < reach or y + reach >= height:
            chosen, pairs = folded, _fold_weights(weights + 2, folded, y, height, reach, first)
        _blur_columns(words + 2 * first * stride, 4 * stride, chosen, pairs, other + y * stride, blocks)
    _keep_opacity(image, other, layout)
    return 1


FILTER_CODES = {SHARPNESS: AddressedFunction(sharpen), BLUR: AddressedFunction(blur)}
