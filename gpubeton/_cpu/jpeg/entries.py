"""Find the entry points of JPEGs; and the intervals that crops need, for a decoder with a thread for each interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton._compile.compile import compiled, device_function
from gpubeton._compile.intrinsics import copy, load_i64, load_u8, signed, store_i16, store_i64
from gpubeton._cpu.image_tasks import Scratch, allocate
from gpubeton._cpu.jpeg.codes import OK
from gpubeton._cpu.jpeg.huffman import ENTRY_BYTES, FILLED, POSITION, Tables, allocate_tables
from gpubeton._cpu.jpeg.intervals import (
    LARGEST_JPEG,
    entry_digest,
    find_intervals,
    find_marker,
    is_index_of,
    next_marker,
    read_mcus,
    seal_of,
)
from gpubeton._cpu.jpeg.markers import (
    AC_TABLE,
    DC_TABLE,
    FRAME_SIZE,
    MCUS_ACROSS,
    MCUS_DOWN,
    QUANTIZATION,
    RESTART_INTERVAL,
    SCAN_PLACES,
    ZIGZAG,
    read_headers,
)
from gpubeton._cpu.jpeg.markers import COMPONENTS as FRAME_COMPONENTS
from gpubeton._cpu.jpeg.markers import HEIGHT as FRAME_HEIGHT
from gpubeton._cpu.jpeg.markers import LUMA_ACROSS as FRAME_LUMA_ACROSS
from gpubeton._cpu.jpeg.markers import LUMA_DOWN as FRAME_LUMA_DOWN
from gpubeton._cpu.jpeg.markers import SCAN as FRAME_SCAN
from gpubeton._cpu.jpeg.markers import WIDTH as FRAME_WIDTH
from gpubeton._cpu.jpeg.picture import describe_blocks
from gpubeton._plan import draw_rows
from gpubeton._plan.jpeg_windows import (
    BEGIN,
    COLUMNS,
    COMPONENTS,
    ENTRY_DIGEST,
    EVERY,
    FIRST_COLUMN,
    FIRST_ENTRY,
    FIRST_ROW,
    GROUP,
    HEIGHT,
    IS_RESTARTED,
    LUMA_ACROSS,
    LUMA_DOWN,
    NUM_ENTRIES,
    NUM_INTERVALS,
    ROWS,
    SCAN,
    STOP,
    STOP_ENTRY,
    TABLE_BYTES,
    WIDTH,
    WINDOW_COLUMNS,
    CropWindows,
    Intervals,
)
from gpubeton.format.entry_points import EntryBlock
from gpubeton.format.layout import ENTRY_DTYPE, MAX_INTERVALS, MCUS_PER_ENTRY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton._compile.intrinsics import Array

TOP, LEFT = draw_rows.TOP, draw_rows.LEFT
CROP_HEIGHT, CROP_WIDTH = draw_rows.HEIGHT, draw_rows.WIDTH

_RESTART_0 = 0xD0
_END_OF_IMAGE = 0xD9
# Sizes of intervals are sorted in steps of 8 bytes, up to this many.
_BUCKETS = 512
_BUCKET_BITS = 6
# A block takes at least two bits: a code of its DC value, and one that ends it.
_BLOCKS_A_BYTE = 4
# Most MCUs of a restart interval: one thread decodes them one after another, and the others of its batch wait for it.
_MOST_MCUS = 512
# An interval ends where the next one begins: its first byte has to be there, and a stuffed zero after that.
_BYTES_BEYOND = 2


@device_function
def _find_in_scan(address: int, size: int, target: int, count: int, scratch: Scratch) -> bool:
    """Write the `count` entry points of a JPEG whose headers are read; return False if its scan looks damaged."""
    frame, values, cursor = scratch.frame, scratch.predictors, scratch.cursor
    mcus = frame[MCUS_ACROSS] * frame[MCUS_DOWN]
    source, stop, scan = address + frame[FRAME_SCAN], address + size, signed(scratch.scan.ctypes.data)
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
        seals[i] = seal_of(at, scratch.frame[FRAME_SCAN], bytes_, target, count) if count > 0 else 0
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


# --- the intervals of crops ------------------------------------------------------------------------------------------


@device_function
def _copy_table(source: Array, target: Array) -> None:
    """Copy a Huffman table; what its numbers of codes do not count is zero."""
    count = 16
    for i in range(16):
        count += source[i]
    for i in range(TABLE_BYTES):
        target[i] = source[i] if i < count else 0


@device_function
def _copy_tables(frame: Array, tables: Tables, quantization: Array, target: Array) -> bool:
    """Copy the tables of an image; return False if Cb and Cr have different ones."""
    last = frame[FRAME_COMPONENTS] - 1
    for i in range(last + 1):
        for k in range(64):
            quantization[i, ZIGZAG[k]] = tables.multipliers[frame[QUANTIZATION + i], SCAN_PLACES[k]]
    for i in range(2):
        component = min(i, last)
        _copy_table(tables.source[frame[DC_TABLE + component]], target[2 * i])
        _copy_table(tables.source[4 + frame[AC_TABLE + component]], target[2 * i + 1])
    return bool(frame[DC_TABLE + last] == frame[DC_TABLE + min(1, last)]) and bool(
        frame[AC_TABLE + last] == frame[AC_TABLE + min(1, last)]
    )


@device_function
def _hash(table: Array) -> int:
    state = 0
    for i in range(4):
        for k in range(0, TABLE_BYTES, 8):
            word = load_i64(table[i].ctypes.data + k)
            state = (state ^ word) * -7046029254386353131
            state ^= state >> 29
    return state


@device_function
def _is_same(first: Array, second: Array) -> bool:
    for i in range(4):
        for k in range(TABLE_BYTES):
            if first[i, k] != second[i, k]:
                return False
    return True


@compiled
def _find_windows(
    rows: Array,  # (N, WINDOW_COLUMNS), changed
    draws: Array,  # (N, D) int32
) -> None:
    """Compute the MCUs that crops need; none if a crop is not inside its image."""
    for i in range(rows.shape[0]):
        row = rows[i]
        if row[EVERY] == 0:
            continue
        top, left, height, width = draws[i, TOP], draws[i, LEFT], draws[i, CROP_HEIGHT], draws[i, CROP_WIDTH]
        row[FIRST_ROW:] = 0
        is_inside = top >= 0 and left >= 0 and height >= 1 and width >= 1
        if not is_inside or height > row[HEIGHT] - top or width > row[WIDTH] - left:
            continue
        # One pixel around the crop, as in `picture`: interpolated chroma reaches that far.
        mcu_width, mcu_height = 8 * row[LUMA_ACROSS], 8 * row[LUMA_DOWN]
        across, down = (row[WIDTH] + mcu_width - 1) // mcu_width, (row[HEIGHT] + mcu_height - 1) // mcu_height
        row[FIRST_COLUMN], row[FIRST_ROW] = max(0, left - 1) // mcu_width, max(0, top - 1) // mcu_height
        row[COLUMNS] = min(across, (left + width + mcu_width) // mcu_width) - row[FIRST_COLUMN]
        row[ROWS] = min(down, (top + height + mcu_height) // mcu_height) - row[FIRST_ROW]
        stop = 0
        for y in range(row[FIRST_ROW], row[FIRST_ROW] + row[ROWS]):
            start = y * across + row[FIRST_COLUMN]
            first, last = max(start // row[EVERY], stop), (start + row[COLUMNS] - 1) // row[EVERY]
            row[NUM_INTERVALS] += last + 1 - first
            stop = last + 1
        row[FIRST_ENTRY] = (row[FIRST_ROW] * across + row[FIRST_COLUMN]) // row[EVERY]
        row[STOP_ENTRY] = min(stop + 1, row[NUM_ENTRIES])


@compiled
def _read_parts(
    address: Array,  # (N,) uint64
    size: Array,  # (N,) uint64
    height: Array,  # (N,) int32: by the file's metadata
    width: Array,
    entries: Array,  # (N,) uint64: address of entry points, or 0
    num_entries: Array,  # (N,) int32
    seals: Array,  # (N,) uint32
    rows: Array,  # written, as are the next three; see `CropWindows`
    quantization: Array,
    tables: Array,  # (N, 4, TABLE_BYTES)
    table_of: Array,
    hashes: Array,  # (N,) int64, written
    places: Array,  # (n,) int32, zeros, n a power of two and at least 2 N: a hash table of sets, numbers plus 1
    frame: Array,
    parsed: Tables,
) -> int:
    """Read the headers of JPEGs; return the number of different sets of tables, which come first in `tables`."""
    sets = 0
    for i in range(address.size):
        row, at, bytes_ = rows[i], signed(address[i]), signed(size[i])
        row[:] = 0
        table_of[i] = 0
        if bytes_ > LARGEST_JPEG or read_headers(at, bytes_, frame, parsed) != OK:
            continue
        if frame[FRAME_HEIGHT] != height[i] or frame[FRAME_WIDTH] != width[i]:
            continue
        if not _copy_tables(frame, parsed, quantization[i], tables[sets]):
            continue
        across, down, interval = frame[MCUS_ACROSS], frame[MCUS_DOWN], frame[RESTART_INTERVAL]
        in_mcu = frame[FRAME_LUMA_ACROSS] * frame[FRAME_LUMA_DOWN] + frame[FRAME_COMPONENTS] - 1
        # A header alone must not decide how much memory is written.
        if across * down * in_mcu > _BLOCKS_A_BYTE * bytes_:
            continue
        row[IS_RESTARTED] = 0 < interval < across * down
        every = interval if row[IS_RESTARTED] else MCUS_PER_ENTRY
        count = (across * down + every - 1) // every
        if row[IS_RESTARTED]:
            # The CPU decodes more intervals by a library, whose pixels differ in the last bit.
            if count > MAX_INTERVALS or every > _MOST_MCUS:
                continue
        else:
            first_entry = signed(entries[i])
            if first_entry == 0 or not is_index_of(at, frame, bytes_, first_entry, signed(num_entries[i]), seals[i]):
                continue
            row[ENTRY_DIGEST] = entry_digest(first_entry, count)
        row[EVERY], row[NUM_ENTRIES], row[SCAN] = every, count, frame[FRAME_SCAN]
        row[HEIGHT], row[WIDTH], row[COMPONENTS] = height[i], width[i], frame[FRAME_COMPONENTS]
        row[LUMA_ACROSS], row[LUMA_DOWN] = frame[FRAME_LUMA_ACROSS], frame[FRAME_LUMA_DOWN]
        hashes[sets] = _hash(tables[sets])
        place = hashes[sets] & (places.size - 1)
        while places[place] != 0:
            known_set = places[place] - 1
            # Other tables can be made to have the same hash.
            if hashes[known_set] == hashes[sets] and _is_same(tables[known_set], tables[sets]):
                break
            place = (place + 1) & (places.size - 1)
        if places[place] == 0:
            sets += 1
            places[place] = sets
        table_of[i] = places[place] - 1
    return sets


@device_function
def _find_restarts(address: int, size: int, row: Array, target: Array) -> bool:
    """Write the restart intervals that a window needs as entry points; return False if any marker is wrong."""
    position, stop, count = address + row[SCAN], address + size, row[NUM_ENTRIES]
    done = 0
    target[: row[STOP_ENTRY] - row[FIRST_ENTRY]] = 0
    while done < count:
        if row[FIRST_ENTRY] <= done < row[STOP_ENTRY]:
            bit = 8 * (position - address)
            for k in range(4):
                target[done - row[FIRST_ENTRY], k] = (bit >> (8 * k)) & 255
        done += 1
        marker, position = next_marker(position, stop)
        if marker != (_RESTART_0 + ((done - 1) & 7) if done < count else _END_OF_IMAGE):
            return False
    return True


@device_function
def _bit(entries: Array, k: int) -> int:
    bit: int = entries[k, 0] | (entries[k, 1] << 8) | (entries[k, 2] << 16) | (signed(entries[k, 3]) << 24)
    return bit


@device_function
def _sort(
    listed: Array,  # (M, 3) int32: image, entry, bucket
    counts: Array,  # (_BUCKETS,) int32: intervals of each bucket; zeros afterwards
    intervals: Array,  # (M, 2) int32, written: image, entry
) -> None:
    """Sort intervals stably by bucket."""
    start = 0
    for bucket in range(_BUCKETS):
        start, counts[bucket] = start + counts[bucket], start
    for i in range(listed.shape[0]):
        bucket = listed[i, 2]
        place = counts[bucket]
        counts[bucket] = place + 1
        intervals[place, 0], intervals[place, 1] = listed[i, 0], listed[i, 1]
    counts[:] = 0


@compiled
def _copy_entries(
    address: Array,  # (N,) uint64
    size: Array,
    entries: Array,  # (N,) uint64
    rows: Array,  # (N, WINDOW_COLUMNS); EVERY becomes 0 where restart markers are missing, or entry points have changed
    first_entry: Array,  # (N,) int64: see `Intervals`
    copied: Array,  # (E, 10) uint8, written
) -> None:
    """Copy the entry points that windows need, or find them at restart markers."""
    for i in range(address.size):
        row = rows[i]
        if row[EVERY] == 0 or row[ROWS] == 0:
            continue
        first, count = row[FIRST_ENTRY], row[STOP_ENTRY] - row[FIRST_ENTRY]
        span = copied[first_entry[i] + first :]
        if row[IS_RESTARTED]:
            if not _find_restarts(signed(address[i]), signed(size[i]), row, span):
                row[EVERY] = 0
        # Their seal may have been checked long ago, and their file is mapped.
        elif entry_digest(entries[i], row[NUM_ENTRIES]) != row[ENTRY_DIGEST]:
            row[EVERY] = 0
        else:
            copy(span.ctypes.data, signed(entries[i]) + ENTRY_BYTES * first, ENTRY_BYTES * count)


@compiled
def _list_intervals(
    size: Array,  # (N,) uint64
    rows: Array,  # (N, WINDOW_COLUMNS); BEGIN and STOP are written
    table_of: Array,
    order: Array,  # (N,) int64: images, sorted by their tables
    first_entry: Array,  # (N,) int64: see `Intervals`
    entries: Array,  # (E, 4 or more) uint8: ENTRY_DTYPE, or the bits of it
    listed: Array,  # (M, 3) int32, scratch
    counts: Array,  # (_BUCKETS,) int32, zeros
    intervals: Array,  # (M, 2) int32, written
    groups: Array,  # (G, 3) int32, written
) -> tuple[int, int]:
    """List the intervals, sorted by tables and size; return the numbers of intervals and of groups."""
    first = done = num_groups = 0  # `first` of those that use the same tables
    for number in range(order.size):
        i = order[number]
        row, base, count, bytes_ = rows[i], first_entry[i], rows[i, NUM_ENTRIES], signed(size[i])
        if row[EVERY] > 0 and row[ROWS] > 0:
            across = (row[WIDTH] + 8 * row[LUMA_ACROSS] - 1) // (8 * row[LUMA_ACROSS])
            stop = 0
            for y in range(row[FIRST_ROW], row[FIRST_ROW] + row[ROWS]):
                start = y * across + row[FIRST_COLUMN]
                begin, last = max(start // row[EVERY], stop), (start + row[COLUMNS] - 1) // row[EVERY]
                for entry in range(begin, last + 1):
                    end = _bit(entries, base + entry + 1) if entry + 1 < count else 8 * bytes_
                    bucket = min(max(end - _bit(entries, base + entry), 0) >> _BUCKET_BITS, _BUCKETS - 1)
                    listed[done, 0], listed[done, 1], listed[done, 2] = i, entry, _BUCKETS - 1 - bucket
                    counts[_BUCKETS - 1 - bucket] += 1
                    done += 1
                stop = last + 1
            # Whatever the entry points are: restart markers may be anywhere, and a file may change at any time.
            row[BEGIN] = min(_bit(entries, base + row[FIRST_ENTRY]) >> 3, bytes_)
            row[STOP] = bytes_
            if stop < count:
                row[STOP] = min(max(((_bit(entries, base + stop) + 7) >> 3) + _BYTES_BEYOND, row[BEGIN]), bytes_)
        if number + 1 == order.size or table_of[order[number + 1]] != table_of[i]:
            _sort(listed[first:done], counts, intervals[first:done])
            for start in range(first, done, GROUP):
                groups[num_groups, 0], groups[num_groups, 1] = table_of[i], start
                groups[num_groups, 2] = min(done - start, GROUP)
                num_groups += 1
            first = done
    return done, num_groups


class JpegReader:
    """Reads JPEGs in memory for a decoder from entry points; for one thread at a time."""

    def __init__(self) -> None:
        self._frame = np.zeros(FRAME_SIZE, np.int64)
        self._tables = allocate_tables()

    def read(
        self,
        address: NDArray[np.uint64],  # (N,)
        size: NDArray[np.uint64],  # (N,) bytes
        height: NDArray[np.int32],  # (N,) by the file's metadata
        width: NDArray[np.int32],  # (N,)
        entries: NDArray[np.uint64],  # (N,) addresses of entry points; 0: none
        num_entries: NDArray[np.int32],  # (N,)
        seals: NDArray[np.uint32],  # (N,)
        draws: NDArray[np.int32],  # (N, D)
    ) -> CropWindows:
        """Read the headers, and find out which MCUs the crops need."""
        count = len(address)
        rows, quantization = np.empty((count, WINDOW_COLUMNS), np.int32), np.zeros((count, 3, 64), np.uint8)
        # One more: each image writes its tables after those that are known.
        tables, table_of = np.empty((count + 1, 4, TABLE_BYTES), np.uint8), np.empty(count, np.int32)
        hashes, places = np.empty(count + 1, np.int64), np.zeros(2 << (2 * count).bit_length(), np.int32)
        images = address, size, height, width, entries, num_entries, seals
        written = rows, quantization, tables, table_of, hashes, places
        sets = _read_parts(*images, *written, self._frame, self._tables)
        _find_windows(rows, draws)
        return CropWindows(rows, quantization, tables[:sets], table_of)

    @staticmethod
    def place_crops(parts: CropWindows, draws: NDArray[np.int32]) -> None:
        """Find out which MCUs other crops of the same images need; changes the rows."""
        _find_windows(parts.rows, draws)

    @classmethod
    def list_intervals(
        cls,
        address: NDArray[np.uint64],  # (N,)
        size: NDArray[np.uint64],  # (N,)
        entries: NDArray[np.uint64],  # (N,)
        parts: CropWindows,  # of these images
    ) -> Intervals:
        """List the intervals that crops need; images with missing restart markers or changed entry points get none."""
        rows = parts.rows
        used = (rows[:, EVERY] > 0) & (rows[:, ROWS] > 0)
        count = np.where(used, rows[:, STOP_ENTRY] - rows[:, FIRST_ENTRY], 0)
        stop = np.cumsum(count, dtype=np.int64)
        first_entry = stop - count - rows[:, FIRST_ENTRY]
        copied = np.empty((int(stop[-1]) if len(stop) else 0, ENTRY_BYTES), np.uint8)
        _copy_entries(address, size, entries, rows, first_entry, copied)
        return cls.list_known(size, first_entry, copied, parts)

    @staticmethod
    def list_known(
        size: NDArray[np.uint64],  # (N,)
        first_entry: NDArray[np.int64],  # (N,): see `Intervals`
        entries: NDArray[np.uint8],  # (E, 4 or more): ENTRY_DTYPE, or the bits of it
        parts: CropWindows,  # of these images
    ) -> Intervals:
        """List the intervals that crops need, of images with known entry points."""
        rows = parts.rows
        room = int(rows[(rows[:, EVERY] > 0) & (rows[:, ROWS] > 0), NUM_INTERVALS].sum())
        listed, intervals = np.empty((room, 3), np.int32), np.empty((room, 2), np.int32)
        order, counts = np.argsort(parts.table_of, kind="stable"), np.zeros(_BUCKETS, np.int32)
        groups = np.empty((room // GROUP + len(parts.tables) + 1, 3), np.int32)
        images = size, rows, parts.table_of, order, first_entry, entries
        done, num_groups = _list_intervals(*images, listed, counts, intervals, groups)
        return Intervals(entries, first_entry, intervals[:done], groups[:num_groups])
