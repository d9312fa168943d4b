"""Inverse DCT: from coefficients to samples, bit for bit as libjpeg's accurate integer method (ISLOW).

The factorization is by Loeffler, Ligtenberg and Moschytz ("Practical fast 1-D DCT algorithms with 11 multiplications",
ICASSP 1989), with 13 fractional bits. Products are distributed over the sums, so that all factors have 16 bits: CPUs
multiply those faster, and add two products in the same instruction.
"""

from __future__ import annotations

import numpy as np

from gpubeton._compile.simd import I16, I32, I64, Vector, VectorBuilder, vector_kernel

# Bytes from one column of samples to the next: two blocks, one below the other.
COLUMN_BYTES = 32

_FRACTION_BITS = 13
# The first pass keeps two more bits than the samples have; the second drops them and the DCT's factor of 8.
_FIRST_PASS_BITS = 2


def _fixed(value: float) -> int:
    return round(value * (1 << _FRACTION_BITS))


_0_298 = _fixed(0.298631336)
_0_390 = _fixed(0.390180644)
_0_541 = _fixed(0.541196100)
_0_765 = _fixed(0.765366865)
_0_899 = _fixed(0.899976223)
_1_175 = _fixed(1.175875602)
_1_501 = _fixed(1.501321110)
_1_847 = _fixed(1.847759065)
_1_961 = _fixed(1.961570560)
_2_053 = _fixed(2.053119869)
_2_562 = _fixed(2.562915447)
_3_072 = _fixed(3.072711026)


# The order of a block's coefficients in memory: rows in pairs, whose coefficients alternate, because one instruction
# adds the products of two neighbors. The columns are in such an order that the first pass makes pairs, too.
_PAIRS = [(0, 4), (2, 6), (7, 1), (3, 5)]
_COLUMNS = [column for pair in _PAIRS for column in pair]
# The place in memory of the coefficient at 8 * row + column.
PLACES = np.zeros(64, np.uint8)
for _number, _pair in enumerate(_PAIRS):
    for _half, _row in enumerate(_pair):
        PLACES[[8 * _row + column for column in _COLUMNS]] = 16 * _number + _half + 2 * np.arange(8)


def _transform(pairs: list[Vector], bias: int) -> list[Vector]:
    """Transform one dimension: _PAIRS of vectors of 16-bit lanes to eight vectors of 32-bit lanes, plus `bias`."""
    unit = 1 << _FRACTION_BITS
    pair_04, pair_26, pair_71, pair_35 = pairs
    # The even part.
    total = pair_04.pair_products(unit, unit) + bias
    difference = pair_04.pair_products(unit, -unit) + bias
    inner = pair_26.pair_products(_0_541, _0_541 - _1_847)
    outer = pair_26.pair_products(_0_541 + _0_765, _0_541)
    even = [total + outer, difference + inner, difference - inner, total - outer]
    # The odd part; its two sums have 16 bits.
    sums = pair_71 + pair_35
    left = sums.pair_products(_1_175 - _1_961, _1_175)
    right = sums.pair_products(_1_175, _1_175 - _0_390)
    odd = [
        right + pair_71.pair_products(-_0_899, _1_501 - _0_899),
        left + pair_35.pair_products(_3_072 - _2_562, -_2_562),
        right + pair_35.pair_products(-_2_562, _2_053 - _2_562),
        left + pair_71.pair_products(_0_298 - _0_899, -_0_899),
    ]
    return [e + o for e, o in zip(even, odd)] + [e - o for e, o in zip(even[::-1], odd[::-1])]


def _transpose(rows: list[Vector]) -> list[Vector]:
    """Transpose eight vectors of 32-bit lanes in the order of _COLUMNS to _PAIRS of vectors of 16-bit lanes."""
    packed = [rows[i].pack_signed(rows[i + 1]).bits(I32, 8) for i in (0, 2, 4, 6)]
    # Each 32 bits are a pair now: the first two pairs in the lower half of a vector, the others in the upper half.
    lower, upper = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]
    parts = []
    for order in ([0, 2, 8, 10, 4, 6, 12, 14], [1, 3, 9, 11, 5, 7, 13, 15]):
        early, late = (packed[i].shuffle(packed[i + 1], order) for i in (0, 2))
        parts += [early.shuffle(late, half).bits(I16, 16) for half in (lower, upper)]
    return parts[::2] + parts[1::2]


@vector_kernel
def inverse_dct(
    emit: VectorBuilder,
    coefficients: Vector,  # address of (64,) int16 in the order of PLACES, 32-byte aligned: quantized coefficients
    multipliers: Vector,  # address of (64,) int16 in the same order: the quantization table
    columns: Vector,  # address of (8, 8) uint16, written: columns, COLUMN_BYTES apart; samples 0..255, times 256
) -> None:
    """Transform one block; write it by columns, as the horizontal resampling reads it."""
    pairs = [
        emit.load(coefficients + 32 * i, I16, 16, align=32) * emit.load(multipliers + 32 * i, I16, 16) for i in range(4)
    ]
    shift = _FRACTION_BITS - _FIRST_PASS_BITS
    rows = [row.shift_right(shift) for row in _transform(pairs, 1 << (shift - 1))]
    shift = _FRACTION_BITS + _FIRST_PASS_BITS + 3
    # Eight bits less: packing then limits the samples to 0..255, with fractional bits that are dropped.
    samples = [column.shift_right(shift - 8) for column in _transform(_transpose(rows), 257 << (shift - 1))]
    for i in range(0, 8, 2):
        two = (samples[i].pack_unsigned(samples[i + 1]) & 0xFF00).bits(I64, 4)
        two = two.shuffle(two, [0, 2, 1, 3]).bits(I16, 16)
        emit.store(two.part(0, 8), columns + COLUMN_BYTES * i, align=16)
        emit.store(two.part(8, 16), columns + COLUMN_BYTES * (i + 1), align=16)


@vector_kernel
def inverse_dct_of_dc(
    emit: VectorBuilder,
    coefficient: Vector,
    multiplier: Vector,  # its quantization factor
    columns: Vector,  # as for `inverse_dct`
) -> None:
    """Transform a block with only the first coefficient: all samples are equal."""
    sample = ((coefficient * multiplier + 4).shift_right(3) + 128).clamp(0, 255)
    column = emit.splat(sample.narrow(I16), 8).shift_left(8)
    for i in range(8):
        emit.store(column, columns + COLUMN_BYTES * i, align=16)
