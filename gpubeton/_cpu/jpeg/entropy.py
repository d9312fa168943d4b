"""Huffman decoding: from the compressed scan to coefficients, block by block (T.81 F.2.2).

`decode_mcus` reads the bits of an interval, see `intervals`, with three numbers: `window` has the next bits,
left-aligned in 64; `filled` counts the valid ones; `position` is the address of the byte after them. A refill gives at
least 56 bits, enough for LOOKUPS entries of a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

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
from gpubeton._cpu.jpeg.columns import (
    AC_LOOKUP,
    AC_SLOT,
    BLOCK_FIELDS,
    DC_LOOKUP,
    DC_SLOT,
    MULTIPLIERS,
    PAIR_LOOKUP,
    PREDICTOR,
    SKIP_LOOKUP,
    STRIP,
    STRIP_STEP,
)
from gpubeton._cpu.jpeg.huffman import (
    END_OF_BLOCK,
    ENDED,
    LOOKUPS,
    PAIR_BITS,
    SINGLE_BITS,
    SKIP_BITS,
    UNDECODED,
    Tables,
    search,
)
from gpubeton._cpu.jpeg.idct import inverse_dct, inverse_dct_of_dc
from gpubeton._cpu.jpeg.markers import AC_TABLE, COMPONENTS, DC_TABLE, LUMA_ACROSS, LUMA_DOWN, QUANTIZATION

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array
    from gpubeton._cpu.image_tasks import Scratch

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
def describe_block(frame: Array, scratch: Scratch, component: int, row: Array) -> None:
    """Fill one row of `scratch.blocks`, except for the addresses of its samples."""
    tables = scratch.tables
    dc, ac = frame[DC_TABLE + component], frame[AC_TABLE + component]
    row[DC_SLOT] = dc
    row[AC_SLOT] = 4 + ac
    row[DC_LOOKUP] = tables.single[dc].ctypes.data
    row[AC_LOOKUP] = tables.single[4 + ac].ctypes.data
    row[PAIR_LOOKUP] = tables.pair[ac].ctypes.data
    row[SKIP_LOOKUP] = tables.skip[ac].ctypes.data
    row[MULTIPLIERS] = tables.multipliers[frame[QUANTIZATION + component]].ctypes.data
    row[PREDICTOR] = scratch.predictors.ctypes.data + 8 * component


@device_function
def describe_blocks(frame: Array, scratch: Scratch) -> int:
    """Describe all blocks of an MCU of usual sampling; return their number."""
    luma_blocks = frame[LUMA_ACROSS] * frame[LUMA_DOWN]
    count: int = luma_blocks + frame[COMPONENTS] - 1
    for i in range(count):
        describe_block(frame, scratch, max(0, i - luma_blocks + 1), scratch.blocks[i])
    return count


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
