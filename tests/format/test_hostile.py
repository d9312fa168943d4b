"""Damaged files open or raise FormatError: never another exception, and never memory for missing bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton.errors import FormatError
from gpubeton.format import open_dataset
from gpubeton.format.layout import ALLOCATION_DTYPE
from tests.golden_files import content, sidecar

NAMES = ("small_pages", "scalars", "ints_two_workers", "one_int")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile") / "hostile.beton"


def survives(path, file):
    path.write_bytes(file)
    try:
        index = open_dataset(path)
    except FormatError:
        return
    for name in index.names:
        assert len(index.column(name)) == index.num_samples
        if index.has_regions(name):
            regions = index.regions(name)
            stop = regions.offset[regions.size > 0] + regions.size[regions.size > 0]
            assert np.all(stop <= index.header.alloc_table_ptr)
            assert index.header.alloc_table_ptr <= index.file_size


def structural_bytes(name):
    """Offsets of everything but the data pages."""
    described = sidecar(name)
    metadata = described["metadata"]
    metadata_end = metadata["offset"] + described["header"]["num_samples"] * metadata["itemsize"]
    table = range(described["header"]["alloc_table_ptr"], described["bytes"])
    return [*range(24), *range(24, metadata_end), *table]


BYTES = {name: structural_bytes(name) for name in NAMES}


@settings(max_examples=200)
@given(data=st.data())
def test_flipped_bytes(data, path):
    name = data.draw(st.sampled_from(NAMES))
    file = bytearray(content(name))
    for _ in range(data.draw(st.integers(1, 4))):
        # The header and the descriptors are small beside the rest, and deserve as many tries.
        places = st.integers(0, 23) | st.integers(24, 24 + 1041) | st.sampled_from(BYTES[name])
        file[data.draw(places) % len(file)] = data.draw(st.integers(0, 255))
    survives(path, file)


@settings(max_examples=60)
@given(data=st.data())
def test_cut_and_extended_files(data, path):
    name = data.draw(st.sampled_from(NAMES))
    file = content(name)
    survives(path, file[: data.draw(st.integers(0, len(file)))] + data.draw(st.binary(max_size=100)))


@settings(max_examples=100)
@given(data=st.data())
def test_numbers_of_any_size_in_the_header_and_the_table(data, path):
    file = bytearray(content("small_pages"))
    number = st.sampled_from([0, 1, 23, 24, 30, 31, 2**16, 2**31, 2**32, 2**53, 2**63, 2**64 - 1]) | st.integers(
        0, 2**64 - 1
    )
    table = np.frombuffer(file, ALLOCATION_DTYPE, -1, sidecar("small_pages")["header"]["alloc_table_ptr"])
    if data.draw(st.booleans()):
        offset, size = data.draw(st.sampled_from([(2, 2), (4, 4), (8, 8), (16, 8)]))
        value = data.draw(number) % 2 ** (8 * size)
        file[offset : offset + size] = value.to_bytes(size, "little")
    else:
        row = data.draw(st.integers(0, len(table) - 1))
        table[data.draw(st.sampled_from(table.dtype.names))][row] = data.draw(number)
    survives(path, file)


@settings(max_examples=50)
@given(file=st.binary(max_size=3000))
def test_bytes_that_never_were_a_file(file, path):
    survives(path, file)
    survives(path, b"\2\0\1\0" + file)
