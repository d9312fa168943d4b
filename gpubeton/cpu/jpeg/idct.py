"""Inverse DCT: from coefficients to samples, bit for bit as libjpeg's accurate integer method (ISLOW).

The factorization is by Loeffler, Ligtenberg and Moschytz ("Practical fast 1-D DCT algorithms with 11 multiplications",
ICASSP 1989), with 13 fractional bits. Products are distributed over the sums, so that all factors have 16 bits: CPUs
multiply those twice as fast.
"""

from __future__ import annotations

from gpubeton.cpu.simd import I16, I32, Vector, VectorBuilder, vector_kernel

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


def _transform(inputs: list[Vector], shift: int, bias: int) -> list[Vector]:
    """Transform one dimension: eight vectors of 16-bit lanes to 32-bit lanes, plus `bias`, shifted right by `shift`."""
    wide = [vector.sign_extend(I32) for vector in inputs]
    # The even part.
    offset = (1 << (shift - 1)) + (bias << shift)
    total = (wide[0] + wide[4]).shift_left(_FRACTION_BITS) + offset
    difference = (wide[0] - wide[4]).shift_left(_FRACTION_BITS) + offset
    inner = wide[2] * _0_541 - wide[6] * (_1_847 - _0_541)
    outer = wide[2] * (_0_541 + _0_765) + wide[6] * _0_541
    even = [total + outer, difference + inner, difference - inner, total - outer]
    # The odd part; the two sums have 16 bits, so that their products are cheap.
    sum_73 = (inputs[7] + inputs[3]).sign_extend(I32)
    sum_51 = (inputs[5] + inputs[1]).sign_extend(I32)
    left = sum_73 * (_1_175 - _1_961) + sum_51 * _1_175
    right = sum_73 * _1_175 + sum_51 * (_1_175 - _0_390)
    odd = [
        right + wide[1] * (_1_501 - _0_899) - wide[7] * _0_899,
        left + wide[3] * (_3_072 - _2_562) - wide[5] * _2_562,
        right + wide[5] * (_2_053 - _2_562) - wide[3] * _2_562,
        left + wide[7] * (_0_298 - _0_899) - wide[1] * _0_899,
    ]
    sums = [e + o for e, o in zip(even, odd)]
    differences = [e - o for e, o in zip(even, odd)]
    return [vector.shift_right(shift) for vector in sums + differences[::-1]]


def transpose(rows: list[Vector]) -> list[Vector]:
    """Transpose eight vectors of eight lanes, in three rounds of interleaving."""
    low, high = [0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]
    for _ in range(3):
        rows = [rows[i].shuffle(rows[i + 4], order) for i in range(4) for order in (low, high)]
    return rows


@vector_kernel
def inverse_dct(
    emit: VectorBuilder,
    coefficients: Vector,  # address of (8, 8) int16, row-major, 16-byte aligned: quantized coefficients
    multipliers: Vector,  # address of (8, 8) int16, row-major: the quantization table
    columns: Vector,  # address of (8, 8) uint16, written: columns, COLUMN_BYTES apart; samples 0..255, times 256
) -> None:
    """Transform one block; write it by columns, as the horizontal resampling reads it."""
    rows = [
        emit.load(coefficients + 16 * i, I16, 8, align=16) * emit.load(multipliers + 16 * i, I16, 8) for i in range(8)
    ]
    shift = _FRACTION_BITS - _FIRST_PASS_BITS
    rows = [row.clamp(-32768, 32767).narrow(I16) for row in _transform(rows, shift, 0)]
    shift = _FRACTION_BITS + _FIRST_PASS_BITS + 3
    samples = _transform(transpose(rows), shift, 128)
    for i, column in enumerate(samples):
        emit.store(column.clamp(0, 255).narrow(I16).shift_left(8), columns + COLUMN_BYTES * i, align=16)


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
