"""From coefficients to samples: libjpeg's accurate integer inverse DCT, bit for bit.

The factorisation is Loeffler, Ligtenberg and Moschytz's ("Practical fast 1-D DCT algorithms with 11 multiplications",
ICASSP 1989) with 13 fractional bits, as libjpeg's ISLOW has it. The products are distributed over the sums: all factors
then are 16 bits wide, and machines multiply those twice as fast.
"""

from __future__ import annotations

from gpubeton.cpu.lanes import I16, I32, Emitter, Lanes, vector_kernel

# From one column of samples to the next: room for two blocks, one below the other.
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


def _transform(inputs: list[Lanes], shift: int, bias: int) -> list[Lanes]:
    """One dimension on eight vectors of 16-bit lanes; gives 32-bit lanes, `bias` added and shifted down."""
    wide = [vector.sign_extend(I32) for vector in inputs]
    # The even part.
    offset = (1 << (shift - 1)) + (bias << shift)
    total = (wide[0] + wide[4]).shift_left(_FRACTION_BITS) + offset
    difference = (wide[0] - wide[4]).shift_left(_FRACTION_BITS) + offset
    inner = wide[2] * _0_541 - wide[6] * (_1_847 - _0_541)
    outer = wide[2] * (_0_541 + _0_765) + wide[6] * _0_541
    even = [total + outer, difference + inner, difference - inner, total - outer]
    # The odd part; the two sums stay 16 bits wide so that their products are cheap.
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


def transpose(rows: list[Lanes]) -> list[Lanes]:
    """Turn eight vectors of eight lanes into their columns, in three rounds of interleaving."""
    low, high = [0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]
    for _ in range(3):
        rows = [rows[i].shuffle(rows[i + 4], order) for i in range(4) for order in (low, high)]
    return rows


@vector_kernel
def inverse_dct(emit: Emitter, coefficients: Lanes, multipliers: Lanes, columns: Lanes) -> None:
    """Transform one block.

    Parameters
    ----------
    coefficients : address of int16, shape (8, 8), row-major, 16-byte aligned
        Quantised coefficients.
    multipliers : address of int16, shape (8, 8)
        Quantisation table, row-major.
    columns : address of uint16, shape (8, 8)
        Written **column by column**, COLUMN_BYTES apart, as the horizontal resampling that follows reads them: samples
        0..255, times 256.
    """
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
def inverse_dct_of_dc(emit: Emitter, coefficient: Lanes, multiplier: Lanes, columns: Lanes) -> None:
    """Transform a block that has no coefficient but the first: all samples are equal.

    Parameters
    ----------
    coefficient, multiplier : int
        The first coefficient and its quantisation factor.
    columns : address of uint16, shape (8, 8)
        Written as by `inverse_dct`.
    """
    level = ((coefficient * multiplier + 4).shift_right(3) + 128).clamp(0, 255)
    column = emit.splat(level.narrow(I16), 8).shift_left(8)
    for i in range(8):
        emit.store(column, columns + COLUMN_BYTES * i, align=16)
