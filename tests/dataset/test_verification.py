from __future__ import annotations

import re

import numpy as np
import pytest

from gpubeton.dataset import index_images, verify
from gpubeton.errors import FieldTypeError, StorageError
from gpubeton.fields import BytesField, JSONField
from gpubeton.fields.registry import open_index
from gpubeton.format.entry_points import read_beside
from gpubeton.writer import DatasetWriter
from tests.golden_files import NAMES, save
from tests.small_files import Photos, damage, photo_fields, write, write_photos


def with_checksums(path, write_mode="jpg"):
    writer = DatasetWriter(path, photo_fields(write_mode), 1 << 21, 1, progress=False, notes={})
    writer.from_indexed_dataset(Photos(80))
    return path


def test_a_sound_file_is_found_sound(tmp_path):
    found = verify(with_checksums(tmp_path / "a.beton"), num_workers=2)
    # Every fifth sample has no bytes; their field has a region all the same.
    assert (found.is_sound, found.samples, found.regions, found.decoded["jpg"]) == (True, 80, 320, 80)
    assert found.checksums == 320


@pytest.mark.parametrize("name", [name for name in NAMES if name != "custom"])
def test_ffcvs_files_are_sound(name, tmp_path):
    found = verify(save(name, tmp_path))
    assert found.findings == []
    assert found.checksums == 0


@pytest.mark.parametrize("has_entry_points", [False, True])
def test_bad_jpeg_files_are_named(tmp_path, has_entry_points):
    path = write_photos(tmp_path / "a.beton", 70)
    if has_entry_points:
        index_images(path)
    for sample in (3, 66):
        damage(path, sample)
    found = verify(path, num_workers=3)
    assert found.bad_samples == [3, 66]
    assert {finding.field for finding in found.findings} == {"image"}
    assert has_entry_points or "cannot be decoded" in found.findings[0].what


def changed(path, position, content):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def test_entry_points_in_and_beside_a_file_are_compared(tmp_path):
    path = with_checksums(tmp_path / "a.beton")
    count = verify(path).entry_points
    assert count >= 80
    index_images(path, overwrite=True)
    assert (verify(path).findings, verify(path).entry_points) == ([], 2 * count)
    index = tmp_path / "a.beton.index"
    block = read_beside(open_index(path)[0])["image"]
    changed(index, 10 * int(block.first[70]) + 5, b"\x55")
    found = verify(path)
    assert [(finding.sample, finding.field) for finding in found.findings] == [(70, "image")]
    assert "gpubeton index --overwrite" in found.findings[0].what
    changed(index, index.stat().st_size - 30, b"\x55")
    found = verify(path)
    assert [(finding.sample, finding.field) for finding in found.findings] == [(None, None)]
    assert found.entry_points == count


@pytest.mark.parametrize("kind", ["inside", "beside"])
def test_a_file_that_is_replaced_meanwhile_is_an_error(tmp_path, kind):
    path = tmp_path / "a.beton"
    if kind == "inside":
        with_checksums(path)
    else:
        index_images(write_photos(path, 80))
    other = write_photos(tmp_path / "other.beton", 5)

    def advance(*_):
        if other.exists():
            other.replace(path)

    with pytest.raises(StorageError, match="another file"):
        verify(path, on_progress=advance)


@pytest.mark.parametrize("field", ["image", "note", "info", "vector"])
def test_a_changed_byte_anywhere_is_found_by_its_checksum(field, tmp_path):
    path = with_checksums(tmp_path / "a.beton", "raw")
    regions = open_index(path)[0].regions(field)
    with path.open("r+b") as file:
        file.seek(int(regions.offset[44]))
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 4]))
    found = verify(path)
    assert found.bad_samples == [44]
    assert found.findings[0].field == field
    assert "have changed since it was stored" in found.findings[0].what


def test_json_that_is_none_is_named_without_checksums_too(tmp_path):
    path = write_photos(tmp_path / "a.beton", 5)
    damage(path, 2, field="info", content=b"[")
    found = verify(path)
    assert [(finding.sample, finding.field) for finding in found.findings] == [(2, "info")]
    assert "JSON" in found.findings[0].what


def test_an_image_of_another_size_than_its_metadata_is_reported(tmp_path):
    path = write_photos(tmp_path / "a.beton", 3, size=(40, 60))
    index, _ = open_index(path)
    with path.open("r+b") as file:
        file.seek(index.header.metadata_offset + index.metadata.itemsize + 1)
        file.write(np.array([50, 40], "<u2").tobytes())
    found = verify(path)
    assert found.bad_samples == [1]
    assert re.search("40 x 60 .* 40 x 50", found.findings[0].what)


def test_a_damaged_index_or_damaged_notes_are_findings_and_a_custom_field_needs_its_class(tmp_path):
    path = write_photos(tmp_path / "a.beton", 3)
    path.write_bytes(path.read_bytes()[:-7])
    found = verify(path)
    assert (found.is_sound, found.bad_samples, found.samples) == (False, [], 0)
    assert "not a multiple of 24" in found.findings[0].what
    path = with_checksums(tmp_path / "b.beton")
    index, _ = open_index(path)
    changed(path, index.header.alloc_table_ptr - 33, b"!")
    found = verify(path)
    assert [(finding.sample, "notes" in finding.what) for finding in found.findings] == [(None, True)]
    with pytest.raises(FieldTypeError, match="custom"):
        verify(save("custom", tmp_path))


def test_a_region_after_an_empty_one_at_the_same_place_is_distinguished_from_it(tmp_path):
    """FFCV gives an empty value the place of the next one."""
    path = tmp_path / "a.beton"
    write(path, {"note": BytesField(), "info": JSONField()}, [(b"", {"a": 1})])
    index, _ = open_index(path)
    place = int(index.regions("info").offset[0])
    assert int(index.allocations["ptr"][0]) == place - 1
    with path.open("r+b") as file:
        for at in (index.header.metadata_offset, index.header.alloc_table_ptr + 8):
            file.seek(at)
            file.write(np.uint64(place).tobytes())
    assert verify(path).is_sound
    damage(path, 0, field="info", content=b"[")
    assert [(finding.sample, finding.field) for finding in verify(path).findings] == [(0, "info")]


@pytest.mark.parametrize("error", [KeyError(6), MemoryError(), SystemError("in C")], ids=repr)
def test_a_decoder_that_fails_on_one_value_does_not_end_the_report(error, tmp_path, monkeypatch):
    from gpubeton.fields import jpeg

    path = write_photos(tmp_path / "a.beton", 5)
    damage(path, 4)
    calls = []

    def decode(content):
        calls.append(content)
        if len(calls) == 3:
            raise error

    monkeypatch.setattr(jpeg, "decode_rgb", decode)
    found = verify(path, num_workers=1)
    assert [(finding.sample, finding.field) for finding in found.findings] == [(2, "image"), (4, "image")]
    assert type(error).__name__ in found.findings[0].what
    assert (found.samples, found.regions) == (5, 20)


def test_a_file_that_is_written_to_while_it_is_verified_is_refused(tmp_path):
    path = with_checksums(tmp_path / "a.beton")
    content = path.read_bytes()
    with pytest.raises(StorageError, match=r"a.beton: modified at"):
        verify(path, num_workers=1, on_progress=lambda *_: path.write_bytes(content))
