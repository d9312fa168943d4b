from __future__ import annotations

import numpy as np
import pytest

from gpubeton.format.layout import ALLOCATION_DTYPE, BYTES_DTYPE, IMAGE_DTYPE, metadata_dtype
from tests.golden_files import NAMES, sidecar


@pytest.mark.parametrize(
    ("types", "size", "offsets"),
    [
        ([IMAGE_DTYPE], 13, [0]),
        ([IMAGE_DTYPE, "<i8"], 24, [0, 16]),
        (["<i8", IMAGE_DTYPE], 24, [0, 8]),
        ([IMAGE_DTYPE, IMAGE_DTYPE, "<i8"], 40, [0, 13, 32]),
        ([IMAGE_DTYPE, BYTES_DTYPE], 29, [0, 13]),
        ([IMAGE_DTYPE, BYTES_DTYPE, IMAGE_DTYPE], 42, [0, 13, 29]),
        ([BYTES_DTYPE, "<i8"], 24, [0, 16]),
        (["<i8", BYTES_DTYPE, "<f8"], 32, [0, 8, 24]),
    ],
)
def test_only_numbers_are_aligned_in_a_metadata_row(types, size, offsets):
    row = metadata_dtype(types)
    assert row.itemsize == size
    assert [row.fields[name][1] for name in row.names] == offsets


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_as_long_as_those_of_ffcv(name):
    expected = sidecar(name)["metadata"]
    types = {0: "<f8", 1: "<i8", 2: IMAGE_DTYPE, 3: BYTES_DTYPE, 4: "<u8", 5: BYTES_DTYPE, 6: "<u8", 255: "<u8"}
    row = metadata_dtype([types[field["type_id"]] for field in sidecar(name)["fields"]])
    assert row.itemsize == expected["itemsize"]
    assert {key: row.fields[key][1] for key in row.names} == {
        key: column["offset"] for key, column in expected["columns"].items()
    }


def test_numbers_are_little_endian_on_every_machine():
    assert np.array([1], ALLOCATION_DTYPE["ptr"]).tobytes() == b"\1" + bytes(7)
