from __future__ import annotations

import numba
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpubeton.cpu.jpeg.codes import CUT_SHORT, DAMAGED_SCAN, OK, SEPARATE_SCANS
from gpubeton.cpu.jpeg.entropy import OVERRUN, PADDING, find_marker, unstuff

GUARD = 64


@numba.njit(cache=True)
def run_unstuff(source, target, room, starts, ends, intervals):
    start = target.ctypes.data
    begin = source.ctypes.data
    return unstuff(begin, begin + source.size, start, start + room, starts, ends, intervals)


@numba.njit(cache=True)
def run_find(source, offset):
    return find_marker(source.ctypes.data + offset, source.ctypes.data + source.size) - source.ctypes.data


def plain(content, intervals):
    """Verdict and restart intervals of an entropy-coded segment, byte by byte (B.1.1.5, E.1.4)."""
    found, current, i = [], bytearray(), 0
    while True:
        if i + 1 >= len(content) or content[i] != 0xFF:
            if i >= len(content) or content[i] == 0xFF:
                return CUT_SHORT, found
            current.append(content[i])
            i += 1
            continue
        marker = content[i + 1]
        if marker == 0xFF:
            i += 1
        elif marker == 0:
            current.append(0xFF)
            i += 2
        else:
            found.append(bytes(current))
            current, i = bytearray(), i + 2
            if marker == 0xD9:
                return OK if len(found) == intervals else DAMAGED_SCAN, found
            if not 0xD0 <= marker <= 0xD7:
                return SEPARATE_SCANS, found
            if len(found) == intervals or marker != 0xD0 + (len(found) - 1) % 8:
                return DAMAGED_SCAN, found


def unstuffed(content, intervals, room=None):
    """The same by the code under test, with guards around all that it writes."""
    target = np.full(len(content) + 20 * PADDING + 2 * OVERRUN + GUARD, 0x77, np.uint8)
    room = target.size - GUARD if room is None else room
    starts, ends = np.full(intervals + 2, -1), np.full(intervals + 2, -1)
    source = np.frombuffer(content, np.uint8)
    code = run_unstuff(source, target, room, starts[1:-1], ends[1:-1], intervals)
    for array in (starts, ends):
        assert array[0] == array[-1] == -1
    assert (target[room:] == 0x77).all()
    base = target.ctypes.data
    pieces = [
        (start - base, stop - base)
        for start, stop in zip(starts[1:-1].tolist(), ends[1:-1].tolist(), strict=True)
        if stop != -1
    ]
    for _, stop in pieces:
        assert not target[stop : stop + PADDING].any(), "what is missing has to read as zeros"
    return code, [target[start:stop].tobytes() for start, stop in pieces]


runs = st.binary(max_size=70) | st.sampled_from([b"\xff\0", b"\xff\xff", b"\xff", b"\0", b"\xff\xd9", b"\xff\xda\0\2"])
restarts = st.integers(0, 7).map(lambda n: bytes([0xFF, 0xD0 + n]))
anything = st.lists(runs | restarts, max_size=20).map(b"".join)


@st.composite
def sound(draw):
    """Data with restart markers that count as they should, and their number of intervals."""
    pieces = draw(st.lists(st.binary(max_size=90), min_size=1, max_size=12))
    content = b""
    for number, piece in enumerate(pieces):
        fill = b"\xff" * draw(st.integers(0, 2))
        marker = 0xD9 if number == len(pieces) - 1 else 0xD0 + number % 8
        content += piece.replace(b"\xff", b"\xff\0") + fill + bytes([0xFF, marker])
    return content + draw(st.binary(max_size=40)), pieces


@given(sound())
@settings(deadline=None)
def test_sound_data_are_split_and_unstuffed(case):
    content, pieces = case
    assert unstuffed(content, len(pieces)) == (OK, pieces)


@given(anything, st.integers(1, 12))
@example(b"\xff", 1)
@example(b"", 1)
@example(b"\xff\xd0\xff\xd1\xff\xd2", 1)
@settings(max_examples=300, deadline=None)
def test_any_data_get_the_plain_verdict(content, intervals):
    assert unstuffed(content, intervals) == plain(content, intervals)


@given(anything, st.integers(1, 12), st.integers(0, 5000))
@settings(deadline=None)
def test_memory_that_is_too_small_is_not_left(content, intervals, room):
    code, _ = unstuffed(content, intervals, min(room, len(content) + 20 * PADDING + 2 * OVERRUN))
    assert code in (DAMAGED_SCAN, plain(content, intervals)[0])


@given(st.binary(max_size=100), st.integers(0, 40))
@settings(deadline=None)
def test_the_first_marker_byte_is_found_wherever_it_lies(content, offset):
    offset = min(offset, len(content))
    found = content.find(b"\xff", offset)
    assert run_find(np.frombuffer(content, np.uint8), offset) == (len(content) if found < 0 else found)
