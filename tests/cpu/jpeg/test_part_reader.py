from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton._cpu.jpeg.entries import JpegReader, find_entries
from gpubeton._plan import jpeg_windows
from gpubeton._plan.draw_rows import DRAW_COLUMNS, TOP, WIDTH
from gpubeton._plan.jpeg_windows import BEGIN, EVERY, GROUP, NUM_ENTRIES, NUM_INTERVALS, STOP
from gpubeton.format.layout import ENTRY_DTYPE
from tests.cpu.making import joined, segments
from tests.cpu.pictures import SAMPLINGS, jpeg, noise, photo, pillow_jpeg

SIZE = 61, 75


class Files:
    """JPEGs of SIZE in memory, and their entry points."""

    def __init__(self, files, size=SIZE):
        self.data = [np.frombuffer(data, np.uint8).copy() for data in files]
        self.address = np.array([data.ctypes.data for data in self.data], np.uint64)
        self.size = np.array([data.size for data in self.data], np.uint64)
        self.height, self.width = (np.full(len(files), side, np.int32) for side in size)
        self.found = find_entries(self.address, self.size)
        self.entries, self.num_entries, self.seals, _ = self.found.of(np.arange(len(files)))

    def read(self, box):
        """Read the crop windows of one box for all images, or of one box for each."""
        draws = np.zeros((len(self.data), DRAW_COLUMNS), np.int32)
        draws[:, TOP : WIDTH + 1] = box
        known = self.entries, self.num_entries, self.seals
        return JpegReader().read(self.address, self.size, self.height, self.width, *known, draws)

    def intervals(self, parts):
        return JpegReader.list_intervals(self.address, self.size, self.entries, parts)


def kinds(rgb):
    """A file of each kind, and whether it has restart markers."""
    files = [jpeg(rgb, 90, sampling) for sampling in SAMPLINGS]
    return [*files, pillow_jpeg(rgb, optimize=True), pillow_jpeg(rgb, restart_marker_blocks=3)]


def needed(row, box):
    """The intervals that a crop needs, by the book: those with an MCU that is at most a pixel from it."""
    value = {
        name: int(row[getattr(jpeg_windows, name)]) for name in ("LUMA_ACROSS", "LUMA_DOWN", "EVERY", "WIDTH", "HEIGHT")
    }
    top, left, height, width = box
    side_x, side_y = 8 * value["LUMA_ACROSS"], 8 * value["LUMA_DOWN"]
    across, down = -(-value["WIDTH"] // side_x), -(-value["HEIGHT"] // side_y)
    rows = [y for y in range(down) if y * side_y <= top + height and (y + 1) * side_y > top - 1]
    columns = [x for x in range(across) if x * side_x <= left + width and (x + 1) * side_x > left - 1]
    return {(y * across + x) // value["EVERY"] for y in rows for x in columns}


@st.composite
def boxes(draws):
    height, width = draws(st.integers(1, SIZE[0])), draws(st.integers(1, SIZE[1]))
    return draws(st.integers(0, SIZE[0] - height)), draws(st.integers(0, SIZE[1] - width)), height, width


FILES = Files(kinds(photo(*SIZE)))


@given(boxes())
def test_the_intervals_are_those_with_a_unit_that_the_crop_needs(box):
    parts = FILES.read(box)
    listed = FILES.intervals(parts)
    for i, row in enumerate(parts.rows):
        own = listed.intervals[listed.intervals[:, 0] == i, 1].tolist()
        assert sorted(own) == sorted(needed(row, box))
        assert len(own) == row[NUM_INTERVALS]


@given(boxes())
def test_the_bytes_are_those_of_the_intervals_and_two_more(box):
    parts, whole = FILES.read(box), FILES.read((0, 0, *SIZE))
    listed, all_listed = FILES.intervals(parts), FILES.intervals(whole)
    entries, every = (intervals.entries.reshape(-1).view(ENTRY_DTYPE) for intervals in (listed, all_listed))
    for i, row in enumerate(parts.rows):
        numbers = sorted(needed(row, box))
        first, count = all_listed.first_entry[i], row[NUM_ENTRIES]
        bits = np.append(every["bit"][first : first + count].astype(int), 8 * len(FILES.data[i]))
        size = len(FILES.data[i])
        assert row[BEGIN] == bits[numbers[0]] // 8
        assert row[STOP] == min(-(-bits[numbers[-1] + 1] // 8) + 2, size)
        for entry in range(numbers[0], min(numbers[-1] + 2, count)):
            assert entries[listed.first_entry[i] + entry] == every[first + entry]
    assert len(entries) <= len(every)


def test_entry_points_are_copied_and_those_of_restarted_images_are_found():
    parts = FILES.read((0, 0, *SIZE))
    listed = FILES.intervals(parts)
    entries = listed.entries.reshape(-1).view(ENTRY_DTYPE)
    for i, start in enumerate(listed.first_entry):
        own = entries[start : start + parts.rows[i, NUM_ENTRIES]]
        if i < len(FILES.data) - 1:
            first = int(FILES.found.first[i])
            assert np.array_equal(own, FILES.found.entries[first : first + len(own)])
            continue
        data = FILES.data[i].tobytes()
        places = [k + 2 for k in range(len(data) - 1) if data[k] == 0xFF and 0xD0 <= data[k + 1] <= 0xD7]
        assert (own["bit"] // 8)[1:].tolist() == places
        assert own["bit"][0] == 8 * parts.rows[i, jpeg_windows.SCAN]
        assert not own["dc"].any()


def test_groups_have_one_set_of_tables_and_intervals_of_similar_size_and_cover_all():
    files = Files(kinds(noise(*SIZE)) + kinds(photo(*SIZE)) * 4)
    parts = files.read((0, 0, *SIZE))
    listed = files.intervals(parts)
    entries = listed.entries.reshape(-1).view(ENTRY_DTYPE)
    covered, last = 0, {}
    for tables, first, count in listed.groups.tolist():
        assert first == covered
        assert 1 <= count <= GROUP
        covered += count
        for image, entry in listed.intervals[first : first + count].tolist():
            assert parts.table_of[image] == tables
            if entry + 1 < parts.rows[image, NUM_ENTRIES]:
                begin, end = entries["bit"][listed.first_entry[image] + entry :][:2].astype(int)
                step = min((end - begin) >> 6, 511)
                assert step <= last.get(tables, 511), "the longest come first"
                last[tables] = step
    assert covered == len(listed.intervals)
    assert [group[0] for group in listed.groups] == sorted(group[0] for group in listed.groups)


def test_images_with_the_same_tables_share_a_set():
    first, second = (pillow_jpeg(photo(*SIZE, seed), optimize=True) for seed in (1, 2))
    parts = Files([first, second, first, jpeg(noise(*SIZE)), second, jpeg(photo(*SIZE))]).read((0, 0, *SIZE))
    assert parts.table_of.tolist() == [0, 1, 0, 2, 1, 2]
    assert len(parts.tables) == 3


def other_table_for_cr(data):
    """Cr takes the tables of Y."""
    parts = dict(segments(data))
    scan = bytearray(parts[0xDA])
    scan[6] = 0
    return joined([(marker, bytes(scan) if marker == 0xDA else content) for marker, content in segments(data)])


def test_images_that_the_decoder_cannot_take_have_no_intervals():
    rgb = photo(*SIZE)
    files = Files([jpeg(rgb)] * 5 + [pillow_jpeg(rgb, progressive=True), other_table_for_cr(jpeg(rgb)), b"no JPEG"])
    files.entries[0] = 0
    files.num_entries[1] -= 1
    files.seals[2] ^= 1
    files.width[3] += 1
    parts = files.read((0, 0, *SIZE))
    assert (parts.rows[:, EVERY] > 0).tolist() == [False] * 4 + [True] + [False] * 3
    assert set(files.intervals(parts).intervals[:, 0].tolist()) == {4}


@pytest.mark.parametrize(
    ("side", "interval", "taken"),
    [((512, 1024), 1, True), ((520, 1024), 1, False), ((520, 1024), 512, True), ((520, 1024), 513, False)],
)
def test_too_many_restart_intervals_or_too_long_ones_are_left_to_the_cpu(side, interval, taken):
    data = pillow_jpeg(photo(*side), "L", restart_marker_blocks=interval)
    row = Files([data], side).read((0, 0, *side)).rows[0]
    assert (row[EVERY] > 0) == taken


def test_more_blocks_than_the_bytes_can_have_are_not_believed():
    data = pillow_jpeg(photo(64, 64), "L", restart_marker_blocks=1)
    size = data.index(b"\xff\xc0") + 5
    for side, taken in ((64, True), (720, False)):
        changed = data[:size] + 2 * side.to_bytes(2, "big") + data[size + 4 :]
        assert (4 * len(changed) >= side * side // 64) == taken
        row = Files([changed], (side, side)).read((0, 0, 64, 64)).rows[0]
        assert (row[EVERY] > 0) == taken


def after(state, words):
    """The state of the hash of tables after some words."""
    for word in words:
        mixed = (state ^ word) * -7046029254386353131 & (1 << 64) - 1
        state = mixed ^ ((mixed - (mixed >> 63 << 64)) >> 29) & (1 << 64) - 1
    return state


def test_other_tables_with_the_same_hash_are_not_taken_for_the_same():
    data = pillow_jpeg(photo(*SIZE), restart_marker_blocks=3)
    words = Files([data]).read((0, 0, *SIZE)).tables[0].reshape(-1).view("<u8").tolist()
    first = 34 + 2  # of the symbols of luma's AC table
    begun = after(0, words[:first])
    for change in range(1, 256):
        other = words[first] ^ (change & 15) << 4 ^ (change >> 4) << 12
        next_word = words[first + 1] ^ after(begun, [words[first]]) ^ after(begun, [other])
        if all(symbol & 15 <= 10 for symbol in next_word.to_bytes(8, "little")):
            break
    results = [*words[:first], other, next_word, *words[first + 2 :]]
    assert after(0, results) == after(0, words)
    assert results != words
    before, now = (
        b"".join(word.to_bytes(8, "little") for word in some[first : first + 2]) for some in (words, results)
    )
    assert data.count(before) == 1
    parts = Files([data, data.replace(before, now)]).read((0, 0, *SIZE))
    assert parts.rows[:, EVERY].tolist() == [3, 3]
    assert parts.table_of.tolist() == [0, 1]


@pytest.mark.parametrize("box", [(0, 0, 0, 4), (-1, 0, 4, 4), (60, 0, 2, 4), (0, 70, 4, 6), (0, 0, 62, 1)])
def test_a_crop_that_is_not_inside_the_image_needs_no_interval(box):
    parts = FILES.read(box)
    assert not parts.rows[:, NUM_INTERVALS].any()
    assert len(FILES.intervals(parts).intervals) == 0


@pytest.mark.parametrize("change", [(b"\xff\xd1", b"\xff\xd5"), (b"\xff\xd1", b"\x11\x11"), (b"\xff\xd1", b"\xff\xd9")])
def test_an_image_without_a_restart_marker_is_left_out(change):
    data = pillow_jpeg(photo(*SIZE), restart_marker_blocks=3)
    files = Files([jpeg(photo(*SIZE)), data.replace(*change)])
    parts = files.read((0, 0, *SIZE))
    listed = files.intervals(parts)
    assert (parts.rows[:, EVERY] > 0).tolist() == [True, False]
    assert set(listed.intervals[:, 0].tolist()) == {0}


def test_no_images_have_no_intervals():
    files = Files([])
    parts = files.read(np.zeros((0, 4)))
    assert len(files.intervals(parts).groups) == 0
