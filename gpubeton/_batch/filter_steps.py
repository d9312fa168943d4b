"""Steps that mix a pixel with those around it: SHARPNESS and BLUR. For uint8 images.

The sharpened image is ``factor * level + (1 - factor) * mean``, rounded down; the mean is that of 3 x 3 pixels, the
middle one counted five times, and rounded. The border stays.

A blur's weights are less than 1 and sum to 1. Rows are blurred first and kept in units of 2**-7 of a level, then
columns: it is within 0.004 of a level of the exact sum before it is rounded. The image is mirrored at its border.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.step_code import CHANNELS, HEIGHT, LAYOUT_FIELDS, WIDTH
from gpubeton._batch.step_rows import BLUR, PARAMETERS, SHARPNESS, SPAN, STEP_COLUMNS
from gpubeton._compile.compile import AddressedFunction, device_function
from gpubeton._compile.intrinsics import copy, i32_at, i64_at, u8_at, u16_at
from gpubeton._compile.simd import HAS_AVX512, I8, I16, I32, I64, Vector, VectorBuilder, vector_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

_LANES = 32 if HAS_AVX512 else 16  # of 16 bits
_BLOCK = 64  # levels that are blurred at a time: at most the bytes that may be written after an image
_VECTORS = _BLOCK // _LANES
_MIDDLE = 1 << 14  # half of the largest level of a blurred row


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
# Weights are symmetric: levels at the same distance are added first, in 16 bits. CPUs then add two products of 16-bit
# numbers at a time: of two distances, whose sums are interleaved, and their weights.
# Blurred rows are less by `_MIDDLE`, so that the sum of two has a sign and fits 16 bits. Only those that make the next
# row of the result are kept, in a ring buffer: they stay in the first or second cache.


def _interleaving(first: int) -> list[int]:
    """Return the lanes of two vectors that interleave the lower (0) or upper (4) lanes of each 128 bits."""
    pairs = [part + first + lane for part in range(0, _LANES, 8) for lane in range(4)]
    return [lane for pair in pairs for lane in (pair, _LANES + pair)]


@vector_kernel
def _mirror(emit: VectorBuilder, source: Vector, target: Vector, count: Vector, pixel: Vector) -> None:
    # Four levels each: the next pixel overwrites those that are too many.
    with emit.loop(count) as number:
        emit.store(emit.load(source - number * pixel, I8, 4).zero_extend(I16), target + number * pixel * 2)


@vector_kernel
def _widen(emit: VectorBuilder, source: Vector, target: Vector, groups: Vector) -> None:
    with emit.loop(groups) as group:
        emit.store(emit.load(source + group * _LANES, I8, _LANES).zero_extend(I16), target + group * (2 * _LANES))


def _sums(
    emit: VectorBuilder, places: Callable[[Vector], list[Vector]], weights: Vector, pairs: Vector, added: Vector
) -> list[Vector]:
    """Weigh a block of 16-bit levels; `places` returns the addresses of those at some distance."""

    def at_distance(distance: Vector) -> list[Vector]:
        left, right = (
            [emit.load(place + number * (2 * _LANES), I16, _LANES) for number in range(_VECTORS)]
            for place in places(distance)
        )
        return [near + far for near, far in zip(left, right, strict=True)]

    def add(pair: Vector, even: list[Vector], odd: list[Vector]) -> None:
        weight = emit.splat(emit.load(weights + pair * 4, I32), _LANES // 2).bits(I16, _LANES)
        for number, (first, second) in enumerate(zip(even, odd, strict=True)):
            for half in range(2):
                total, levels = totals[2 * number + half], first.shuffle(second, _interleaving(4 * half))
                total.set(total.get() + levels.paired(weight))

    totals = [emit.variable(emit.splat(added.narrow(I32), _LANES // 2)) for _ in range(2 * _VECTORS)]
    middle = [emit.load(places(emit.scalar(0))[0] + number * (2 * _LANES), I16, _LANES) for number in range(_VECTORS)]
    add(emit.scalar(0), middle, at_distance(emit.scalar(1)))
    with emit.loop(pairs - 1) as previous:
        distance = previous * 2 + 2
        add(previous + 1, at_distance(distance), at_distance(distance + 1))
    return [total.get() for total in totals]


@vector_kernel
def _blur_row(
    emit: VectorBuilder, words: Vector, pixel: Vector, weights: Vector, pairs: Vector, target: Vector, blocks: Vector
) -> None:
    with emit.loop(blocks) as block:
        first = words + block * (2 * _BLOCK)
        totals = _sums(
            emit,
            lambda distance: [first - distance * pixel, first + distance * pixel],
            weights,
            pairs,
            emit.scalar(128),
        )
        for number in range(_VECTORS):
            lower, upper = (total.shift_right_logical(8) for total in totals[2 * number : 2 * number + 2])
            emit.store(lower.pack_unsigned(upper) - _MIDDLE, target + block * (2 * _BLOCK) + number * (2 * _LANES))


@vector_kernel
def _blur_column(
    emit: VectorBuilder, rows: Vector, weights: Vector, pairs: Vector, added: Vector, target: Vector, blocks: Vector
) -> None:
    with emit.loop(blocks) as block:

        def places(distance: Vector) -> list[Vector]:
            return [
                emit.load(place, I64) + block * (2 * _BLOCK) for place in (rows - distance * 8, rows + distance * 8)
            ]

        totals = [total.shift_right_logical(22) for total in _sums(emit, places, weights, pairs, added)]
        for number in range(0, _VECTORS, 2):
            levels = [totals[2 * vector].pack_unsigned(totals[2 * vector + 1]) for vector in (number, number + 1)]
            emit.store(Vector.joined(levels).narrow(I8), target + block * _BLOCK + number * _LANES)


@device_function
def _write_line(source: int, middle: int, layout: int, reach: int) -> None:
    """Widen a row of pixels to 16 bits, and mirror it at its ends."""
    sizes = i64_at(layout, LAYOUT_FIELDS)
    width, pixel = sizes[WIDTH], sizes[CHANNELS]
    _mirror(source + reach * pixel, middle - 2 * reach * pixel, reach, pixel)
    _widen(source, middle, -(-width * pixel // _LANES))
    _mirror(source + (width - 2) * pixel, middle + 2 * width * pixel, reach, pixel)


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
    # A pair of distances may be one more than the reach; its weight is 0, whatever the levels there.
    # The last block of a row may overlap the row after it, which comes later, but no other one.
    stride, pairs, count = width * pixel, reach // 2 + 1, min(2 * reach + 2, height)
    pitch, blocks = 2 * max(stride, _BLOCK), -(-stride // _BLOCK)
    kept = (memory + 63) // 64 * 64  # whole cache lines
    middle = kept + pitch * count + 2 * _BLOCK + 2 * (reach + 1) * pixel
    addresses = (middle + 2 * (stride + (reach + 1) * pixel) + 2 * _BLOCK) // 8 * 8
    weights = addresses + 8 * (height + 2 * reach + 2)
    places, values, total = i64_at(addresses, height + 2 * reach + 2), u16_at(weights, 2 * pairs), -columns[0]
    values[2 * pairs - 1] = 0
    for distance in range(reach + 1):
        values[distance] = columns[distance]
        total += 2 * columns[distance]
    for place in range(len(places)):
        line = height - 1 - abs(height - 1 - abs(place - reach - 1))
        places[place] = kept + pitch * (line % count)
    added = (1 << 21) + total * _MIDDLE
    for y in range(-reach, height):
        if y + reach < height:
            _write_line(image + (y + reach) * stride, middle, layout, reach)
            _blur_row(middle, 2 * pixel, weights, pairs, kept + pitch * ((y + reach) % count), blocks)
        if y >= 0:
            _blur_column(addresses + 8 * (y + reach + 1), weights, pairs, added, other + y * stride, blocks)
    _keep_opacity(image, other, layout)
    return 1


FILTER_CODES = {SHARPNESS: AddressedFunction(sharpen), BLUR: AddressedFunction(blur)}
