"""Intervals: the parts of a scan that are decoded without the data before them.

They begin at entry points: at those that an index has, or after restart markers (T.81 E.1.4). A scan without either is
one interval. Only the intervals that a crop needs are read, each when it is needed: its bytes are copied without their
stuffing, and decoded as far as the crop goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from gpubeton._compile.compile import device_function, inlined
from gpubeton._compile.intrinsics import (
    clear,
    copy,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    shift_right_logical,
    signed,
    store_i16,
    store_i64,
    store_u8,
)
from gpubeton._compile.simd import I8, I32, I64, Vector, VectorBuilder, vector_kernel
from gpubeton._cpu.jpeg.codes import CUT_SHORT, DAMAGED_SCAN, MANY_INTERVALS, OK, SEPARATE_SCANS
from gpubeton._cpu.jpeg.huffman import (
    COUNT,
    DATA,
    DATA_SIZE,
    END,
    ENTRIES,
    ENTRY_BYTES,
    FILLED,
    IS_INDEXED,
    LEAST_LEFT,
    LENGTH,
    MCUS,
    MOST_LEFT,
    NEXT_MCU,
    OPEN,
    PADDING,
    POSITION,
    SCAN_START,
    WINDOW,
    decode_mcus,
)
from gpubeton._cpu.jpeg.markers import MCUS_ACROSS, MCUS_DOWN, RESTART_INTERVAL, SCAN
from gpubeton.format.layout import MCUS_PER_ENTRY

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array
    from gpubeton._cpu.image_tasks import Scratch

# Bits are counted in 32 bits.
LARGEST_JPEG = (1 << 29) - 1

_END_OF_IMAGE = 0xD9
_RESTART_0 = 0xD0
_RESTART_7 = 0xD7


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


@device_function
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


@device_function
def next_marker(source: int, stop: int) -> tuple[int, int]:
    """Find the next marker of a scan; return it and the address after it. It is 0 if the data end before."""
    while True:
        prefix = find_marker(source, stop)
        if prefix + 1 >= stop:
            return 0, stop
        marker = load_u8(prefix + 1)
        # After 0xFF, a zero is stuffed, and another 0xFF may begin a marker (T.81 B.1.1.2).
        source = prefix + 1 if marker == 0xFF else prefix + 2
        if marker not in (0, 0xFF):
            return marker, source


@device_function
def unstuff(
    source: int,  # address of the first byte
    stop: int,  # address after the last
    data_stop: int,  # end of the JPEG: no byte from there on is read
    target: int,  # address with room for as many bytes and PADDING
) -> tuple[int, int]:
    """Copy a part of a scan without its stuffing, up to a marker, and zeros after it; return the marker and the end."""
    # The marker is 0 if there was none.
    target = signed(target)
    marker = 0
    while marker == 0:
        prefix = find_marker(source, stop)
        copy(target, source, prefix - source)
        target += prefix - source
        if prefix >= stop or prefix + 1 >= data_stop:
            break
        marker = load_u8(prefix + 1)
        source = prefix + 2
        if marker == 0:
            store_u8(target, 0xFF)
            target += 1
        elif marker == 0xFF:
            # A fill byte: the marker starts one byte later (T.81 B.1.1.2).
            marker = 0
            source = prefix + 1
    clear(target, PADDING)
    return marker, target


@device_function
def _begin(address: int, size: int, frame: Array, mcus: int, length: int, entries: int, scratch: Scratch) -> None:
    """Begin an image whose intervals have `length` MCUs."""
    cursor = scratch.cursor
    cursor[DATA], cursor[DATA_SIZE], cursor[SCAN_START] = address, size, frame[SCAN]
    cursor[MCUS], cursor[LENGTH], cursor[COUNT] = mcus, length, -(-mcus // length)
    cursor[ENTRIES], cursor[IS_INDEXED], cursor[OPEN] = entries, 0, -1


@device_function
def _write_entry(target: int, offset: int) -> None:
    store_i64(target, 8 * offset)
    store_i16(target + 8, 0)


@device_function
def find_intervals(address: int, size: int, frame: Array, mcus: int, scratch: Scratch) -> int:
    """Find the intervals between the restart markers of a scan; return a code of `codes`."""
    cursor = scratch.cursor
    length = frame[RESTART_INTERVAL] if frame[RESTART_INTERVAL] > 0 else mcus
    _begin(address, size, frame, mcus, length, scratch.entries.ctypes.data, scratch)
    if cursor[COUNT] > scratch.entries.size // ENTRY_BYTES:
        return MANY_INTERVALS
    _write_entry(cursor[ENTRIES], frame[SCAN])
    if cursor[COUNT] == 1:
        return OK
    if size > LARGEST_JPEG:
        return MANY_INTERVALS
    source, stop = address + frame[SCAN], address + size
    for count in range(1, cursor[COUNT] + 1):
        marker, source = next_marker(source, stop)
        if marker == 0:
            return CUT_SHORT
        if marker == _END_OF_IMAGE:
            return OK if count == cursor[COUNT] else DAMAGED_SCAN
        if marker < _RESTART_0 or marker > _RESTART_7:
            return SEPARATE_SCANS
        if count == cursor[COUNT] or marker != _RESTART_0 + ((count - 1) & 7):
            return DAMAGED_SCAN
        _write_entry(cursor[ENTRIES] + ENTRY_BYTES * count, source - address)
    return DAMAGED_SCAN


@device_function
def _entry_value(entry: int, component: int) -> int:
    """Return a component's DC value at an entry point."""
    return (load_u16(entry + 4 + 2 * component) ^ 0x8000) - 0x8000


@device_function
def _open(number: int, scratch: Scratch) -> int:
    """Copy an interval and begin to read it; return a code of `codes`."""
    cursor = scratch.cursor
    entry = cursor[ENTRIES] + ENTRY_BYTES * number
    is_last = number + 1 == cursor[COUNT]
    begin = load_u32(entry)
    stop = 8 * cursor[DATA_SIZE] if is_last else load_u32(entry + ENTRY_BYTES)
    # An index may have any values.
    if not 8 * cursor[SCAN_START] <= begin < stop <= 8 * cursor[DATA_SIZE]:
        return DAMAGED_SCAN
    data, target = cursor[DATA], signed(scratch.scan.ctypes.data)
    marker, end = unstuff(data + (begin >> 3), data + ((stop + 7) >> 3), data + cursor[DATA_SIZE], target)
    if is_last and marker != _END_OF_IMAGE:
        if marker == 0:
            return CUT_SHORT
        return DAMAGED_SCAN if _RESTART_0 <= marker <= _RESTART_7 else SEPARATE_SCANS
    is_exact = cursor[IS_INDEXED] == 1 and not is_last
    if is_exact and marker != 0:
        return DAMAGED_SCAN
    cursor[OPEN], cursor[NEXT_MCU], cursor[END] = number, number * cursor[LENGTH], end
    cursor[LEAST_LEFT] = -stop & 7 if is_exact else 0
    # Fewer than eight bits fill the last byte. If whole bytes are left, a wrong code earlier made the decoder lose
    # step; libjpeg-turbo warns of them, too.
    cursor[MOST_LEFT] = cursor[LEAST_LEFT] if is_exact else 7
    cursor[WINDOW] = load_u8(target) << (56 + (begin & 7))
    cursor[FILLED] = 8 - (begin & 7)
    cursor[POSITION] = target + 1
    for component in range(3):
        scratch.predictors[component] = _entry_value(entry, component)
    return OK


@device_function
def _is_intact(at_end: bool, scratch: Scratch) -> bool:
    """Return True if the reader is inside the open interval; at its end, if it is where the next one begins."""
    cursor = scratch.cursor
    left = 8 * (cursor[END] - cursor[POSITION]) + cursor[FILLED]
    if left < cursor[LEAST_LEFT] or (at_end and left > cursor[MOST_LEFT]):
        return False
    if at_end and cursor[IS_INDEXED] == 1 and cursor[OPEN] + 1 < cursor[COUNT]:
        entry = cursor[ENTRIES] + ENTRY_BYTES * (cursor[OPEN] + 1)
        for component in range(3):
            if scratch.predictors[component] != _entry_value(entry, component):
                return False
    return True


@device_function
def read_mcus(
    first: int,
    stop: int,  # last + 1
    is_wanted: bool,  # False: decode no samples
    row_start: int,  # the first MCU of their row
    origin: int,  # the MCU of each row whose samples come first in the strips
    blocks: int,  # of an MCU
    scratch: Scratch,
) -> int:
    """Decode MCUs of one row; return a code of `codes`."""
    # The reader skips from where it is to the first, or from the beginning of the interval that has it.
    cursor = scratch.cursor
    while first < stop:
        number = first // cursor[LENGTH]
        if number != cursor[OPEN]:
            code = _open(number, scratch)
            if code != OK:
                return code
        interval_stop = min((number + 1) * cursor[LENGTH], cursor[MCUS])
        last = min(stop, interval_stop)
        reader, is_sound = decode_mcus(
            (cursor[WINDOW], cursor[FILLED], cursor[POSITION]),
            cursor[END] + PADDING,
            cursor[NEXT_MCU] - row_start,
            last - row_start,
            (first if is_wanted else last) - row_start,
            origin,
            scratch.blocks.ctypes.data,
            blocks,
            scratch.tables,
            scratch.coefficients.ctypes.data,
            scratch.scan_places.ctypes.data,
        )
        cursor[WINDOW], cursor[FILLED], cursor[POSITION] = reader
        cursor[NEXT_MCU] = first = last
        if not is_sound or not _is_intact(last == interval_stop, scratch):
            return DAMAGED_SCAN
    return OK


# --- seals -----------------------------------------------------------------------------------------------------------

# 2 ** 64 divided by the golden ratio, as an int64.
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
# Words of the compressed data that a seal covers.
_PROBES = 16


@inlined
def _mix(state: int, word: int) -> int:
    """Add a word to a hash: another word always gives another state."""
    state = (state ^ word) * _FACTOR
    return state ^ shift_right_logical(state, 32)


@device_function
def _mix_bytes(state: int, address: int, size: int) -> int:
    stop = address + size
    while address + 8 <= stop:
        state = _mix(state, load_i64(address))
        address += 8
    rest = 0
    while address < stop:
        rest = (rest << 8) | load_u8(address)
        address += 1
    return _mix(state, rest)


@device_function
def seal_of(
    address: int,  # of the JPEG
    scan: int,  # offset of its compressed data
    size: int,  # bytes of the JPEG
    entries: int,  # address of its entry points
    count: int,  # number of them
) -> int:
    """Hash into 32 bits a JPEG's size, its headers, samples of its compressed data, and its entry points."""
    address, scan, size, entries, count = signed(address), signed(scan), signed(size), signed(entries), signed(count)
    state = _mix(_mix(_mix(_FACTOR, size), scan), count)
    state = _mix_bytes(state, address, scan)
    state = _mix_bytes(state, entries, ENTRY_BYTES * count)
    # Images of the same size and headers may have changed places.
    step = (size - scan - 8) // _PROBES
    if step > 0:
        for i in range(_PROBES):
            state = _mix(state, load_i64(address + scan + i * step))
    return state & 0xFFFFFFFF


@device_function
def entry_digest(entries: int, count: int) -> int:
    """Hash entry points alone into 31 bits."""
    return _mix_bytes(_FACTOR, signed(entries), ENTRY_BYTES * count) & 0x7FFFFFFF


@device_function
def is_index_of(
    address: int,  # of the JPEG
    frame: Array,  # of its headers
    size: int,  # bytes of the JPEG
    entries: int,  # address of its entry points
    count: int,  # number of them
    seal: int,
) -> bool:
    """Return True if entry points fit a JPEG: by its seal, and in order from the beginning of its scan to its end."""
    # Anyone can make a seal: what decoders take for granted is checked, so that all of them see the same.
    mcus = frame[MCUS_ACROSS] * frame[MCUS_DOWN]
    if count != -(-mcus // MCUS_PER_ENTRY) or 0 < frame[RESTART_INTERVAL] < mcus:
        return False
    bit = load_u32(entries)
    if bit != 8 * frame[SCAN]:
        return False
    for component in range(3):
        if _entry_value(entries, component) != 0:
            return False
    for number in range(1, count):
        before, bit = bit, load_u32(entries + ENTRY_BYTES * number)
        if bit <= before:
            return False
    return bit < 8 * size and seal_of(address, frame[SCAN], size, entries, count) == seal


@device_function
def take_index(address: int, size: int, frame: Array, mcus: int, entries: int, scratch: Scratch) -> None:
    """Take the intervals of an image from its index."""
    _begin(address, size, frame, mcus, MCUS_PER_ENTRY, entries, scratch)
    scratch.cursor[IS_INDEXED] = 1
