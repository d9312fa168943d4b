from __future__ import annotations

import errno
import os

import pytest

from gpubeton._bytes import open_bytes
from gpubeton.errors import (
    FieldNameError,
    FormatError,
    HeaderError,
    NoSamplesError,
    TruncatedError,
    VersionError,
)
from gpubeton.format import read_header
from gpubeton.format.header import read_fields
from tests.golden_files import NAMES, content, save, sidecar


def patched(tmp_path, name, *changes):
    """A golden file with some of its bytes replaced: (offset, bytes) pairs."""
    file = bytearray(content(name))
    for offset, replacement in changes:
        file[offset : offset + len(replacement)] = replacement
    path = tmp_path / "patched.beton"
    path.write_bytes(file)
    return path


def read_descriptors(path):
    with open_bytes(path) as source:
        return read_fields(source)[1]


@pytest.mark.parametrize("name", NAMES)
def test_headers_and_descriptors_of_ffcv_are_read(name, tmp_path):
    path = save(name, tmp_path)
    header = read_header(path)
    assert vars(header) == sidecar(name)["header"]
    assert header.metadata_offset == sidecar(name)["metadata"]["offset"]
    for descriptor, expected in zip(read_descriptors(path), sidecar(name)["fields"], strict=True):
        assert (descriptor.name, descriptor.type_id) == (expected["name"], expected["type_id"])
        assert descriptor.arguments.rstrip(b"\0").hex() == expected["arguments_hex"]


def test_a_name_of_16_characters_needs_no_zero_after_it_and_an_empty_one_is_a_name(tmp_path):
    assert read_descriptors(patched(tmp_path, "one_int", (25, bytes(16))))[0].name == ""
    assert [field.name for field in read_descriptors(save("names", tmp_path))] == ["x" * 16, "a_name_of_17_cha", "y"]


@pytest.mark.parametrize(
    ("name", "length", "message"),
    [
        *(("one_int", length, rf"{length} bytes.*24") for length in (0, 10, 23)),
        ("all_fields", 5000, r"7 fields.*7287 bytes.*4976"),
    ],
)
def test_a_file_that_ends_in_its_header_or_its_descriptors_is_truncated(name, length, message, tmp_path):
    path = tmp_path / "short.beton"
    path.write_bytes(content(name)[:length])
    with pytest.raises(TruncatedError, match=message):
        read_descriptors(path)


def test_another_kind_of_file_is_recognized_by_its_version(tmp_path):
    path = tmp_path / "photo.beton"
    path.write_bytes(b"GIF89a" + bytes(100))
    with pytest.raises(VersionError, match=r"47 49 46 38.* 18759.* 2"):
        read_header(path)


@pytest.mark.parametrize(
    ("offset", "replacement", "error", "message"),
    [
        (2, bytes(2), HeaderError, "0 fields"),
        (4, bytes(4), HeaderError, "page size 0"),
        (4, (3 << 20).to_bytes(4, "little"), HeaderError, "3145728.*power of two"),
        (8, bytes(8), NoSamplesError, "0 samples"),
        (16, bytes(8), TruncatedError, "interrupted"),  # a conversion of FFCV
    ],
)
def test_numbers_that_cannot_be_are_refused(offset, replacement, error, message, tmp_path):
    path = patched(tmp_path, "one_int", (offset, replacement))
    with pytest.raises(error, match=message):
        read_header(path)


@pytest.mark.parametrize("name", [b"caf\xe9".ljust(16, b"\0"), b"a\0b".ljust(16, b"\0"), b"\0" * 15 + b"x"])
def test_a_name_that_is_not_ascii_and_then_zeros_is_refused(name, tmp_path):
    with pytest.raises(FieldNameError, match="field 0"):
        read_descriptors(patched(tmp_path, "one_int", (25, name)))


def test_two_fields_of_one_name_are_refused(tmp_path):
    path = patched(tmp_path, "scalars", (25 + 1041, b"i"))
    with pytest.raises(FieldNameError, match="2 fields are called 'i'"):
        read_descriptors(path)


def test_a_missing_file_and_a_folder_raise_the_errors_of_open(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_header(tmp_path / "nothing.beton")
    with pytest.raises(IsADirectoryError, match=r"Loader also reads a folder.*gpubeton index") as caught:
        read_header(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: a folder")
    assert caught.value.errno == errno.EISDIR


def test_a_photo_is_called_a_photo(tmp_path):
    (tmp_path / "x.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(200))
    with pytest.raises(FormatError, match=r"x\.jpg: a JPEG file.*name their folder"):
        read_header(tmp_path / "x.jpg")


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="not a regular file"):
        read_header(tmp_path / "pipe")
