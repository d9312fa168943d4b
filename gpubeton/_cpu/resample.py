"""Resample the crop of a raw RGB image and store it in the batch.

Down first (whole rows of bytes, so any vector width fits), then across, four pixels at a time. In between, samples are
rounded to 8 bits: with the final rounding, no output value is off by more than one. Sums of signed weights are exact in
32 bits, and limited to 0..255 both times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton._compile.compile import device_function, inlined
from gpubeton._compile.intrinsics import copy, signed
from gpubeton._compile.simd import HALVES, I8, I16, I32, I64, Vector, VectorBuilder, vector_kernel
from gpubeton._cpu.epilogue import BYTES, INTERPOLATION, ITEM_SIZE, METHOD, OUT_HEIGHT, OUT_WIDTH, store_row
from gpubeton._cpu.taps import BICUBIC, SIGNED_BITS, effective, fill_axis

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array
    from gpubeton._cpu.image_tasks import Box, Scratch

# Bytes per step of resampling down, and pixels per step of resampling across.
_CHUNK = 32
_GROUP = 4
_LANES = 16
# Rounds a sum of signed products.
_SIGNED_HALF = 1 << (SIGNED_BITS - 1)
# Rounds the sum of 8.8 fixed-point products. Each product was rounded down and lost half a unit on average: the sums
# add that, too (`VectorBuilder.lost`).
_HALF = 128


def _high(values: Vector) -> Vector:
    """Widen bytes to 16-bit lanes, times 256."""
    return values.zero_extend(I16).shift_left(8)


def _signed_level(total: Vector) -> Vector:
    """Round sums of signed products to levels."""
    return total.shift_right(SIGNED_BITS).clamp(0, 255)


@vector_kernel
def _resample_down_signed(
    emit: VectorBuilder, target: Vector, source: Vector, stride: Vector, words: Vector, taps: Vector, size: Vector
) -> None:
    """Do what `_resample_down` does, with signed weights: two rows at a time."""
    chunks = (size + (_CHUNK - 1)).shift_right_logical(5)
    with emit.loop(chunks) as index:
        offset = (index * _CHUNK).smaller(size - _CHUNK)
        totals = [emit.variable(emit.fill(I32, 8, _SIGNED_HALF)) for _ in range(_CHUNK // 8)]
        with emit.loop((taps + 1).shift_right_logical(1)) as pair:
            weights = emit.fraction(words + pair * 8, 16)
            # There may be no row after the last tap's, which then has no partner: it is its own, with a weight of 0.
            first, second = (source + offset + stride * tap for tap in (pair * 2, (pair * 2 + 1).smaller(taps - 1)))
            rows = [emit.load(row, I16, _CHUNK // 2) for row in (first, second)]
            for i, half in enumerate(HALVES):
                # Two neighboring bytes of one row, then of the other: bytes with an even number, then the others.
                both = rows[0].shuffle(rows[1], [lane for k in half for lane in (k, _CHUNK // 2 + k)])
                for total, part in zip(totals[2 * i :], (both & 255, both.shift_right_logical(8)), strict=False):
                    total.set(total.get() + part.paired(weights))
        levels = [_signed_level(total.get()) for total in totals]
        low, high = (even | odd.shift_left(8) for even, odd in (levels[:2], levels[2:]))
        emit.store(low.pack_unsigned(high), target + offset)


@vector_kernel
def _resample_down(
    emit: VectorBuilder, target: Vector, source: Vector, stride: Vector, words: Vector, taps: Vector, size: Vector
) -> None:
    """Sum `taps` rows of `size` >= 32 bytes, each times its weight; the last chunk overlaps the one before."""
    chunks = (size + (_CHUNK - 1)).shift_right_logical(5)
    last = size - _CHUNK

    def chunk(case: int | None) -> None:
        with emit.loop(chunks) as index:
            offset = (index * _CHUNK).smaller(last)
            start = source + offset
            if case:
                total = emit.fill(I16, _CHUNK, _HALF + case // 2)
                for k in range(case):
                    # Loaded again for each chunk, for the reason in `jpeg.ycbcr._weighted_sum`.
                    weight = emit.fraction(words + 4 * k, _CHUNK)
                    total = total + _high(emit.load(start + stride * k, I8, _CHUNK)).times_fraction(weight)
            else:
                running = emit.variable(emit.lost(taps, _CHUNK) + _HALF)
                with emit.loop(taps) as tap:
                    row = _high(emit.load(start + stride * tap, I8, _CHUNK))
                    running.set(running.get() + row.times_fraction(emit.fraction(words + tap * 4, _CHUNK)))
                total = running.get()
            emit.store(total.shift_right_logical(8).narrow(I8), target + offset)

    emit.switch(taps, (1, 2, 3), chunk)


def _group_starts(emit: VectorBuilder, row: Vector, first: Vector, group: Vector) -> list[Vector]:
    """Find the first source pixel of each pixel of a group."""
    indices = [emit.load(first + (group * _GROUP + i) * 4, I32, align=4) for i in range(_GROUP)]
    return [row + index.sign_extend(I64) * 3 for index in indices]


def _store_group(emit: VectorBuilder, levels: Vector, target: Vector, group: Vector) -> None:
    """Store the RGB of a group, of which each pixel has four levels."""
    packed = [4 * i + c for i in range(_GROUP) for c in range(3)] + [0, 0, 0, 0]
    emit.store(levels.shuffle(levels, packed), target + group * (3 * _GROUP))


@vector_kernel
def _resample_across(
    emit: VectorBuilder,
    target: Vector,  # address of (4 * groups + 2, 3) uint8, written; groups write 4 bytes more than they own
    row: Vector,  # address of (n, 3) uint8: the source row
    first: Vector,  # address of int32: first source pixel of each output pixel
    lane_words: Vector,  # address of (groups, 2 * pairs, 16) uint16: the weight of each tap, by lane; see `_spread`
    pairs: Vector,  # taps / 2, rounded up: eight bytes hold two RGB pixels
    groups: Vector,  # output pixels / 4, rounded up
) -> None:
    """Make four RGB pixels at a time."""

    def two_taps(starts: list[Vector], offset: Vector, words: Vector) -> Vector:
        """Sum two neighboring source pixels with their weights, for each of four output pixels."""
        eight = [emit.load(start + offset, I64) for start in starts]
        gathered = emit.splat(eight[0], _GROUP).value
        for i in range(1, _GROUP):
            gathered = emit.builder.insert_element(gathered, eight[i].value, emit.scalar(i, I32).value)
        pixels = Vector(emit.builder, gathered).bits(I8, 32)
        zeros = emit.fill(I8, 32, 0)
        total = None
        for tap in range(2):
            # Interleaving with zeros below puts each byte into the upper half of its lane.
            order = [lane for i in range(_GROUP) for c in (0, 1, 2, 2) for lane in (32, 8 * i + 3 * tap + c)]
            weights = emit.load(words + 2 * _LANES * tap, I16, _LANES)
            term = pixels.shuffle(zeros, order).bits(I16, _LANES).times_fraction(weights)
            total = term if total is None else total + term
        assert total is not None
        return total

    def all_groups(case: int | None) -> None:
        with emit.loop(groups) as group:
            starts = _group_starts(emit, row, first, group)
            words = lane_words + group * pairs * (4 * _LANES)
            if case:
                total = two_taps(starts, emit.scalar(0), words)
                for k in range(1, case):
                    total = total + two_taps(starts, emit.scalar(6 * k), words + 4 * _LANES * k)
                total = total + (_HALF + case)
            else:
                running = emit.variable(emit.lost(pairs.shift_left(1), _LANES) + _HALF)
                with emit.loop(pairs) as pair:
                    running.set(running.get() + two_taps(starts, pair * 6, words + pair * (4 * _LANES)))
                total = running.get()
            _store_group(emit, total.shift_right_logical(8).narrow(I8), target, group)

    emit.switch(pairs, (1, 2), all_groups)


@vector_kernel
def _resample_across_signed(
    emit: VectorBuilder, target: Vector, row: Vector, first: Vector, lane_words: Vector, pairs: Vector, groups: Vector
) -> None:
    """Do what `_resample_across` does, with signed weights: those of both taps of a pair are neighbors."""
    zeros = emit.fill(I8, 32, 0)
    with emit.loop(groups) as group:
        starts = _group_starts(emit, row, first, group)
        words = lane_words + group * pairs * (4 * _LANES)
        totals = [emit.variable(emit.fill(I32, 8, _SIGNED_HALF)) for _ in range(2)]
        with emit.loop(pairs) as pair:
            # Both halves of a vector have a pixel of each of the two results: no byte changes its half.
            pixels = Vector.joined([emit.load(starts[i] + pair * 6, I64, 1) for i in (0, 2, 1, 3)]).bits(I8, 32)
            for i, total in enumerate(totals):
                places = [16 * k + 8 * i + 3 * tap + c for k in (0, 1) for c in (0, 1, 2, 2) for tap in (0, 1)]
                levels = pixels.shuffle(zeros, [lane for place in places for lane in (place, 32)]).bits(I16, _LANES)
                weights = emit.load(words + pair * (4 * _LANES) + 32 * i, I16, _LANES)
                total.set(total.get() + levels.paired(weights))
        levels = Vector.joined([_signed_level(total.get()) for total in totals])
        _store_group(emit, levels.narrow(I8), target, group)


@inlined
def _spread(words: Array, taps: int, count: int, is_signed: bool, lane_words: Array) -> int:
    """Repeat the weights for each lane: R, G, B and an unused one of four pixels; return the number of tap pairs."""
    pairs = (taps + 1) // 2
    for i in range(count):
        base = (i >> 2) * pairs * 2 * _LANES
        for k in range(2 * pairs):
            weight = words[i, k] & 0xFFFF if k < taps else 0
            if is_signed:
                start = base + (k >> 1) * 2 * _LANES + 8 * (i & 3) + (k & 1)
                for lane in range(4):
                    lane_words[start + 2 * lane] = weight
            else:
                for lane in range(4):
                    lane_words[base + k * _LANES + 4 * (i & 3) + lane] = weight
    return pairs


@inlined
def _resample_rows(
    crop: int,  # address of the first pixel
    stride: int,
    size: int,  # bytes of a row
    height: int,
    across: int,  # most taps
    down: int,
    output: Array,
    factors: Array,
    table: Array,
    target: int,
    is_signed: bool,  # a constant: it makes two functions of one
    scratch: Scratch,
) -> None:
    """Resample the rows of a crop with the taps in `scratch`, and store them."""
    rows, columns = output[OUT_HEIGHT], output[OUT_WIDTH]
    groups = -(-columns // _GROUP)
    first, words = scratch.first[0], scratch.words[0]
    starts, lane_words = first[0].ctypes.data, scratch.lane_words.ctypes.data
    pairs = _spread(words[0], across, _GROUP * groups, is_signed, scratch.lane_words)
    line, pixels = signed(scratch.source_row.ctypes.data), signed(scratch.pixels.ctypes.data)
    for i in range(rows):
        begin = first[2, i]
        # `down` is the maximum; rows near the bottom have only the taps that are left.
        count = min(down, height - begin)
        above, weights = crop + begin * stride, words[2, i].ctypes.data
        place = target + i * columns * 3 * output[ITEM_SIZE]
        # Bytes go to the output directly if the bytes written after the row belong to the next row.
        at_once = output[METHOD] == BYTES and columns >= _LANES and i < rows - 1
        row = place if at_once else pixels
        if is_signed:
            _resample_down_signed(line, above, stride, weights, count, size)
            _resample_across_signed(row, line, starts, lane_words, pairs, groups)
        else:
            _resample_down(line, above, stride, weights, count, size)
            _resample_across(row, line, starts, lane_words, pairs, groups)
        if not at_once:
            store_row(pixels, place, columns, output[METHOD], factors, table)


@device_function
def resample_rgb(
    source: int,  # address of the image's first pixel, uint8 RGB
    stride: int,  # bytes from one row to the next
    box: Box,
    output: Array,  # settings, factors and table: see `epilogue`
    factors: Array,
    table: Array,
    target: int,  # address of the output image
    scratch: Scratch,
) -> None:
    """Resample the crop of a raw RGB image and store it."""
    top, left, height, width, flip, shift_y, shift_x, resized_height, resized_width = box
    rows, columns = output[OUT_HEIGHT], output[OUT_WIDTH]
    rule = effective(output[INTERPOLATION], height, width, resized_height, resized_width)
    groups = -(-columns // _GROUP)
    first, words, row = scratch.first[0], scratch.words[0], scratch.row
    padded = first[0, : _GROUP * groups]
    across = fill_axis(rule, 0, width, columns, resized_width, shift_x, flip, padded, words[0], row)
    down = fill_axis(rule, 0, height, rows, resized_height, shift_y, False, first[2, :rows], words[2], row)
    size = 3 * width
    crop = source + top * stride + 3 * left
    if size < _CHUNK:
        # Vectors would read past the image: move the few columns to a place with room.
        spare = signed(scratch.planes.ctypes.data)
        for i in range(height):
            copy(spare + i * _CHUNK, crop + i * stride, size)
        crop, stride, size = spare, _CHUNK, _CHUNK
    if rule == BICUBIC:
        _resample_rows(crop, stride, size, height, across, down, output, factors, table, target, True, scratch)
    else:
        _resample_rows(crop, stride, size, height, across, down, output, factors, table, target, False, scratch)
