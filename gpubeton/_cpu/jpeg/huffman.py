"""Huffman decoding: from the compressed scan to coefficients, block by block (T.81 F.2.2).

One look-up decodes as much as possible. Three look-up tables are built from each AC table (and the first from each DC
table), indexed by the next bits:

single  uint32 (2048,)  one symbol: bits used, code length, value bits, coefficients skipped
pair    int64  (2048,)  one symbol, and a second one with its value if both fit into eleven bits
skip    uint32 (2048,)  up to six symbols without their values, for blocks outside the crop

A zero entry (in `pair`: UNDECODED) sends the decoder to the canonical search. Codes longer than eleven bits are rare:
the frequent symbols have the short codes.

A wrong guess which way an entry takes costs a processor more than two look-ups. So nearly all entries of `pair` take
the same way: the first value may have more bits than the index, because it is computed from the bits themselves.

`decode_mcus` reads the bits of an interval, see `intervals`, with three numbers: `window` has the next bits,
left-aligned in 64; `filled` counts the valid ones; `position` is the address of the byte after them. A refill gives at
least 56 bits, enough for LOOKUPS entries of a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from gpubeton._compile.compile import device_function, inlined
from gpubeton._compile.intrinsics import (
    load_i8,
    load_i64,
    load_i64_big_endian,
    load_u8,
    load_u16,
    load_u32,
    shift_right_logical,
    signed,
    store_i16,
    store_i64,
)
from gpubeton._compile.simd import I8, Vector, VectorBuilder, vector_kernel
from gpubeton._cpu.jpeg.idct import inverse_dct, inverse_dct_of_dc
from gpubeton.format.layout import ENTRY_DTYPE

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array

# Zero bytes after an interval: missing data read as zeros, and the bit reader may look ahead.
PADDING = 16
# How far one MCU can read past the end of an interval before the decoder checks: 10 blocks of 64 codes of 27 bits.
OVERRUN = 2304

# Bytes of an entry point.
ENTRY_BYTES = ENTRY_DTYPE.itemsize

# Most blocks of an MCU of several components (T.81 B.2.3).
MAX_BLOCKS = 10

# Columns of a block, int64 (MAX_BLOCKS, BLOCK_FIELDS): all that the inner loop needs, so that it looks nothing up. The
# first four are addresses of tables.
DC_LOOKUP = 0
AC_LOOKUP = 1
PAIR_LOOKUP = 2
SKIP_LOOKUP = 3
MULTIPLIERS = 4
PREDICTOR = 5  # address of the component's last DC value
STRIP = 6  # address of the block's samples in the first MCU
STRIP_STEP = 7  # bytes to those of the next MCU
DC_SLOT = 8
AC_SLOT = 9
BLOCK_FIELDS = 10

# Columns of a cursor, int64: first the intervals of an image, then how far the open one is read.
DATA = 0  # address of the JPEG
DATA_SIZE = 1
SCAN_START = 2  # offset of its scan
ENTRIES = 3  # address of an ENTRY_DTYPE for each interval
COUNT = 4  # number of intervals
LENGTH = 5  # MCUs of each but the last
MCUS = 6  # of the image
IS_INDEXED = 7  # 1 if the entry points come from an index
OPEN = 8  # number of the open interval; -1: none
NEXT_MCU = 9  # the first that is not read
WINDOW = 10  # the bit reader
FILLED = 11
POSITION = 12
END = 13  # address of the byte after the interval's copy
LEAST_LEFT = 14  # bits of the copy that are left after the interval's last MCU
MOST_LEFT = 15
CURSOR_FIELDS = 16

# --- tables -----------------------------------------------------------------------------------------------------------

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


# --- decoding ---------------------------------------------------------------------------------------------------------

_BLOCK_BYTES = 8 * BLOCK_FIELDS

# The bit reader: window, filled, position.
Reader: TypeAlias = tuple[int, int, int]


@vector_kernel
def _zero_block(emit: VectorBuilder, address: Vector) -> None:
    """Set 64 coefficients to zero."""
    for i in range(4):
        emit.store(emit.fill(I8, 32, 0), address + 32 * i, align=32)


@inlined
def _refill(window: int, filled: int, position: int) -> Reader:
    window |= shift_right_logical(load_i64_big_endian(position), filled)
    position += (63 - filled) >> 3
    return window, filled | 56, position


@inlined
def _magnitude(window: int, length: int, size: int) -> int:
    """Return the value in the `size` bits after a code (T.81 F.2.2.1, EXTEND), without a branch."""
    bits = window << length
    value = shift_right_logical(shift_right_logical(bits, 1), 63 - size)
    return value + (~(bits >> 63) & (1 - (1 << size)))


@inlined
def one_symbol(window: int, lookup: int, slot: int, tables: Tables) -> tuple[int, int, int]:
    """Decode one symbol; return the code length (0: none matches), value bits and coefficients to skip."""
    entry = load_u32(lookup + shift_right_logical(window, 64 - SINGLE_BITS) * 4)
    if entry != 0:
        return (entry >> 6) & 31, (entry >> 11) & 31, (entry >> 16) & 127
    symbol, length = search(window, tables.limits[slot], tables.offsets[slot], tables.source[slot, 16:])
    size = symbol & 15
    run = symbol >> 4
    if slot >= 4 and size == 0 and run != 15:
        run = END_OF_BLOCK
    return length, size, run


@inlined
def _store_first(window: int, entry: int, place: int, coefficients: int) -> None:
    """Store the first value of a `pair` entry: its bits, with the code's bits before them, plus a number."""
    value = shift_right_logical(window, load_u8(entry + 7)) + load_u16(entry + 4)
    store_i16(coefficients + 2 * load_u8(place + load_u8(entry + 2)), value)


@inlined
def _decode_coefficients(
    window: int, filled: int, position: int, block: int, slot: int, tables: Tables, coefficients: int, places: int
) -> tuple[int, int, int, bool]:
    """Decode the 63 AC coefficients of a block into memory that is zero."""
    lookup = load_i64(block + 8 * PAIR_LOOKUP)
    sound = True
    # Addresses: of the next coefficient's place, and after the last one's.
    place, stop = places + 1, places + 64
    while place < stop:
        window, filled, position = _refill(window, filled, position)
        entry, after = lookup, place
        for _ in range(LOOKUPS):
            entry = lookup + shift_right_logical(window, 64 - PAIR_BITS) * 8
            after = place + load_u8(entry + 1)
            if after >= stop:
                break
            # Each part is loaded by itself: that takes half as many instructions as to shift it out of 64 bits.
            _store_first(window, entry, place, coefficients)
            store_i16(coefficients + 2 * load_u8(place + load_u8(entry + 3)), load_i8(entry + 6))
            place = after
            used = load_u8(entry)
            window <<= used
            filled -= used
        if after < stop:
            continue
        # The block ends with this entry, or it takes one symbol at a time.
        passed = load_u8(entry + 1)
        if ENDED <= passed < UNDECODED and place + passed - ENDED < stop:
            _store_first(window, entry, place, coefficients)
            used = load_u8(entry)
            window <<= used
            filled -= used
            break
        window, filled, position = _refill(window, filled, position)
        length, size, run = one_symbol(window, load_i64(block + 8 * AC_LOOKUP), slot, tables)
        store_i16(coefficients + 2 * load_u8(place + run), _magnitude(window, length, size))
        place += run + 1
        window <<= length + size
        filled -= length + size
        if length == 0:
            sound = False
            break
    return window, filled, position, sound


@inlined
def _skip_coefficients(
    window: int, filled: int, position: int, block: int, slot: int, tables: Tables
) -> tuple[int, int, int, bool]:
    """Skip the 63 AC coefficients of a block."""
    lookup = load_i64(block + 8 * SKIP_LOOKUP)
    sound = True
    k = 1
    while k < 64:
        window, filled, position = _refill(window, filled, position)
        entry = load_u32(lookup + shift_right_logical(window, 64 - SKIP_BITS) * 4)
        passed = (entry >> 8) & 255
        ended = entry >> 16
        if entry != 0 and k + passed + ended <= 64:
            window <<= entry & 63
            filled -= entry & 63
            if ended != 0:
                break
            k += passed
        else:
            length, size, run = one_symbol(window, load_i64(block + 8 * AC_LOOKUP), slot, tables)
            k += run + 1
            window <<= length + size
            filled -= length + size
            if length == 0:
                sound = False
                k = 64
    return window, filled, position, sound


@device_function
def decode_mcus(
    reader: Reader,
    limit: int,  # no intact scan reads past this address
    start: int,  # first MCU to read, counted from the first of a row
    stop: int,  # last + 1
    first_decoded: int,  # the first whose samples are wanted
    origin: int,  # the MCU whose samples come first in the strips
    blocks: int,  # address of (count, BLOCK_FIELDS) int64: the blocks of an MCU
    count: int,
    tables: Tables,
    coefficients: int,  # address of one block and room after it, int16, 32-byte aligned
    places: int,  # address of `markers.SCAN_PLACES`
) -> tuple[Reader, bool]:
    """Skip MCUs up to the first wanted one, and decode the others to samples."""
    # Returns the reader, and True if every code existed and the data sufficed.
    window, filled, position = reader
    sound = True
    for column in range(start, stop):
        if position > limit:
            sound = False
            break
        is_wanted = column >= first_decoded
        block = signed(blocks)
        for _ in range(count):
            window, filled, position = _refill(window, filled, position)
            slot = load_i64(block + 8 * DC_SLOT)
            length, size, _ = one_symbol(window, load_i64(block + 8 * DC_LOOKUP), slot, tables)
            predictor = load_i64(block + 8 * PREDICTOR)
            value = _magnitude(window, length, size) + load_i64(predictor)
            store_i64(predictor, value)
            window <<= length + size
            filled -= length + size
            slot = load_i64(block + 8 * AC_SLOT)
            strip = load_i64(block + 8 * STRIP) + (column - origin) * load_i64(block + 8 * STRIP_STEP)
            multipliers = load_i64(block + 8 * MULTIPLIERS)
            # After the DC value there are still enough bits for one look-up.
            entry = load_i64(block + 8 * PAIR_LOOKUP) + shift_right_logical(window, 64 - PAIR_BITS) * 8
            intact = True
            if is_wanted and load_u8(entry + 1) == ENDED:
                inverse_dct_of_dc(value, load_u16(multipliers), strip)
                used = load_u8(entry)
                window <<= used
                filled -= used
            elif is_wanted:
                _zero_block(coefficients)
                store_i16(coefficients, value)
                window, filled, position, intact = _decode_coefficients(
                    window, filled, position, block, slot, tables, coefficients, places
                )
                inverse_dct(coefficients, multipliers, strip)
            else:
                window, filled, position, intact = _skip_coefficients(window, filled, position, block, slot, tables)
            sound = sound and intact and length != 0
            block += _BLOCK_BYTES
    return (window, filled, position), sound
