"""From compressed bits to coefficients: Huffman decoding of one MCU row (T.81 F.2.2).

The bit reader is three numbers. `window` holds the next bits, left-aligned in 64; `filled` says how many of them are
certain; `position` is the address of the byte after them. One refill gives at least 56 bits, enough for two look-ups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.cpu.compile import inlined, stage
from gpubeton.cpu.jpeg.huffman import END_OF_BLOCK, NOWHERE, PAIR_BITS, SINGLE_BITS, SKIP_BITS, search
from gpubeton.cpu.jpeg.idct import inverse_dct, inverse_dct_of_dc
from gpubeton.cpu.lanes import I8, Emitter, Lanes, vector_kernel
from gpubeton.cpu.memory import (
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

if TYPE_CHECKING:
    from gpubeton.cpu.jpeg.tables import Tables
    from gpubeton.cpu.types import Reader

# Most blocks of an MCU of several components (T.81 B.2.3).
MAX_BLOCKS = 10

# A block's row in `blocks`, int64 (MAX_BLOCKS, BLOCK_FIELDS): all that decoding it needs, so that the loop over the
# blocks of an MCU does no look-ups. The first four are addresses of tables.
DC_LOOKUP = 0
AC_LOOKUP = 1
PAIR_LOOKUP = 2
SKIP_LOOKUP = 3
MULTIPLIERS = 4
PREDICTOR = 5  # address of the component's last DC value
STRIP = 6  # where the block's samples go in the crop's first MCU
STRIP_STEP = 7  # and how much further in each next one
DC_SLOT = 8
AC_SLOT = 9
BLOCK_FIELDS = 10
_BLOCK_BYTES = 8 * BLOCK_FIELDS


@vector_kernel
def _zero_block(emit: Emitter, address: Lanes) -> None:
    """Set 64 coefficients to zero."""
    for i in range(4):
        emit.store(emit.fill(I8, 32, 0), address + 32 * i, align=32)


@vector_kernel
def _second_value(emit: Emitter, entry: Lanes) -> Lanes:
    """Return byte 6 of a `pair` entry as a signed number."""
    return entry.shift_left(8).shift_right(56)


@inlined
def _refill(window: int, filled: int, position: int) -> Reader:
    window |= shift_right_logical(load_i64_big_endian(position), filled)
    position += (63 - filled) >> 3
    return window, filled | 56, position


@inlined
def _magnitude(window: int, length: int, size: int) -> int:
    """The value in the `size` bits behind a code (T.81 F.2.2.1, EXTEND), without a branch."""
    bits = window << length
    value = shift_right_logical(shift_right_logical(bits, 1), 63 - size)
    return value + (~(bits >> 63) & (1 - (1 << size)))


@inlined
def _one_symbol(window: int, lookup: int, slot: int, tables: Tables) -> tuple[int, int, int]:
    """Decode one symbol: code length (0: none matches), value bits, coefficients passed over."""
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
def _decode_coefficients(
    window: int, filled: int, position: int, block: int, slot: int, tables: Tables, coefficients: int, zigzag: int
) -> tuple[int, int, int, bool]:
    """Decode the 63 AC coefficients of a block into zeroed memory."""
    lookup = load_i64(block + 8 * PAIR_LOOKUP)
    sound = True
    k = 1
    while k < 64:
        window, filled, position = _refill(window, filled, position)
        for _ in range(2):
            entry = load_i64(lookup + shift_right_logical(window, 64 - PAIR_BITS) * 8)
            if k + ((entry >> 16) & 127) <= 63:
                store_i16(coefficients + 2 * load_u8(zigzag + k + ((entry >> 24) & 255)), entry >> 32)
                store_i16(coefficients + 2 * load_u8(zigzag + k + shift_right_logical(entry, 56)), _second_value(entry))
                k += (entry >> 8) & 255
                window <<= entry & 63
                filled -= entry & 63
                if k >= 64:
                    break
            else:
                length, size, run = _one_symbol(window, load_i64(block + 8 * AC_LOOKUP), slot, tables)
                k += run
                store_i16(coefficients + 2 * load_u8(zigzag + k), _magnitude(window, length, size))
                k += 1
                window <<= length + size
                filled -= length + size
                if length == 0:
                    sound = False
                    k = 64
                break
    return window, filled, position, sound


@inlined
def _skip_coefficients(
    window: int, filled: int, position: int, block: int, slot: int, tables: Tables
) -> tuple[int, int, int, bool]:
    """Pass over the 63 AC coefficients of a block."""
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
            length, size, run = _one_symbol(window, load_i64(block + 8 * AC_LOOKUP), slot, tables)
            k += run + 1
            window <<= length + size
            filled -= length + size
            if length == 0:
                sound = False
                k = 64
    return window, filled, position, sound


@stage
def decode_mcus(
    reader: Reader,
    limit: int,
    start: int,
    stop: int,
    crop_start: int,
    crop_stop: int,
    origin: int,
    blocks: int,
    count: int,
    tables: Tables,
    coefficients: int,
    zigzag: int,
) -> tuple[Reader, bool]:
    """Decode MCUs of one row: those of the crop to samples, the others only to find where the next one starts.

    Parameters
    ----------
    reader : tuple of int
        Window, filled, position.
    limit : int
        Address that no sound scan reads past.
    start, stop : int
        First and last + 1 MCU to read.
    crop_start, crop_stop : int
        MCUs that are wanted; equal if none of this row is.
    origin : int
        The MCU whose samples stand first in the strips.
    blocks : int
        Address of the rows that describe the blocks of an MCU.
    count : int
        Blocks of an MCU.
    tables : Tables
        See `scratch`.
    coefficients : int
        Address of one block and a place behind it, 32-byte aligned.
    zigzag : int
        Address of ``markers.ZIGZAG``.

    Returns
    -------
    tuple
        The reader, and whether every code existed and the data sufficed.
    """
    window, filled, position = reader
    sound = True
    for column in range(start, stop):
        if position > limit:
            sound = False
            break
        wanted = crop_start <= column < crop_stop
        block = signed(blocks)
        for _ in range(count):
            window, filled, position = _refill(window, filled, position)
            slot = load_i64(block + 8 * DC_SLOT)
            length, size, _ = _one_symbol(window, load_i64(block + 8 * DC_LOOKUP), slot, tables)
            predictor = load_i64(block + 8 * PREDICTOR)
            value = _magnitude(window, length, size) + load_i64(predictor)
            store_i64(predictor, value)
            window <<= length + size
            filled -= length + size
            slot = load_i64(block + 8 * AC_SLOT)
            strip = load_i64(block + 8 * STRIP) + (column - origin) * load_i64(block + 8 * STRIP_STEP)
            multipliers = load_i64(block + 8 * MULTIPLIERS)
            # The refill for the DC value left enough bits for one look-up.
            entry = load_i64(load_i64(block + 8 * PAIR_LOOKUP) + shift_right_logical(window, 64 - PAIR_BITS) * 8)
            intact = True
            if wanted and (entry >> 24) & 255 == NOWHERE:
                inverse_dct_of_dc(value, load_u16(multipliers), strip)
                window <<= entry & 63
                filled -= entry & 63
            elif wanted:
                _zero_block(coefficients)
                store_i16(coefficients, value)
                window, filled, position, intact = _decode_coefficients(
                    window, filled, position, block, slot, tables, coefficients, zigzag
                )
                inverse_dct(coefficients, multipliers, strip)
            else:
                window, filled, position, intact = _skip_coefficients(window, filled, position, block, slot, tables)
            sound = sound and intact and length != 0
            block += _BLOCK_BYTES
    return (window, filled, position), sound
