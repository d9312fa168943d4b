"""Find the entry points of JPEGs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton._compile.compile import compiled, device_function
from gpubeton._compile.intrinsics import load_u8, signed, store_i16, store_i64
from gpubeton._cpu.image_tasks import Scratch, allocate
from gpubeton._cpu.jpeg.codes import OK
from gpubeton._cpu.jpeg.columns import ENTRY_BYTES, FILLED, POSITION
from gpubeton._cpu.jpeg.entropy import describe_blocks
from gpubeton._cpu.jpeg.intervals import LARGEST_JPEG, find_intervals, find_marker, read_mcus, seal_of
from gpubeton._cpu.jpeg.markers import (
    MCUS_ACROSS,
    MCUS_DOWN,
    RESTART_INTERVAL,
    SCAN,
    read_headers,
)
from gpubeton.format.entry_points import EntryBlock
from gpubeton.format.layout import ENTRY_DTYPE, MCUS_PER_ENTRY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton._compile.intrinsics import Array


@device_function
def _find_in_scan(address: int, size: int, target: int, count: int, scratch: Scratch) -> bool:
    """Write the `count` entry points of a JPEG whose headers are read; return False if its scan looks damaged."""
    frame, values, cursor = scratch.frame, scratch.predictors, scratch.cursor
    mcus = frame[MCUS_ACROSS] * frame[MCUS_DOWN]
    source, stop, scan = address + frame[SCAN], address + size, signed(scratch.scan.ctypes.data)
    if find_intervals(address, size, frame, mcus, scratch) != OK:
        return False
    blocks = describe_blocks(frame, scratch)
    values[:] = 0
    bit = 8 * scan
    # `source` and `scan` are the same byte in the JPEG and in the copy; `marker` is the next 0xFF of the JPEG.
    marker = find_marker(source, stop)
    for first in range(0, mcus, MCUS_PER_ENTRY):
        while scan + marker - source < bit >> 3:
            if load_u8(marker + 1) != 0:
                return False  # a fill byte, which only markers may have before them
            scan += marker - source + 1
            source = marker + 2
            marker = find_marker(source, stop)
        if not (min(values[0], values[1], values[2]) >= -32768 and max(values[0], values[1], values[2]) <= 32767):
            return False
        place = ((source + (bit >> 3) - scan - address) << 3) | (bit & 7)
        store_i64(target, place | ((values[0] & 0xFFFF) << 32) | (values[1] << 48))
        store_i16(target + 8, values[2])
        target += ENTRY_BYTES
        last = min(first + MCUS_PER_ENTRY, mcus)
        if read_mcus(first, last, False, 0, 0, blocks, scratch) != OK:
            return False
        bit = 8 * cursor[POSITION] - cursor[FILLED]
    return True


@device_function
def _find(address: int, size: int, target: int, room: int, scratch: Scratch) -> int:
    """Write the entry points of one JPEG; return their number, 0 if it gets none."""
    frame = scratch.frame
    if size > LARGEST_JPEG or read_headers(address, size, frame, scratch.tables) != OK:
        return 0
    mcus = frame[MCUS_ACROSS] * frame[MCUS_DOWN]
    count: int = (mcus + MCUS_PER_ENTRY - 1) // MCUS_PER_ENTRY
    # Restart markers are entry points themselves.
    if 0 < frame[RESTART_INTERVAL] < mcus or count > room:
        return 0
    return count if _find_in_scan(address, size, target, count, scratch) else 0


@compiled
def write_entries(
    address: Array,  # (N,) uint64
    size: Array,  # (N,) uint64: bytes
    first: Array,  # (N + 1,) uint64, written
    seals: Array,  # (N,) uint32, written
    entries: Array,  # (M, 10) uint8, written
    scratch: Scratch,
) -> None:
    """Write the entry points and seals of JPEGs, one image after the other."""
    done = 0
    for i in range(address.size):
        first[i] = done
        at, bytes_ = signed(address[i]), signed(size[i])
        target = signed(entries.ctypes.data) + ENTRY_BYTES * done
        count = _find(at, bytes_, target, entries.shape[0] - done, scratch)
        seals[i] = seal_of(at, scratch.frame[SCAN], bytes_, target, count) if count > 0 else 0
        done += count
    first[address.size] = done


def find_entries(
    address: NDArray[np.uint64],  # (N,)
    size: NDArray[np.uint64],  # (N,) bytes
) -> EntryBlock:
    """Find the entry points of JPEGs in memory; one that the crop decoder does not decode, or is damaged, has none."""
    # A block has at least two bits, so that eight MCUs have at least two bytes. Unused rows are never touched.
    room = int((size // np.uint64(2) + np.uint64(1)).sum())
    first, seals = np.zeros(len(size) + 1, np.uint64), np.zeros(len(size), np.uint32)
    entries = np.empty((room, ENTRY_BYTES), np.uint8)
    largest = min(int(size.max(initial=0)), LARGEST_JPEG)
    write_entries(address, size, first, seals, entries, allocate((8, 8, largest), (8, 8), 1))
    return EntryBlock(first, seals, entries[: int(first[-1])].copy().view(ENTRY_DTYPE).reshape(-1))
