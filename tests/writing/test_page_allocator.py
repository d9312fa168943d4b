from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton._writing import FileBuilder, RegionSizes
from gpubeton.format.layout import ALLOCATION_DTYPE, HEADER_DTYPE
from tests.golden_files import sidecar

SAMPLES = st.lists(st.lists(st.integers(0, 8), max_size=4), min_size=1, max_size=40)


def region_sizes(samples):
    counts = np.array([len(sizes) for sizes in samples], np.int64)
    return RegionSizes(counts, np.array([size for sizes in samples for size in sizes], np.int64))


class Pages:
    """The pages of a file whose metadata end at a place."""

    def __init__(self, metadata_end, page_size):
        self.writes = []
        self.builder = FileBuilder(self, [], metadata_end - HEADER_DTYPE.itemsize, page_size, max_rows=1)

    def write(self, offset, content):
        self.writes.append((offset, content))

    def place(self, start, samples):
        return self.builder.place(start, region_sizes(samples)).offset.tolist()

    def finish(self):
        """Give the offset of the allocation table, and the table."""
        self.builder.finish()
        offset, content = self.writes[0]
        return offset, np.frombuffer(content, ALLOCATION_DTYPE)


def first_fit_in_order(samples, start, page_size):
    """Where each sample goes, and the end of the last page, sample by sample."""
    position = end = start
    offset = []
    for sizes in samples:
        room = sum(max(size, 1) for size in sizes)
        if position + room > end:
            position, end = end, end + page_size
        offset.append(position)
        position += room
    return offset, end


@given(SAMPLES, st.lists(st.integers(1, 7), min_size=40, max_size=40))
def test_samples_fill_pages_in_order_however_they_are_split_into_chunks(samples, cuts):
    pages = Pages(metadata_end=1000, page_size=32)
    results, start = [], 0
    for cut in cuts:
        results += pages.place(start, samples[start : start + cut])
        start += cut
    expected, end = first_fit_in_order(samples, 1024, 32)
    assert results == expected
    table_offset, table = pages.finish()
    assert table_offset == (end if any(samples) else 1000)
    assert table["size"].tolist() == [size for sizes in samples for size in sizes]
    assert table["sample_id"].tolist() == [number for number, sizes in enumerate(samples) for _ in sizes]
    first = table["ptr"] // 32
    last = (table["ptr"] + np.maximum(table["size"], 1) - 1) // 32
    assert np.array_equal(first, last)
    assert np.all(table["ptr"][:-1] + np.maximum(table["size"][:-1], 1) <= table["ptr"][1:])


@pytest.mark.parametrize("name", ["page_exact", "all_fields", "img_raw_var", "ndarrays"])
def test_places_are_those_of_one_process_of_ffcv(name):
    described = sidecar(name)
    sizes = [[] for _ in range(described["header"]["num_samples"])]
    for sample, _, size in described["alloc_table"]:
        sizes[sample].append(size)
    metadata = described["metadata"]
    metadata_end = metadata["offset"] + metadata["itemsize"] * len(sizes)
    pages = Pages(metadata_end, described["header"]["page_size"])
    pages.place(0, sizes)
    table_offset, table = pages.finish()
    assert [list(row) for row in table.tolist()] == described["alloc_table"]
    assert table_offset == described["header"]["alloc_table_ptr"]


def test_a_sample_larger_than_a_page_is_refused_instead_of_looked_for_for_ever():
    with pytest.raises(ValueError, match="33 bytes in pages of 32"):
        Pages(1000, 32).place(0, [[20, 13]])


@given(SAMPLES, st.randoms(use_true_random=False))
def test_regions_of_a_sample_follow_each_other_wherever_it_goes(samples, random):
    regions = region_sizes(samples)
    offset = np.array([random.randrange(1 << 40) for _ in samples], np.uint64)
    expected, owners, rooms = [], [], []
    for number, (sizes, start) in enumerate(zip(samples, offset.tolist(), strict=True)):
        room = 0
        for size in sizes:
            expected.append(start + room)
            owners.append(number)
            room += max(size, 1)
        rooms.append(room)
    assert regions.pointers(offset).tolist() == expected
    assert regions.owners.tolist() == owners
    assert regions.room_of_samples.tolist() == rooms


def test_no_two_regions_begin_at_the_same_place_not_even_empty_ones():
    assert region_sizes([[0, 0], [0], [5]]).pointers(np.array([10, 12, 13])).tolist() == [10, 11, 12, 13]
