from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpubeton._cpu.stored_bytes import gather_rows, pack_crops, pack_regions
from gpubeton._plan.draw_rows import DRAW_COLUMNS, HEIGHT, LEFT, TOP, WIDTH
from tests.cpu.guarded import Slots
from tests.cpu.pictures import noise


def addresses(arrays):
    return np.array([array.ctypes.data for array in arrays], np.uint64)


def boxes(*rows):
    draws = np.zeros((len(rows), DRAW_COLUMNS + 5), np.int32)
    draws[:, TOP], draws[:, LEFT], draws[:, HEIGHT], draws[:, WIDTH] = np.array(rows).T
    return draws


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_regions_of_every_size_are_copied_without_touching_a_byte_around_them(side):
    rng = np.random.default_rng(0)
    sizes = [*range(70), 4095, 4096, 4097, 9000]
    contents = [bytes(rng.integers(0, 256, size, np.uint8)) for size in sizes]
    sources, targets = Slots(len(sizes), 9001), Slots(len(sizes), 9001)
    source = [getattr(sources, side)(i, content) for i, content in enumerate(contents)]
    target = [getattr(targets, side)(i, bytes(len(content))) for i, content in enumerate(contents)]
    pack_regions(addresses(source), np.array(sizes, np.uint64), addresses(target))
    assert [place.tobytes() for place in target] == contents


def test_regions_lie_packed_at_any_alignment():
    rng = np.random.default_rng(1)
    content = rng.integers(0, 256, 5000, np.uint8)
    size = rng.integers(0, 90, 40).astype(np.uint64)
    start = rng.integers(0, 4900, 40).astype(np.uint64)
    out = np.full(int(size.sum()) + 2, 0xA5, np.uint8)
    place = np.cumsum(size) - size
    base = np.uint64(content.ctypes.data), np.uint64(out.ctypes.data + 1)
    pack_regions(start + base[0], size, place + base[1])
    expected = np.concatenate([content[a : a + b] for a, b in zip(start.tolist(), size.tolist(), strict=True)])
    assert np.array_equal(out[1:-1], expected)
    assert out[0] == out[-1] == 0xA5


def test_nothing_to_copy_is_copied():
    nothing = np.zeros(0, np.uint64)
    pack_regions(nothing, nothing, nothing)
    pack_crops(nothing, np.zeros(0, np.int32), boxes((0, 0, 1, 1))[:0], nothing, np.zeros(0, np.int32))


BOXES = [
    ((1, 1), (0, 0, 1, 1)),
    ((5, 7), (0, 0, 5, 7)),
    ((5, 7), (4, 6, 1, 1)),
    ((5, 7), (1, 2, 3, 4)),
    ((1, 90), (0, 3, 1, 80)),
    ((90, 1), (7, 0, 60, 1)),
    ((33, 41), (0, 0, 33, 5)),
    ((33, 41), (20, 36, 13, 5)),
]


@pytest.mark.parametrize("side", ["starting", "ending"])
@pytest.mark.parametrize("pad", [0, 1, 29])
def test_a_crop_is_copied_row_by_row_and_nothing_else_is_touched(side, pad):
    images = [noise(*size, seed=i) for i, (size, _) in enumerate(BOXES)]
    draws = boxes(*(box for _, box in BOXES))
    pitch = np.array([3 * box[3] + pad for _, box in BOXES], np.int32)
    nbytes = [int(row_bytes) * box[2] for row_bytes, (_, box) in zip(pitch, BOXES, strict=True)]
    sources, targets = (Slots(len(BOXES), 33 * (41 * 3 + pad)) for _ in range(2))
    source = [getattr(sources, side)(i, image.tobytes()) for i, image in enumerate(images)]
    target = [getattr(targets, side)(i, bytes([7]) * count) for i, count in enumerate(nbytes)]
    width = np.array([image.shape[1] for image in images], np.int32)
    pack_crops(addresses(source), width, draws, addresses(target), pitch)
    for image, (_, (top, left, height, wide)), pixels in zip(images, BOXES, target, strict=True):
        crop = image[top : top + height, left : left + wide]
        rows = pixels.reshape(height, -1)
        assert np.array_equal(rows[:, : 3 * wide].reshape(crop.shape), crop)
        assert (rows[:, 3 * wide :] == 7).all()


def test_a_crop_far_into_a_huge_image_is_found():
    """Its first byte is the 3,839,133,000th, which 32 bits cannot count; the rest of the image need not be there."""
    width, (top, left) = 32_000, (39_990, 31_000)
    rows = np.zeros((3, width, 3), np.uint8)
    rows[:, left : left + 5] = noise(3, 5)
    image = addresses([rows]) - np.uint64(3 * top * width)
    out = np.zeros((3, 5, 3), np.uint8)
    pack_crops(image, np.array([width], np.int32), boxes((top, left, 3, 5)), addresses([out]), np.array([15], np.int32))
    assert np.array_equal(out, noise(3, 5))


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
@example([], 7)
def test_rows_hold_the_bytes_and_then_zeros(contents, width):
    assert np.array_equal(gathered(contents, width), plain(contents, width))


def test_nothing_after_the_last_byte_is_read():
    contents = [bytes(range(1, 1 + size)) for size in (0, 1, 31, 32, 33, 200)]
    slots = Slots(len(contents), 1)
    for width in (1, 32, 33, 300):
        assert np.array_equal(gathered(contents, width, slots), plain(contents, width))


def test_the_size_of_a_sample_may_be_a_lie_beyond_the_row():
    """Of a sample longer than a row the first bytes are taken, for any size."""
    place = Slots(1, 1).ending(0, b"abcdefgh")
    out = np.empty((1, 8), np.uint8)
    gather_rows(np.array([place.ctypes.data], np.uint64), np.array([2**62], np.uint64), out)
    assert out.tobytes() == b"abcdefgh"
