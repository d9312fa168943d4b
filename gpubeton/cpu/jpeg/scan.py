"""The compressed scan made readable: stuffed zero bytes and restart markers taken out (T.81 B.1.1.5, E.1.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from gpubeton.cpu.compile import stage
from gpubeton.cpu.jpeg.codes import CUT_SHORT, DAMAGED_SCAN, OK, SEPARATE_SCANS
from gpubeton.cpu.lanes import I8, I32, I64, Emitter, Lanes, vector_kernel
from gpubeton.cpu.memory import clear, copy, load_u8, signed, store_u8

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array

# Zero bytes behind each restart interval: what is missing reads as zeros, and the bit reader may look ahead.
PADDING = 16
# How far one MCU can read past the end of the scan before the decoder looks: 10 blocks of 64 codes of 27 bits.
OVERRUN = 2304

_END_OF_IMAGE = 0xD9
_RESTART_0 = 0xD0
_RESTART_7 = 0xD7


@vector_kernel
def _marker_bits(emit: Emitter, address: Lanes) -> Lanes:
    """Return a word whose bit i tells whether byte `address` + i, of 32, is 0xFF."""
    block = emit.load(address, I8, 32)
    equal = emit.builder.icmp_unsigned("==", block.value, block.like(255).value)
    return Lanes(emit.builder, emit.builder.bitcast(equal, I32)).zero_extend(I64)


@vector_kernel
def _trailing_zeros(emit: Emitter, word: Lanes) -> Lanes:
    """Return the number of zero bits below the lowest set one; `word` is not zero."""
    return Lanes(emit.builder, emit.builder.cttz(word.value, ir.Constant(ir.IntType(1), 1)))


@stage
def find_marker(address: int, stop: int) -> int:
    """Return the address of the first 0xFF in address..stop, or `stop`; reads nothing beyond."""
    while address + 32 <= stop:
        bits = _marker_bits(address)
        if bits != 0:
            return address + _trailing_zeros(bits)
        address += 32
    while address < stop and load_u8(address) != 0xFF:
        address += 1
    return address


@stage
def unstuff(source: int, stop: int, target: int, target_stop: int, starts: Array, ends: Array, intervals: int) -> int:
    """Copy one scan without its stuffing, each restart interval followed by zeros.

    Parameters
    ----------
    source, stop : int
        Addresses: the scan's first byte and the end of the file's bytes.
    target, target_stop : int
        Addresses of the memory to fill.
    starts, ends : ndarray of int64
        Written: where each restart interval starts and ends in that memory.
    intervals : int
        How many intervals the headers promise; 1 without restart markers.

    Returns
    -------
    int
        A code of `codes`. The scan ends with the end-of-image marker, or it is not all there.
    """
    target, target_stop = signed(target), signed(target_stop)
    count = 0
    starts[0] = target
    while True:
        found = find_marker(source, stop)
        # The copy and all that may follow it fit, or the file holds more restart markers than it should.
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
