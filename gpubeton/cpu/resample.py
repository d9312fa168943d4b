"""Resample the crop of a raw RGB image and store it in the batch.

Down first (whole rows of bytes, so any vector width fits), then across, four pixels at a time. In between, samples are
rounded to 8 bits: with the final rounding, no output value is off by more than one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.cpu.epilogue import BYTES, INTERPOLATION, ITEM_SIZE, METHOD, OUT_HEIGHT, OUT_WIDTH, store_row
from gpubeton.cpu.intrinsics import copy, signed
from gpubeton.cpu.simd import I8, I16, I32, I64, Vector, VectorBuilder, vector_kernel
from gpubeton.cpu.taps import effective, fill_axis
from gpubeton.machine_code.compile import stage

if TYPE_CHECKING:
    from gpubeton.cpu.image_tasks import Box
    from gpubeton.cpu.intrinsics import Array
    from gpubeton.cpu.scratch import Scratch

# Bytes per step of resampling down, and pixels per step of resampling across.
_CHUNK = 32
_GROUP = 4
_LANES = 16
# Rounds the sum of 8.8 fixed-point products. Each product was rounded down and lost half a unit on average: the sums
# add that, too (`VectorBuilder.lost`).
_HALF = 128


def _high(values: Vector) -> Vector:
    """Widen bytes to 16-bit lanes, times 256."""
    return values.zero_extend(I16).shift_left(8)


@vector_kernel
def _resample_down(
    emit: VectorBuilder, target: Vector, source: Vector, stride: Vector, words: Vector, taps: Vector, size: Vector
) -> None:
    """Sum `taps` rows of `size` >= 32 bytes, each times its weight; the last chunk overlaps the one before."""
    chunks = (size + (_CHUNK - 1)).shift_right_logical(5)
    last = size - _CHUNK

    def chunk(case: int | None) -> None:
        with emit.loop(chunks) as index:
            offset = index * _CHUNK
            inside = emit.builder.icmp_signed("<", offset.value, last.value)
            offset = Vector(emit.builder, emit.builder.select(inside, offset.value, last.value))
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
            starts = []
            for i in range(_GROUP):
                begin = emit.load(first + (group * _GROUP + i) * 4, I32, align=4).sign_extend(I64)
                starts.append(row + begin * 3)
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
            values = total.shift_right_logical(8).narrow(I8)
            packed = [4 * i + c for i in range(_GROUP) for c in range(3)] + [0, 0, 0, 0]
            emit.store(values.shuffle(values, packed), target + group * (3 * _GROUP))

    emit.switch(pairs, (1, 2), all_groups)


@stage
def _spread(words: Array, taps: int, count: int, lane_words: Array) -> int:
    """Repeat the weights for each lane: R, G, B and an unused one of four pixels; return the number of tap pairs."""
    pairs = (taps + 1) // 2
    for i in range(count):
        base = (i >> 2) * pairs * 2 * _LANES + (i & 3) * 4
        for k in range(2 * pairs):
            weight = words[i, k] & 0xFFFF if k < taps else 0
            for lane in range(4):
                lane_words[base + k * _LANES + lane] = weight
    return pairs


@stage
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
    pairs = _spread(words[0], across, _GROUP * groups, scratch.lane_words)
    size = 3 * width
    crop = source + top * stride + 3 * left
    line, pixels = signed(scratch.source_row.ctypes.data), signed(scratch.pixels.ctypes.data)
    narrow = size < _CHUNK
    if narrow:
        # Vectors would read past the image: move the few columns to a place with room.
        spare = signed(scratch.planes.ctypes.data)
        for i in range(height):
            copy(spare + i * _CHUNK, crop + i * stride, size)
        crop, stride, size = spare, _CHUNK, _CHUNK
    for i in range(rows):
        begin = first[2, i]
        # `down` is the maximum; rows near the bottom have only the taps that are left.
        count = min(down, height - begin)
        _resample_down(line, crop + begin * stride, stride, words[2, i].ctypes.data, count, size)
        place = target + i * columns * 3 * output[ITEM_SIZE]
        # Bytes go to the output directly if the bytes written after the row belong to the next row.
        at_once = output[METHOD] == BYTES and columns >= _LANES and i < rows - 1
        made = place if at_once else pixels
        _resample_across(made, line, first[0].ctypes.data, scratch.lane_words.ctypes.data, pairs, groups)
        if not at_once:
            store_row(pixels, place, columns, output[METHOD], factors, table)
