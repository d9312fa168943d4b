"""One image that lies in memory as RGB: its crop, resampled and finished into the batch.

Rows are resampled down first (whole rows of bytes, so that any vector fits), then across, four pixels at a time.
Between the two a sample is rounded to 8 bits: with the final rounding, no output level is more than one off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.cpu.compile import stage
from gpubeton.cpu.finish import BYTES, finish_row
from gpubeton.cpu.lanes import I8, I16, I32, I64, Emitter, Lanes, vector_kernel
from gpubeton.cpu.memory import copy, signed
from gpubeton.cpu.output import HEIGHT, INTERPOLATION, ITEM_SIZE, METHOD, WIDTH
from gpubeton.cpu.taps import effective, fill_axis

if TYPE_CHECKING:
    from gpubeton.cpu.scratch import Scratch
    from gpubeton.cpu.types import Array, Box

# Bytes resampled down at a time, and pixels resampled across.
_CHUNK = 32
_GROUP = 4
_LANES = 16
# Rounds the sum of 8.8 fixed-point products. Each was rounded down, by half a unit on average, which the sum gets back.
_HALF = 128


def _fraction(emit: Emitter, word: Lanes, lanes: int) -> Lanes:
    return emit.splat(emit.load(word, I32, align=4), lanes // 2).bits(I16, lanes)


def _high(values: Lanes) -> Lanes:
    """Return bytes as 16-bit lanes, times 256."""
    return values.zero_extend(I16).shift_left(8)


@vector_kernel
def _resample_down(
    emit: Emitter, target: Lanes, source: Lanes, stride: Lanes, words: Lanes, taps: Lanes, size: Lanes
) -> None:
    """Sum `taps` rows of `size` >= 32 bytes, each times its weight; the last chunk overlaps the one before."""
    chunks = (size + (_CHUNK - 1)).shift_right_logical(5)
    last = size - _CHUNK

    def chunk(case: int | None) -> None:
        with emit.loop(chunks) as index:
            offset = index * _CHUNK
            inside = emit.builder.icmp_signed("<", offset.value, last.value)
            offset = Lanes(emit.builder, emit.builder.select(inside, offset.value, last.value))
            start = source + offset
            if case:
                total = emit.fill(I16, _CHUNK, _HALF + case // 2)
                for k in range(case):
                    # Loaded anew for each chunk: see `jpeg.colour`.
                    weight = _fraction(emit, words + 4 * k, _CHUNK)
                    total = total + _high(emit.load(start + stride * k, I8, _CHUNK)).times_fraction(weight)
            else:
                running = emit.variable(emit.lost(taps, _CHUNK) + _HALF)
                with emit.loop(taps) as tap:
                    row = _high(emit.load(start + stride * tap, I8, _CHUNK))
                    running.set(running.get() + row.times_fraction(_fraction(emit, words + tap * 4, _CHUNK)))
                total = running.get()
            emit.store(total.shift_right_logical(8).narrow(I8), target + offset)

    emit.switch(taps, (1, 2, 3), chunk)


@vector_kernel
def _resample_across(
    emit: Emitter, target: Lanes, row: Lanes, first: Lanes, lane_words: Lanes, pairs: Lanes, groups: Lanes
) -> None:
    """Make four RGB pixels at a time.

    Parameters
    ----------
    target : address of uint8, shape (4 * groups + 2, 3)
        Written; each group writes four bytes too many, which the next overwrites.
    row : address of uint8, shape (n, 3)
        Source row.
    first : address of int32
        First source pixel of each output pixel.
    lane_words : address of uint16, shape (groups, 2 * pairs, 16)
        Weight of each tap in each lane: four pixels of R, G, B and a lane that is dropped.
    pairs : int
        Taps / 2, rounded up: eight bytes hold two RGB pixels.
    groups : int
        Output pixels / 4, rounded up.
    """

    def two_taps(starts: list[Lanes], offset: Lanes, words: Lanes) -> Lanes:
        """The weighted sum of two neighbouring source pixels for each of four output pixels."""
        eight = [emit.load(start + offset, I64) for start in starts]
        gathered = emit.splat(eight[0], _GROUP).value
        for i in range(1, _GROUP):
            gathered = emit.builder.insert_element(gathered, eight[i].value, emit.scalar(i, I32).value)
        pixels = Lanes(emit.builder, gathered).bits(I8, 32)
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
            levels = total.shift_right_logical(8).narrow(I8)
            packed = [4 * i + c for i in range(_GROUP) for c in range(3)] + [0, 0, 0, 0]
            emit.store(levels.shuffle(levels, packed), target + group * (3 * _GROUP))

    emit.switch(pairs, (1, 2), all_groups)


@stage
def _spread(words: Array, taps: int, count: int, lane_words: Array) -> int:
    """Lay the weights out as `_resample_across` reads them; return the number of tap pairs."""
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
    source: int, stride: int, box: Box, output: Array, factors: Array, table: Array, target: int, scratch: Scratch
) -> None:
    """Resample the crop of an RGB image into the batch.

    Parameters
    ----------
    source : int
        Address of the image's first pixel, uint8 RGB.
    stride : int
        Bytes from one row to the next.
    box : tuple of int
        Top, left, height and width of the crop in pixels; flip; shift down and across in output pixels.
    output, factors, table : ndarray
        What the program wants, see `output` and `finish`.
    target : int
        Address of the output image.
    scratch : Scratch
        The worker's memory.
    """
    top, left, height, width, flip, shift_y, shift_x = box
    rows, columns = output[HEIGHT], output[WIDTH]
    rule = effective(output[INTERPOLATION], height, width, rows, columns)
    first, words, row = scratch.first[0], scratch.words[0], scratch.row
    across = fill_axis(rule, 0, width, columns, shift_x, flip, first[0], words[0], row)
    down = fill_axis(rule, 0, height, rows, shift_y, False, first[2], words[2], row)
    pairs = _spread(words[0], across, first.shape[1], scratch.lane_words)
    groups = -(-columns // _GROUP)
    size = 3 * width
    crop = source + top * stride + 3 * left
    line, pixels = signed(scratch.source_row.ctypes.data), signed(scratch.pixels.ctypes.data)
    narrow = size < _CHUNK
    if narrow:
        # Vectors would reach past the image: move the few columns to where there is room.
        spare = signed(scratch.planes.ctypes.data)
        for i in range(height):
            copy(spare + i * _CHUNK, crop + i * stride, size)
        crop, stride, size = spare, _CHUNK, _CHUNK
    for i in range(rows):
        begin = first[2, i]
        # The widest output row's taps may not fit below the others: those rows have no more than are left.
        count = min(down, height - begin)
        _resample_down(line, crop + begin * stride, stride, words[2, i].ctypes.data, count, size)
        place = target + i * columns * 3 * output[ITEM_SIZE]
        # Bytes go where they belong at once if what is written beyond the row belongs to the next one.
        at_once = output[METHOD] == BYTES and columns >= _LANES and i < rows - 1
        made = place if at_once else pixels
        _resample_across(made, line, first[0].ctypes.data, scratch.lane_words.ctypes.data, pairs, groups)
        if not at_once:
            finish_row(pixels, place, columns, output[METHOD], factors, table)
