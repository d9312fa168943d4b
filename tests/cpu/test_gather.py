from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton.cpu.pack import gather_rows
from tests.cpu.guarded import Slots


def gathered(contents, width, slots=None):
    """Rows of the contents, which end at unreadable pages if there are slots; a guard row on either side."""
    places = [
        np.frombuffer(content, np.uint8) if slots is None else slots.ending(i, content)
        for i, content in enumerate(contents)
    ]
    address = np.array([place.ctypes.data for place in places], np.uint64)
    size = np.array([place.size for place in places], np.uint64)
    out = np.full((len(contents) + 2, width), 0xA5, np.uint8)
    gather_rows(address, size, out[1:-1])
    assert (out[[0, -1]] == 0xA5).all()
    return out[1:-1]


def plain(contents, width):
    rows = [[*content[:width].ljust(width, b"\0")] for content in contents]
    return np.array(rows, np.uint8).reshape(len(contents), width)


@given(st.lists(st.binary(max_size=80), max_size=9), st.integers(0, 90))
@settings(deadline=None)
def test_rows_hold_the_bytes_and_then_zeros(contents, width):
    assert np.array_equal(gathered(contents, width), plain(contents, width))


def test_nothing_behind_the_last_byte_is_read():
    contents = [bytes(range(1, 1 + size)) for size in (0, 1, 31, 32, 33, 200)]
    slots = Slots(len(contents), 1)
    for width in (1, 32, 33, 300):
        assert np.array_equal(gathered(contents, width, slots), plain(contents, width))


def test_the_size_of_a_sample_may_be_a_lie_beyond_the_row():
    """Of more than a row holds, the first bytes are taken, whatever the size is."""
    place = Slots(1, 1).ending(0, b"abcdefgh")
    out = np.empty((1, 8), np.uint8)
    gather_rows(np.array([place.ctypes.data], np.uint64), np.array([2**62], np.uint64), out)
    assert out.tobytes() == b"abcdefgh"


def test_no_samples_are_no_rows():
    assert gathered([], 7).shape == (0, 7)
