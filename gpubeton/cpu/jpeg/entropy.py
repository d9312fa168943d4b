"""Huffman decoding: from the compressed scan to coefficients, block by block (T.81 F.2.2).

First `unstuff` removes stuffed zero bytes and restart markers (T.81 B.1.1.5, E.1.4). Then `decode_mcus` reads bits with
three numbers: `window` has the next bits, left-aligned in 64; `filled` counts the valid ones; `position` is the address
of the byte after them. A refill gives at least 56 bits, enough for two look-ups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from llvmlite import ir

from gpubeton.cpu.intrinsics import (
    clear,
    copy,
    load_i64,
    load_i64_big_endian,
    load_u8,
    load_u16,
    load_u32,
    shift_right_logical,
    signed,
    store_i16,
    store_i64,
    store_u8,
)
from gpubeton.cpu.jpeg.codes import CUT_SHORT, DAMAGED_SCAN, OK, SEPARATE_SCANS
from gpubeton.cpu.jpeg.huffman import END_OF_BLOCK, NOWHERE, PAIR_BITS, SINGLE_BITS, SKIP_BITS, Tables, search
from gpubeton.cpu.jpeg.idct import inverse_dct, inverse_dct_of_dc
from gpubeton.cpu.jpeg.markers import AC_TABLE, DC_TABLE, QUANTIZATION
from gpubeton.cpu.simd import I8, I32, I64, Vector, VectorBuilder, vector_kernel
from gpubeton.machine_code.compile import inlined, stage

if TYPE_CHECKING:
    from gpubeton.cpu.intrinsics import Array
    from gpubeton.cpu.scratch import Scratch

# Zero bytes after each restart interval: missing data read as zeros, and the bit reader may look ahead.
PADDING = 16
# How far one MCU can read past the end of the scan before the decoder checks: 10 blocks of 64 codes of 27 bits.
OVERRUN = 2304

_END_OF_IMAGE = 0xD9
_RESTART_0 = 0xD0
_RESTART_7 = 0xD7

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
_BLOCK_BYTES = 8 * BLOCK_FIELDS

# The bit reader: window, filled, position.
Reader: TypeAlias = tuple[int, int, int]


# --- unstuffing -------------------------------------------------------------------------------------------------------


@vector_kernel
def _marker_bits(emit: VectorBuilder, address: Vector) -> Vector:
    """Compare 32 bytes with 0xFF; return one bit for each."""
    block = emit.load(address, I8, 32)
    equal = emit.builder.icmp_unsigned("==", block.value, block.like(255).value)
    return Vector(emit.builder, emit.builder.bitcast(equal, I32)).zero_extend(I64)


@vector_kernel
def _trailing_zeros(emit: VectorBuilder, word: Vector) -> Vector:
    """Count the zero bits below the lowest set one; `word` is not zero."""
    return Vector(emit.builder, emit.builder.cttz(word.value, ir.Constant(ir.IntType(1), 1)))


@stage
def find_marker(address: int, stop: int) -> int:
    """Return the address of the first 0xFF in address..stop, or `stop`; read no byte after it."""
    while address + 32 <= stop:
        bits = _marker_bits(address)
        if bits != 0:
            return address + _trailing_zeros(bits)
        address += 32
    while address < stop and load_u8(address) != 0xFF:
        address += 1
    return address


@stage
def unstuff(
    source: int,  # address of the scan's first byte
    stop: int,  # end of the file's bytes
    target: int,  # address of the memory to fill
    target_stop: int,
    starts: Array,  # int64, written: where each restart interval starts in that memory
    ends: Array,  # int64, written: and ends
    intervals: int,  # number of intervals by the headers; 1 without restart markers
) -> int:
    """Copy a scan without its stuffing, each restart interval followed by zeros; return a code of `codes`."""
    # A scan without an end-of-image marker is incomplete: CUT_SHORT.
    target, target_stop = signed(target), signed(target_stop)
    count = 0
    starts[0] = target
    while True:
        found = find_marker(source, stop)
        # If the copy and its padding do not fit, the file has too many restart markers.
        if target + (found - source) + PADDING + OVERRUN > target_stop:
            return DAMAGED_SCAN
        copy(target, source, found - source)
        target += found - source
        if found + 1 >= stop:
            return CUT_SHORT
        marker = load_u8(found + 1)
        source = found + 2
        if marker == 0:
            store_u8(target, 0xFF)
            target += 1
        elif marker == 0xFF:
            # A fill byte: the marker starts one byte later (T.81 B.1.1.2).
            source = found + 1
        else:
            ends[count] = target
            clear(target, PADDING)
            target += PADDING
            count += 1
            if marker == _END_OF_IMAGE:
                return OK if count == intervals else DAMAGED_SCAN
            if marker < _RESTART_0 or marker > _RESTART_7:
                return SEPARATE_SCANS
            if count == intervals or marker != _RESTART_0 + ((count - 1) & 7):
                return DAMAGED_SCAN
            starts[count] = target


# --- coefficients -----------------------------------------------------------------------------------------------------


@vector_kernel
def _zero_block(emit: VectorBuilder, address: Vector) -> None:
    """Set 64 coefficients to zero."""
    for i in range(4):
        emit.store(emit.fill(I8, 32, 0), address + 32 * i, align=32)


@vector_kernel
def _second_value(emit: VectorBuilder, entry: Vector) -> Vector:
    """Return byte 6 of a `pair` entry as a signed number."""
    return entry.shift_left(8).shift_right(56)


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
def _one_symbol(window: int, lookup: int, slot: int, tables: Tables) -> tuple[int, int, int]:
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
def _decode_coefficients(
    window: int, filled: int, position: int, block: int, slot: int, tables: Tables, coefficients: int, zigzag: int
) -> tuple[int, int, int, bool]:
    """Decode the 63 AC coefficients of a block into memory that is zero."""
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
            length, size, run = _one_symbol(window, load_i64(block + 8 * AC_LOOKUP), slot, tables)
            k += run + 1
            window <<= length + size
            filled -= length + size
            if length == 0:
                sound = False
                k = 64
    return window, filled, position, sound


@stage
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


@stage
def decode_mcus(
    reader: Reader,
    limit: int,  # no intact scan reads past this address
    start: int,  # first MCU to read
    stop: int,  # last + 1
    crop_start: int,  # first MCU of the crop
    crop_stop: int,  # last + 1; equal if the row has none
    origin: int,  # the MCU whose samples come first in the strips
    blocks: int,  # address of (count, BLOCK_FIELDS) int64: the blocks of an MCU
    count: int,
    tables: Tables,
    coefficients: int,  # address of one block and room after it, int16, 32-byte aligned
    zigzag: int,  # address of `markers.ZIGZAG`
) -> tuple[Reader, bool]:
    """Decode MCUs of one row: those of the crop to samples, the others only to find the start of the next.

    Returns the reader, and True if every code existed and the data sufficed.
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
            # After the DC value there are still enough bits for one look-up.
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


@stage
def fits(reader: Reader, end: int, at_end: bool) -> bool:
    """Return True if a reader is inside a restart interval that ends at `end`, and at its end has no byte left."""
    # If whole bytes are left, a wrong code earlier made the decoder lose step. libjpeg-turbo warns of them, too.
    left = end * 8 - (reader[2] * 8 - reader[1])
    return left >= 0 and not (at_end and left >= 8)
