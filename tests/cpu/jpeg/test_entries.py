"""The entry points of JPEGs beside a plain decoder, and what their seals notice."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._cpu.jpeg.entries import find_entries
from gpubeton._cpu.jpeg.intervals import seal_of
from gpubeton.format.layout import MCUS_PER_ENTRY
from tests.cpu.pictures import SAMPLINGS, jpeg, noise, photo, pillow_jpeg
from tests.reference.jpeg_positions import mcu_positions


def found(*files):
    """Entry points of files that lie at odd addresses, one after the other."""
    memory = np.frombuffer(b"\xff" + b"\xff".join(files), np.uint8)
    size = np.array([len(data) for data in files], np.uint64)
    offset = np.cumsum([1, *(len(data) + 1 for data in files[:-1])]).astype(np.uint64)
    return find_entries(offset + np.uint64(memory.ctypes.data), size)


def listed(entries):
    return [(int(bit), tuple(dc.tolist())) for bit, dc in zip(entries["bit"], entries["dc"], strict=True)]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("height", "width"), [(1, 1), (8, 8), (33, 70), (64, 128), (50, 17)])
def test_entry_points_are_every_eighth_mcu_of_a_plain_decoder(sampling, height, width):
    files = [
        jpeg(photo(height, width, seed=1), 75, sampling),
        jpeg(noise(height, width, seed=2), 100, sampling),
    ]
    points = found(*files)
    for number, data in enumerate(files):
        entries = points.entries[int(points.first[number]) : int(points.first[number + 1])]
        assert listed(entries) == mcu_positions(data)[::MCUS_PER_ENTRY]
        assert points.counts[number] == len(entries) > 0


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_optimized_tables_have_the_same_entry_points(subsampling):
    data = pillow_jpeg(photo(60, 90), quality=85, subsampling=subsampling, optimize=True)
    assert listed(found(data).entries) == mcu_positions(data)[::MCUS_PER_ENTRY]


@settings(max_examples=40)
@given(
    st.sampled_from(SAMPLINGS),
    st.integers(1, 100),
    st.integers(1, 100),
    st.integers(1, 100),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_any_image_has_the_entry_points_of_a_plain_decoder(sampling, height, width, quality, is_noise, seed):
    data = jpeg((noise if is_noise else photo)(height, width, seed), quality, sampling)
    assert listed(found(data).entries) == mcu_positions(data)[::MCUS_PER_ENTRY]


def test_images_without_entry_points_have_address_and_number_0():
    picture = photo(40, 64)
    sound = jpeg(picture)
    scan = sound.index(b"\xff\xda") + 14
    files = [
        pillow_jpeg(picture, progressive=True),
        pillow_jpeg(picture, restart_marker_blocks=3),
        pillow_jpeg(picture, mode="CMYK"),
        jpeg(picture, sampling="4:1:1"),
        sound[:-2],
        sound[: len(sound) // 2],
        sound[:scan] + b"\xff\xff\0" + sound[scan:],
        sound[:scan] + bytes(40) + sound[scan:],
        b"",
        b"no JPEG",
    ]
    points = found(*files, sound)
    addresses, counts, seals, _ = points.of(np.arange(len(files)))
    assert not addresses.any()
    assert not counts.any()
    assert not seals.any()
    address, count, seal, _ = points.of(np.array([len(files)]))
    assert (address[0], count[0]) == (points.entries.ctypes.data, -(-3 * 4 // MCUS_PER_ENTRY))
    assert seal[0]


def test_a_restart_interval_as_long_as_the_image_changes_nothing():
    data = pillow_jpeg(photo(40, 64), restart_marker_blocks=12)
    assert b"\xff\xdd" in data
    assert listed(found(data).entries) == mcu_positions(data)[::MCUS_PER_ENTRY]


@numba.njit(cache=True)
def run_seal(data, scan, size, entries):
    return seal_of(data.ctypes.data, scan, size, entries.ctypes.data, entries.size)


def sealed(data, entries, size=None):
    scan = data.index(b"\xff\xda") + 2
    scan += 256 * data[scan] + data[scan + 1]
    return run_seal(np.frombuffer(data, np.uint8), scan, size or len(data), entries)


def test_a_seal_is_that_of_the_index():
    data = jpeg(photo(70, 90))
    points = found(data)
    assert sealed(data, points.entries) == points.seals[0]


@settings(max_examples=60)
@given(st.data())
def test_a_seal_notices_any_change_of_headers_and_entry_points(data):
    stored = jpeg(photo(70, 90))
    entries = found(stored).entries
    seal = sealed(stored, entries)
    scan = int(entries["bit"][0]) // 8
    damaged = np.frombuffer(stored, np.uint8).copy()
    # Where the headers name the scan, the test finds it by them.
    damaged[data.draw(st.integers(2, scan - 15))] ^= 1 << data.draw(st.integers(0, 7))
    assert sealed(damaged.tobytes(), entries) != seal
    changed = entries.copy()
    changed.view(np.uint8)[data.draw(st.integers(0, 10 * len(entries) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert sealed(stored, changed) != seal
    assert sealed(stored, entries[:-1]) != seal
    assert sealed(stored, entries, len(stored) - 1) != seal
    swapped = entries.copy()
    i, j = data.draw(st.permutations(range(len(entries))))[:2]
    swapped[[i, j]] = swapped[[j, i]]
    assert sealed(stored, swapped) != seal


def test_a_seal_notices_another_image_of_the_same_size_and_headers():
    first, second = jpeg(noise(64, 64, seed=1)), jpeg(noise(64, 64, seed=2))
    scan = first.index(b"\xff\xda")
    assert first[:scan] == second[:scan]
    entries = found(first).entries
    assert sealed(first, entries) != sealed(second[: len(first)].ljust(len(first), b"\0"), entries)


def plain_seal(data, entries):
    """The seal as `docs/format.md` describes it."""
    factor, limit = 0x9E3779B97F4A7C15, 1 << 64
    start = data.index(b"\xff\xda") + 2
    scan = start + 256 * data[start] + data[start + 1]
    numbers = [len(data), scan, len(entries)]
    for content in (data[:scan], entries.tobytes()):
        whole = len(content) // 8 * 8
        numbers += [int.from_bytes(content[i : i + 8], "little") for i in range(0, whole, 8)]
        numbers.append(int.from_bytes(content[whole:], "big"))
    step = (len(data) - scan - 8) // 16
    if step > 0:
        numbers += [int.from_bytes(data[scan + i * step :][:8], "little") for i in range(16)]
    state = factor
    for number in numbers:
        state = (state ^ number) * factor % limit
        state ^= state >> 32
    return state % (1 << 32)


@pytest.mark.parametrize(("height", "width", "quality"), [(1, 1, 1), (8, 8, 1), (70, 90, 80), (33, 500, 95)])
def test_a_seal_is_the_documented_one(height, width, quality):
    data = jpeg(photo(height, width), quality)
    points = found(data)
    assert points.seals[0] == plain_seal(data, points.entries)
