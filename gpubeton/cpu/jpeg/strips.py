"""Horizontal resampling of the samples of one MCU row.

A strip is what the inverse DCT leaves of one row of MCUs: column after column of 16 uint16, a sample in the high byte
of each. The 16 are two rows of luma blocks, or a row of Cb and a row of Cr blocks, which need the same taps; where an
MCU has one row of luma blocks only, the second half is unused.
"""

from __future__ import annotations

from gpubeton.cpu.jpeg.idct import COLUMN_BYTES
from gpubeton.cpu.lanes import I16, I32, I64, Emitter, Lanes, vector_kernel

# Output columns made at a time; the width of a plane is a multiple of it.
GROUP = 8
# Tap counts with an unrolled loop of their own: nearly all photographs cropped to a network's input.
_UNROLLED = (2, 3, 4)


def _weighted(emit: Emitter, column: Lanes, weight: Lanes, taps: int | None, count: Lanes, lanes: int) -> Lanes:
    """Sum `taps` (or `count`) columns of `lanes` samples, each times its weight."""

    def term(offset: Lanes, word: Lanes) -> Lanes:
        fraction = emit.splat(emit.load(word, I32, align=4), lanes // 2).bits(I16, lanes)
        return emit.load(offset, I16, lanes, align=2 * lanes).times_fraction(fraction)

    if taps is not None:
        total = term(column, weight)
        for k in range(1, taps):
            total = total + term(column + COLUMN_BYTES * k, weight + 4 * k)
        return total
    running = emit.variable(emit.lost(count, lanes))
    with emit.loop(count) as tap:
        running.set(running.get() + term(column + tap * COLUMN_BYTES, weight + tap * 4))
    return running.get()


def _transpose_halves(columns: list[Lanes]) -> list[Lanes]:
    """Transpose 8 columns of 8 or 16 samples; each half of 16 for itself, which costs no more than one."""
    lanes = columns[0].count
    for _ in range(3):
        orders = []
        for base in (0, 4):
            one = [base + i for i in range(4)]
            orders.append([i + half + side * lanes for half in range(0, lanes, 8) for i in one for side in (0, 1)])
        columns = [columns[i].shuffle(columns[i + 4], order) for i in range(4) for order in orders]
    return columns


def _resample(
    lanes: int,
    emit: Emitter,
    strip: Lanes,
    rows_out: tuple[Lanes, ...],
    stride: Lanes,
    first: Lanes,
    words: Lanes,
    word_stride: Lanes,
    taps: Lanes,
    groups: Lanes,
) -> None:
    """Resample the first `lanes` samples of each column into 8 rows for each of `rows_out`."""

    def all_groups(case: int | None) -> None:
        with emit.loop(groups) as group:
            columns = []
            for i in range(GROUP):
                index = group * GROUP + i
                begin = emit.load(first + index * 4, I32, align=4).sign_extend(I64)
                start = strip + begin * COLUMN_BYTES
                columns.append(_weighted(emit, start, words + index * word_stride, case, taps, lanes))
            across = group * (2 * GROUP)
            for i, row in enumerate(_transpose_halves(columns)):
                for half, rows in enumerate(rows_out):
                    emit.store(row.part(8 * half, 8 * half + 8), rows + stride * i + across)

    emit.switch(taps, _UNROLLED, all_groups)


@vector_kernel
def resample_pair(
    emit: Emitter,
    strip: Lanes,
    upper: Lanes,
    lower: Lanes,
    stride: Lanes,
    first: Lanes,
    words: Lanes,
    word_stride: Lanes,
    taps: Lanes,
    groups: Lanes,
) -> None:
    """Resample all 16 samples of each column.

    Parameters
    ----------
    strip : address of uint16, shape (columns, 16)
        Samples times 256, aligned to 32 bytes. May point before the first column there is: `first` counts from here.
    upper, lower : address of uint16, shape (8, width)
        Written: samples 0..7 and 8..15 of each output column, as rows.
    stride : int
        Bytes from one of those rows to the next.
    first : address of int32, shape (width,)
        First column of each output column.
    words : address of uint32, shape (width, n)
        Weights, see `taps`.
    word_stride : int
        Bytes from one output column's weights to the next's.
    taps : int
        Taps to sum.
    groups : int
        Width / GROUP.
    """
    _resample(16, emit, strip, (upper, lower), stride, first, words, word_stride, taps, groups)


@vector_kernel
def resample_single(
    emit: Emitter,
    strip: Lanes,
    upper: Lanes,
    stride: Lanes,
    first: Lanes,
    words: Lanes,
    word_stride: Lanes,
    taps: Lanes,
    groups: Lanes,
) -> None:
    """Resample the first 8 samples of each column; arguments as for `resample_pair`."""
    _resample(8, emit, strip, (upper,), stride, first, words, word_stride, taps, groups)
