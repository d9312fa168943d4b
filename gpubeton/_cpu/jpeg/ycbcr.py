"""Resample Y, Cb and Cr of one MCU row, first across, then down, and convert them to 8-bit RGB (JFIF 1.02).

A *strip* is the result of the inverse DCT for one row of MCUs: column after column of 16 uint16, a sample in the high
byte of each. The 16 are two rows of luma blocks, or a row of Cb and a row of Cr blocks, which need the same taps. If an
MCU has only one row of luma blocks, the second half is unused.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpubeton._compile.simd import HALVES, I8, I16, I32, I64, Vector, VectorBuilder, vector_kernel
from gpubeton._cpu.jpeg.idct import COLUMN_BYTES
from gpubeton._cpu.taps import SIGNED_BITS

if TYPE_CHECKING:
    from collections.abc import Callable

# Output columns per step across; the width of a plane is a multiple of it.
COLUMNS = 8
# Output pixels per step down.
PIXELS = 16
# Numbers of taps with their own unrolled loop: nearly all photographs cropped to a network's input.
_UNROLLED = (2, 3, 4)

# JFIF's factors as 14-bit fractions: times a sample with 8 fractional bits, without the low 16 bits, leaves 6.
_CR_TO_RED = round(1.402 * (1 << 14))
_CB_TO_GREEN = round(0.344136286 * (1 << 14))
_CR_TO_GREEN = round(0.714136286 * (1 << 14))
_CB_TO_BLUE = round(1.772 * (1 << 14))


def _weighted_sum(
    emit: VectorBuilder,
    start: Vector,  # address of the first samples
    step: Vector | int,  # bytes to the next ones
    words: Vector,  # address of the weights, see `taps`
    taps: int | None,  # number of taps, unrolled
    count: Vector,  # number of taps, for a loop
    lanes: int,
    align: int = 1,
) -> Vector:
    """Sum taps of `lanes` 16-bit samples each, times their weights."""

    # Weights are loaded again for each sum. If they stayed in registers across the loop over groups, LLVM would widen
    # them to 32 bits before the loop, and no longer see that 16-bit multiplications suffice.
    def term(samples: Vector, word: Vector) -> Vector:
        return emit.load(samples, I16, lanes, align=align).times_fraction(emit.fraction(word, lanes))

    if taps is not None:
        total = term(start, words)
        for k in range(1, taps):
            total = total + term(start + step * k, words + 4 * k)
        return total
    running = emit.variable(emit.lost(count, lanes))
    with emit.loop(count) as tap:
        running.set(running.get() + term(start + tap * step, words + tap * 4))
    return running.get()


def _signed_sum(
    emit: VectorBuilder, start: Vector, step: Vector | int, words: Vector, count: Vector, lanes: int, align: int = 1
) -> Vector:
    """Sum the same times signed weights, two taps at a time; round, and limit to 16 bits."""
    halves = HALVES if lanes == 16 else (range(8),)
    totals = [emit.variable(emit.fill(I32, 8, 1 << (SIGNED_BITS - 1))) for _ in halves]
    with emit.loop((count + 1).shift_right_logical(1)) as pair:
        place = start + pair * step * 2
        # Less 2**15, which makes them signed: weights sum to one, so the sum is less by that, too. After the last tap
        # comes a weight of 0.
        first, other = (emit.load(place + step * k, I16, lanes, align=align) ^ -0x8000 for k in (0, 1))
        weights = emit.fraction(words + pair * 8, 16)
        for total, half in zip(totals, halves, strict=True):
            pairs = first.shuffle(other, [lane for i in half for lane in (i, lanes + i)])
            total.set(total.get() + pairs.paired(weights))
    sums = [total.get().shift_right(SIGNED_BITS) for total in totals]
    packed = sums[0].pack_signed(sums[1]) if lanes == 16 else sums[0].clamp(-0x8000, 0x7FFF).narrow(I16)
    return packed ^ -0x8000


# --- across -----------------------------------------------------------------------------------------------------------


def _transpose_halves(columns: list[Vector]) -> list[Vector]:
    """Transpose 8 columns of 8 or 16 samples; 16 as two halves, which costs no more than one."""
    lanes = columns[0].count
    for _ in range(3):
        orders = []
        for base in (0, 4):
            quarter = [base + i for i in range(4)]
            orders.append([i + half + side * lanes for half in range(0, lanes, 8) for i in quarter for side in (0, 1)])
        columns = [columns[i].shuffle(columns[i + 4], order) for i in range(4) for order in orders]
    return columns


def _by_sign(emit: VectorBuilder, is_signed: Vector, taps: Vector, body: Callable[[bool, int | None], None]) -> None:
    """Emit `body(True, None)` for signed weights, else `body(False, case)` for each number of taps of `_UNROLLED`."""

    def chosen(signed: int | None) -> None:
        if signed:
            body(True, None)
        else:
            emit.switch(taps, _UNROLLED, partial(body, False))

    emit.switch(is_signed, (1,), chosen)


def _resample_across(
    lanes: int,
    emit: VectorBuilder,
    strip: Vector,
    rows_out: tuple[Vector, ...],
    stride: Vector,
    first: Vector,
    words: Vector,
    word_stride: Vector,
    taps: Vector,
    groups: Vector,
    is_signed: Vector,
) -> None:
    """Resample the first `lanes` samples of each column into 8 rows for each of `rows_out`."""

    def all_groups(signed: bool, case: int | None) -> None:
        with emit.loop(groups) as group:
            columns = []
            for i in range(COLUMNS):
                index = group * COLUMNS + i
                begin = emit.load(first + index * 4, I32, align=4).sign_extend(I64)
                start = strip + begin * COLUMN_BYTES
                column_words = words + index * word_stride
                if signed:
                    columns.append(_signed_sum(emit, start, COLUMN_BYTES, column_words, taps, lanes, align=2 * lanes))
                else:
                    columns.append(
                        _weighted_sum(emit, start, COLUMN_BYTES, column_words, case, taps, lanes, align=2 * lanes)
                    )
            across = group * (2 * COLUMNS)
            for i, row in enumerate(_transpose_halves(columns)):
                for half, rows in enumerate(rows_out):
                    emit.store(row.part(8 * half, 8 * half + 8), rows + stride * i + across)

    _by_sign(emit, is_signed, taps, all_groups)


@vector_kernel
def resample_pair(
    emit: VectorBuilder,
    strip: Vector,  # address of (columns, 16) uint16, 32-byte aligned, of the column that `first` counts from
    upper: Vector,  # address of (8, width) uint16, written: samples 0..7 of each output column, as rows
    lower: Vector,  # the same of samples 8..15
    stride: Vector,  # bytes from one of those rows to the next
    first: Vector,  # address of (width,) int32: first column of each output column
    words: Vector,  # address of (width, n) uint32: weights, see `taps`
    word_stride: Vector,  # bytes from one output column's weights to the next's
    taps: Vector,
    groups: Vector,  # width / COLUMNS
    is_signed: Vector,  # 1 if weights are signed
) -> None:
    """Resample all 16 samples of each column; `strip` may be before the first column that exists."""
    _resample_across(16, emit, strip, (upper, lower), stride, first, words, word_stride, taps, groups, is_signed)


@vector_kernel
def resample_single(
    emit: VectorBuilder,
    strip: Vector,
    upper: Vector,
    stride: Vector,
    first: Vector,
    words: Vector,
    word_stride: Vector,
    taps: Vector,
    groups: Vector,
    is_signed: Vector,
) -> None:
    """Resample the first 8 samples of each column; arguments as for `resample_pair`."""
    _resample_across(8, emit, strip, (upper,), stride, first, words, word_stride, taps, groups, is_signed)


# --- down, and color --------------------------------------------------------------------------------------------------


def _product(value: Vector, factor: int) -> Vector:
    """Return (value * factor) >> 16 of signed 16-bit lanes."""
    return (value.sign_extend(I32) * factor).shift_right(16).narrow(I16)


def _to_rgb(luma: Vector, blue_difference: Vector, red_difference: Vector) -> list[Vector]:
    """Convert 8.8 fixed-point Y, Cb, Cr to 8-bit R, G, B, rounded and clamped."""
    # Half a unit of the result, and half a unit for what the products below lose by rounding down.
    base = luma.shift_right_logical(2) + 32
    cb = blue_difference ^ -0x8000
    cr = red_difference ^ -0x8000
    red = base + _product(cr, _CR_TO_RED)
    green = base - _product(cb, _CB_TO_GREEN) - _product(cr, _CR_TO_GREEN)
    blue = base + _product(cb, _CB_TO_BLUE)
    return [color.shift_right(6).clamp(0, 255).narrow(I8) for color in (red, green, blue)]


def _interleaved(red: Vector, green: Vector, blue: Vector) -> Vector:
    """Put R, G, B of each pixel side by side."""
    return red.join(green).shuffle(
        blue.join(blue), [lane for i in range(PIXELS) for lane in (i, PIXELS + i, 2 * PIXELS + i)]
    )


@vector_kernel
def rgb_row(
    emit: VectorBuilder,
    luma: Vector,  # address of the first row of the plane that takes part, uint16: samples times 256
    blue_difference: Vector,  # the same of Cb
    red_difference: Vector,  # the same of Cr
    stride: Vector,  # bytes from one row of a plane to the next
    luma_words: Vector,  # address of uint32: weights of the rows, see `taps`
    luma_taps: Vector,
    chroma_words: Vector,
    chroma_taps: Vector,
    pixels: Vector,  # address of (PIXELS * groups, 3) uint8, written
    groups: Vector,
    is_signed: Vector,  # 1 if weights are signed
) -> None:
    """Resample one row down and convert it to RGB."""

    def row(signed: bool, case: int | None) -> None:
        with emit.loop(groups) as group:
            across = group * (2 * PIXELS)
            planes = []
            for plane, words, count in (
                (luma, luma_words, luma_taps),
                (blue_difference, chroma_words, chroma_taps),
                (red_difference, chroma_words, chroma_taps),
            ):
                if signed:
                    planes.append(_signed_sum(emit, plane + across, stride, words, count, PIXELS))
                else:
                    planes.append(_weighted_sum(emit, plane + across, stride, words, case, count, PIXELS))
            emit.store(_interleaved(*_to_rgb(*planes)), pixels + group * (3 * PIXELS))

    _by_sign(emit, is_signed, luma_taps.larger(chroma_taps), row)
