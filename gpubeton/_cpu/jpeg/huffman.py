"""Huffman tables, built so that one look-up decodes as much as possible.

Three look-up tables are built from each AC table (and the first from each DC table), indexed by the next bits:

single  uint32 (2048,)  one symbol: bits used, code length, value bits, coefficients skipped
pair    int64  (2048,)  one symbol, and a second one with its value if both fit into eleven bits
skip    uint32 (2048,)  up to six symbols without their values, for blocks outside the crop

A zero entry (in `pair`: UNDECODED) sends the decoder to the canonical search. Codes longer than eleven bits are rare:
the frequent symbols have the short codes.

A wrong guess which way an entry takes costs a processor more than two look-ups. So nearly all entries of `pair` take
the same way: the first value may have more bits than the index, because it is computed from the bits themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpubeton._compile.compile import device_function, inlined
from gpubeton._compile.intrinsics import shift_right_logical, signed

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array

SINGLE_BITS = 11
PAIR_BITS = 11
SKIP_BITS = 11

# "End of block" as a run: enough to pass the last coefficient from anywhere, and within the zigzag table.
END_OF_BLOCK = 79
# The same of a `pair` entry that decodes nothing: 127 more coefficients never fit into a block.
UNDECODED = 127
# As the number of coefficients passed: the block ends. More than that: after so many coefficients more.
ENDED = 64
# Entries of `pair` between two refills of the bit reader, and the most bits that each may use.
LOOKUPS = 3
_MOST_BITS = 56 // LOOKUPS
# The place of a second value that a `pair` entry does not have: after the 64 coefficients.
NOWHERE = 64

# Largest size category of baseline data with 8-bit samples (T.81, tables F.1 and F.2; one more than AC needs).
LARGEST_CATEGORY = 11


class Tables(NamedTuple):
    """A worker's quantization and Huffman tables; slots 0..3 are DC, 4..7 AC."""

    # Most images of a data set have the same tables. Those of the last image are kept: comparing is faster than
    # building.

    multipliers: Array  # (4, 64) int16, in the order of `idct.PLACES`: quantization tables
    source: Array  # (8, 272) uint8: 16 code-length counts and 256 symbols, as in the file
    built: Array  # (8,) uint8: 1 if the look-up tables were built from `source`
    defined: Array  # (12,) uint8: Huffman slots and quantization tables that this image defines
    identifiers: Array  # (3,) int64: of the components
    single: Array  # (8, 2048) uint32
    pair: Array  # (4, 2048) int64
    skip: Array  # (4, 2048) uint32
    limits: Array  # (8, 18) int64: the canonical decoder's tables (T.81 F.2.2.3), for longer codes
    offsets: Array  # (8, 18) int64


def allocate_tables() -> Tables:
    """Allocate tables that no image has filled yet."""
    return Tables(
        multipliers=np.zeros((4, 64), np.int16),
        source=np.zeros((8, 272), np.uint8),
        built=np.zeros(8, np.uint8),
        defined=np.zeros(12, np.uint8),
        identifiers=np.zeros(3, np.int64),
        single=np.zeros((8, 1 << SINGLE_BITS), np.uint32),
        pair=np.zeros((4, 1 << PAIR_BITS), np.int64),
        skip=np.zeros((4, 1 << SKIP_BITS), np.uint32),
        limits=np.zeros((8, 18), np.int64),
        offsets=np.zeros((8, 18), np.int64),
    )


@device_function
def is_prefix_code(lengths: Array, count: int) -> bool:
    """Return True if 16 code-length counts (T.81 B.2.4.2) make a prefix code of `count` codes."""
    # The standard keeps the code of only ones free, and libjpeg-turbo refuses tables that use it.
    codes = 0
    total = 0
    for bits in range(16):
        codes = 2 * codes + lengths[bits]
        total += lengths[bits]
        if codes >= (2 << bits):
            return False
    return total == count


@device_function
def _build_single(lengths: Array, symbols: Array, is_ac: bool, single: Array, limits: Array, offsets: Array) -> None:
    single[:] = 0
    code = 0
    k = 0
    for bits in range(1, 17):
        offsets[bits] = k - code
        for _ in range(lengths[bits - 1]):
            if bits <= SINGLE_BITS:
                symbol = signed(symbols[k])
                size = symbol & 15
                run = symbol >> 4
                if is_ac and size == 0 and run != 15:
                    run = END_OF_BLOCK
                entry = (bits + size) | (bits << 6) | (size << 11) | (run << 16)
                first = code << (SINGLE_BITS - bits)
                for i in range(1 << (SINGLE_BITS - bits)):
                    single[first + i] = entry
            k += 1
            code += 1
        # Codes of this length are below the limit, left-aligned to 16 bits; where there are none, nothing is.
        limits[bits] = code << (16 - bits) if lengths[bits - 1] > 0 else 0
        code <<= 1


@inlined
def _value(bits: int, used: int, size: int) -> int:
    """Return the value whose `size` bits end after `used` of the PAIR_BITS in `bits` (T.81 F.2.2.1, EXTEND)."""
    value = (bits >> (PAIR_BITS - used)) & ((1 << size) - 1)
    if size > 0 and value < (1 << (size - 1)):
        value += 1 - (1 << size)
    return value


@device_function
def _build_pair(single: Array, pair: Array) -> None:
    mask = (1 << PAIR_BITS) - 1
    for bits in range(1 << PAIR_BITS):
        entry = signed(single[bits >> (PAIR_BITS - SINGLE_BITS)])
        used = entry & 63
        run = (entry >> 16) & 127
        length = (entry >> 6) & 31
        size = (entry >> 11) & 31
        if entry == 0 or used > _MOST_BITS or (size > 0 and length >= PAIR_BITS):
            pair[bits] = UNDECODED << 8
            continue
        if run == END_OF_BLOCK:
            pair[bits] = used | (ENDED << 8) | (NOWHERE << 16) | (NOWHERE << 24)
            continue
        # Takes the code's bits away, and makes the value negative if its first bit is 0 (T.81 F.2.2.1, EXTEND).
        base = -((bits >> (PAIR_BITS - length)) << size)
        if size > 0 and (bits >> (PAIR_BITS - length - 1)) & 1 == 0:
            base += 1 - (1 << size)
        first = used | (run << 16) | ((base & 0xFFFF) << 32) | ((64 - used) << 56)
        pair[bits] = first | ((run + 1) << 8) | (NOWHERE << 24)
        if used >= PAIR_BITS:
            continue
        rest = (bits << used) & mask
        second = signed(single[rest >> (PAIR_BITS - SINGLE_BITS)])
        used = second & 63
        if second == 0 or (first & 63) + used > PAIR_BITS:
            continue
        second_run = (second >> 16) & 127
        value = _value(rest, used, (second >> 11) & 31)
        if second_run == END_OF_BLOCK:
            pair[bits] = (first + used) | ((ENDED + run + 1) << 8) | (NOWHERE << 24)
        elif -128 <= value <= 127:
            place = run + 1 + second_run
            pair[bits] = (first + used) | ((place + 1) << 8) | (place << 24) | ((value & 0xFF) << 48)


@device_function
def _build_skip(single: Array, skip: Array) -> None:
    mask = (1 << SKIP_BITS) - 1
    for bits in range(1 << SKIP_BITS):
        used = 0
        passed = 0
        symbols = 0
        ended = 0
        while used < SKIP_BITS and symbols < 6:
            entry = signed(single[((bits << used) & mask) >> (SKIP_BITS - SINGLE_BITS)])
            length = (entry >> 6) & 31
            run = (entry >> 16) & 127
            if entry == 0 or length > SKIP_BITS - used:
                break
            if run == END_OF_BLOCK:
                used += length
                symbols += 1
                ended = 1
                break
            # The value's bits may be outside of the index: only their number matters here.
            if used + (entry & 63) > 30 or passed + run + 1 > 63:
                break
            used += entry & 63
            passed += run + 1
            symbols += 1
        skip[bits] = used | (passed << 8) | (ended << 16) if symbols > 0 else 0


@device_function
def build_tables(
    lengths: Array,  # (16,) uint8: number of codes of each length, a prefix code
    symbols: Array,  # (256,) uint8, in code order
    is_ac: bool,  # symbols are run and size, or only size
    single: Array,  # written: bits used | code length << 6 | size << 11 | run << 16
    pair: Array,  # written for AC: see below
    skip: Array,  # written for AC: bits used | coefficients skipped << 8 | block ended << 16
    limits: Array,  # written
    offsets: Array,  # written
) -> None:
    """Build the look-up tables of one Huffman table; their shapes: see `Tables`."""
    # A `pair` entry: bits used | coefficients passed << 8 | first place << 16 | second place << 24 | number << 32 |
    # second value << 48 | shift << 56. The window shifted right, plus the number, is the first value in 16 bits.
    _build_single(lengths, symbols, is_ac, single, limits, offsets)
    if is_ac:
        _build_pair(single, pair)
        _build_skip(single, skip)


@device_function
def search(
    window: int,  # the next bits of the scan, left-aligned in 64
    limits: Array,
    offsets: Array,
    symbols: Array,
) -> tuple[int, int]:
    """Decode one symbol by the canonical search (T.81 F.2.2.3); return it and its code length, 0 if no code matches."""
    bits = shift_right_logical(window, 48)
    # Shorter codes are in the look-up table that sent us here.
    for length in range(SINGLE_BITS + 1, 17):
        if bits < limits[length]:
            return signed(symbols[(offsets[length] + (bits >> (16 - length))) & 255]), length
    return 0, 0
