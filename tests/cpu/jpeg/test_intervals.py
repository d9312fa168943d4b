"""Parts of a scan: found by their markers, copied without stuffing, and opened at entry points."""

from __future__ import annotations

import numba
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpubeton._cpu.image_tasks import allocate
from gpubeton._cpu.jpeg.codes import CUT_SHORT, DAMAGED_SCAN, MANY_INTERVALS, OK, SEPARATE_SCANS
from gpubeton._cpu.jpeg.columns import COUNT, PADDING
from gpubeton._cpu.jpeg.intervals import find_intervals, find_marker, unstuff
from gpubeton._cpu.jpeg.markers import FRAME_SIZE, RESTART_INTERVAL, SCAN
from gpubeton.format.layout import ENTRY_DTYPE

GUARD = 64


@numba.njit(cache=True)
def run_unstuff(source, start, stop, target):
    begin = source.ctypes.data
    marker, end = unstuff(begin + start, begin + stop, begin + source.size, target.ctypes.data)
    return marker, end - target.ctypes.data


@numba.njit(cache=True)
def run_find(source, offset):
    return find_marker(source.ctypes.data + offset, source.ctypes.data + source.size) - source.ctypes.data


@numba.njit
def run_find_intervals(source, frame, mcus, scratch):
    return find_intervals(source.ctypes.data, source.size, frame, mcus, scratch)


def plain_copy(content, start, stop):
    """A part of a scan byte by byte (B.1.1.5): the marker at its end (0: none), and the copy."""
    copied, i = bytearray(), start
    while i < stop:
        if content[i] != 0xFF:
            copied.append(content[i])
            i += 1
        elif i + 1 == len(content):
            break
        elif content[i + 1] == 0xFF:
            i += 1
        elif content[i + 1]:
            return content[i + 1], bytes(copied)
        else:
            copied.append(0xFF)
            i += 2
    return 0, bytes(copied)


def plain_intervals(content, start, count):
    """The verdict about a scan of `count` restart intervals, and where they begin, byte by byte (E.1.4)."""
    results, i = [start], start
    while i + 1 < len(content):
        marker = content[i + 1]
        if content[i] != 0xFF or marker in (0, 0xFF):
            i += 2 if content[i : i + 2] == b"\xff\0" else 1
            continue
        i += 2
        if marker == 0xD9:
            return OK if len(results) == count else DAMAGED_SCAN, results
        if not 0xD0 <= marker <= 0xD7:
            return SEPARATE_SCANS, results
        if len(results) == count or marker != 0xD0 + (len(results) - 1) % 8:
            return DAMAGED_SCAN, results
        results.append(i)
    return CUT_SHORT, results


runs = st.binary(max_size=70) | st.sampled_from([b"\xff\0", b"\xff\xff", b"\xff", b"\0", b"\xff\xd9", b"\xff\xda\0\2"])
restarts = st.integers(0, 7).map(lambda n: bytes([0xFF, 0xD0 + n]))
anything = st.lists(runs | restarts, max_size=20).map(b"".join)


@given(anything, st.integers(0, 200), st.integers(0, 200))
@example(b"a\xff\0b", 0, 2)
@example(b"a\xff", 0, 2)
@example(b"\xff\xff\xd9", 0, 3)
@settings(max_examples=300)
def test_any_part_is_copied_as_a_plain_loop_does(content, start, size):
    start = min(start, len(content))
    stop = min(start + size, len(content))
    # No byte after the part, its padding and one stuffed 0xFF is written.
    target = np.full(stop - start + PADDING + GUARD, 0x77, np.uint8)
    marker, end = run_unstuff(np.frombuffer(content, np.uint8), start, stop, target)
    assert (marker, target[:end].tobytes()) == plain_copy(content, start, stop)
    assert end <= stop - start
    assert not target[end : end + PADDING].any(), "missing data have to read as zeros"
    assert (target[end + PADDING :] == 0x77).all()


@st.composite
def sound(draw):
    """Data with the right restart markers, and where their intervals begin."""
    pieces = draw(st.lists(st.binary(max_size=90), min_size=2, max_size=12))
    content, begins = b"header", [6]
    for number, piece in enumerate(pieces):
        fill = b"\xff" * draw(st.integers(0, 2))
        marker = 0xD9 if number == len(pieces) - 1 else 0xD0 + number % 8
        content += piece.replace(b"\xff", b"\xff\0") + fill + bytes([0xFF, marker])
        begins.append(len(content))
    return content + draw(st.binary(max_size=40)), begins[:-1]


def found(content, start, count):
    """Verdict and intervals by the code under test, in images of three MCUs an interval."""
    scratch, frame = allocate((8, 8, len(content)), (8, 8), 1), np.zeros(FRAME_SIZE, np.int64)
    frame[SCAN], frame[RESTART_INTERVAL] = start, 3
    code = run_find_intervals(np.frombuffer(content, np.uint8), frame, 3 * count - 1, scratch)
    assert scratch.cursor[COUNT] == count
    entries = scratch.entries[: ENTRY_DTYPE.itemsize * count].view(ENTRY_DTYPE)
    assert not entries["dc"].any()
    return code, (entries["bit"] // 8).tolist()


@given(sound())
def test_intervals_begin_after_restart_markers(case):
    content, begins = case
    assert found(content, 6, len(begins)) == (OK, begins)


@given(anything, st.integers(2, 12))
@example(b"\xff", 2)
@example(b"", 2)
@example(b"\xff\xd0\xff\xd1\xff\xd2", 2)
@settings(max_examples=300)
def test_any_data_get_the_verdict_of_a_plain_loop(content, count):
    code, begins = found(content, 0, count)
    expected, listed = plain_intervals(content, 0, count)
    assert code == expected
    assert begins[: len(listed)] == listed


def test_more_intervals_than_there_is_memory_for_are_refused_before_anything_is_written():
    scratch, frame = allocate((8, 8, 8), (8, 8), 1), np.zeros(FRAME_SIZE, np.int64)
    frame[RESTART_INTERVAL] = 1
    room = len(scratch.entries) // ENTRY_DTYPE.itemsize
    assert run_find_intervals(np.zeros(8, np.uint8), frame, room + 1, scratch) == MANY_INTERVALS
    assert not scratch.entries.any()
    assert run_find_intervals(np.zeros(8, np.uint8), frame, room, scratch) == CUT_SHORT


@given(st.binary(max_size=100), st.integers(0, 40))
def test_the_first_marker_byte_is_found_at_any_position(content, offset):
    offset = min(offset, len(content))
    place = content.find(b"\xff", offset)
    assert run_find(np.frombuffer(content, np.uint8), offset) == (len(content) if place < 0 else place)
