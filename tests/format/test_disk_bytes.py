"""Files that ask for much memory: none is allocated for missing bytes, and little more than the bytes read."""

from __future__ import annotations

import os

import numpy as np
import pytest

from gpubeton.errors import FormatError, TruncatedError
from gpubeton.fields.registry import open_index
from gpubeton.format import open_dataset
from gpubeton.format.layout import (
    ALLOCATION_DTYPE,
    DESCRIPTOR_DTYPE,
    HEADER_DTYPE,
    IMAGE_DTYPE,
    FieldType,
    metadata_dtype,
)

PAGE = 1 << 21
MANY = 1 << 24
"""Integers that take 128 MiB of metadata."""


def start_of_file(num_samples, table_at, *types):
    """Header and descriptors of a file."""
    header = np.array([(2, len(types), PAGE, num_samples, table_at)], HEADER_DTYPE)
    descriptors = np.zeros(len(types), DESCRIPTOR_DTYPE)
    for number, type_id in enumerate(types):
        descriptors[number]["type_id"] = type_id
        descriptors[number]["name"] = np.frombuffer(f"f{number}".encode().ljust(16, b"\0"), "u1")
    return header.tobytes() + descriptors.tobytes()


def write_sparse_integers(path, num_samples):
    """Write a file of so many zeros, none of which is on the disk."""
    offset = HEADER_DTYPE.itemsize + DESCRIPTOR_DTYPE.itemsize
    path.write_bytes(start_of_file(num_samples, offset + 8 * num_samples, FieldType.INT))
    os.truncate(path, offset + 8 * num_samples)
    return path


@pytest.fixture(scope="module")
def sparse(tmp_path_factory):
    path = write_sparse_integers(tmp_path_factory.mktemp("sparse") / "sparse.beton", MANY)
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("this file system has no holes")
    return path


def refuse(path, error, match):
    with pytest.raises(error, match=match):
        open_dataset(path)


def test_metadata_that_were_never_written_are_refused_before_memory_is_taken(sparse, memory_of):
    match = rf"sparse.beton: the metadata should take {8 * MANY} bytes .* only [0-9]+ bytes"
    assert memory_of(refuse, sparse, TruncatedError, match).peak < 1 << 20


def test_metadata_of_terabytes_are_refused_before_memory_is_taken(tmp_path, memory_of):
    try:
        path = write_sparse_integers(tmp_path / "huge.beton", 1 << 40)
    except OSError:
        pytest.skip("this file system has no files of that size")
    assert memory_of(refuse, path, FormatError, rf"huge.beton: .*{8 << 40} bytes").peak < 1 << 20


def test_holes_that_a_copy_makes_of_zeros_are_no_fault(tmp_path):
    path = write_sparse_integers(tmp_path / "labels.beton", MANY)
    ones = np.ones(1 << 16, "<i8")
    with path.open("r+b") as file:
        file.seek(HEADER_DTYPE.itemsize + DESCRIPTOR_DTYPE.itemsize + 8 * (MANY // 2))
        file.write(ones.tobytes())
    column = open_dataset(path).column("f0")
    assert int(column[MANY // 2 :][: len(ones)].sum()) == len(ones)


def test_a_file_system_that_does_not_know_its_holes_is_believed(sparse, monkeypatch):
    def refuse_to_seek(*arguments):
        raise OSError(22, "no holes here")

    monkeypatch.setattr(os, "lseek", refuse_to_seek)
    assert open_dataset(sparse).num_samples == MANY


def test_a_file_system_that_calls_data_a_hole_is_not_believed(tmp_path, monkeypatch):
    path = write_sparse_integers(tmp_path / "written.beton", MANY)
    with path.open("r+b") as file:
        file.seek(HEADER_DTYPE.itemsize + DESCRIPTOR_DTYPE.itemsize)
        file.write(np.ones(512, "<i8").tobytes())
    refused = []

    def all_is_a_hole(descriptor, offset, how):
        refused.append(how)
        raise OSError(6, "no data from here on")

    monkeypatch.setattr(os, "lseek", all_is_a_hole)
    assert open_dataset(path).num_samples == MANY
    assert refused == [os.SEEK_DATA]


def test_memory_that_is_not_there_is_an_error_with_the_bytes(tmp_path, monkeypatch):
    path = write_sparse_integers(tmp_path / "small.beton", 1000)

    def no_memory(*arguments):
        raise MemoryError

    monkeypatch.setattr(np, "empty", no_memory)
    refuse(path, FormatError, "small.beton: .* bytes of memory")


@pytest.mark.parametrize("is_sorted", [True, False])
def test_opening_takes_at_most_twice_the_bytes_that_it_reads(tmp_path, is_sorted, memory_of):
    count, path = 100_000, tmp_path / "images.beton"
    nbytes = write_images(path, count, is_sorted=is_sorted)
    memory = memory_of(open_dataset, path)
    assert memory.peak < 2 * nbytes
    opened = open_dataset(path)  # 13 bytes of an image, 4 of its size, 8 of a label
    assert sum(array.nbytes for row in opened.rows for array in row.arrays) == 25 * count
    assert memory.kept < 25 * count + (1 << 16)


def test_opening_many_files_takes_the_memory_of_all_and_of_a_few_at_a_time(tmp_path, memory_of):
    count, paths = 4_000, [tmp_path / f"{number:02}.beton" for number in range(64)]
    for path in paths:
        write_images(path, count)
    assert memory_of(open_index, paths).peak < 1.8 * 25 * count * len(paths)
    assert sum(array.nbytes for row in open_index(paths)[0].rows for array in row.arrays) == 25 * count * len(paths)


def write_images(path, count, *, is_sorted=True):
    """Write a file of holes as images; return the bytes of its metadata and its table."""
    size = 100
    rows = np.zeros(count, metadata_dtype([IMAGE_DTYPE, np.dtype("<i8")]))
    offset = HEADER_DTYPE.itemsize + 2 * DESCRIPTOR_DTYPE.itemsize
    page, place = np.divmod(np.arange(count), PAGE // size)
    pointers = -(-(offset + rows.nbytes) // PAGE) * PAGE + page * PAGE + place * size
    rows["f0"]["width"], rows["f0"]["height"], rows["f0"]["data_ptr"] = 10, 10, pointers
    table = np.zeros(count, ALLOCATION_DTYPE)
    table["sample_id"], table["ptr"], table["size"] = np.arange(count), pointers, size
    end = -(-int(pointers[-1] + size) // PAGE) * PAGE
    with path.open("wb") as file:
        file.write(start_of_file(count, end, FieldType.RGB_IMAGE, FieldType.INT) + rows.tobytes())
        file.seek(end)
        file.write((table if is_sorted else np.concatenate([table[1::2], table[::2]])).tobytes())
    return rows.nbytes + table.nbytes
