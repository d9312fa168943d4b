from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gpubeton._writing import MovedRegions
from gpubeton.dataset import copy_samples, verify
from gpubeton.errors import (
    FieldMismatchError,
    NoSamplesError,
    OptionError,
    PageSizeError,
    RegionError,
    RegionTooLargeError,
    StorageError,
)
from gpubeton.fields import BytesField, FloatField, IntField, JSONField, NDArrayField
from gpubeton.fields.base import ArgumentlessField
from gpubeton.fields.registry import open_index
from gpubeton.format.layout import FieldType
from gpubeton.reader import Reader
from gpubeton.writer import DatasetWriter
from tests.golden_files import CUSTOM_TYPES, NAMES, save
from tests.small_files import Photos, damage, photo_fields, write, write_photos

PAGE = 1 << 21


def values(path, custom=None):
    """Each sample's stored values: regions as bytes, numbers as they are."""
    index, _ = open_index(path, custom)
    content = index.path.read_bytes()
    columns = []
    for number, name in enumerate(index.names):
        column = index.metadata[f"f{number}"]
        if index.has_regions(name):
            regions = index.regions(name)
            bounds = zip(regions.offset.tolist(), regions.size.tolist(), strict=True)
            columns.append([content[start : start + size] for start, size in bounds])
            if column.dtype.names and "height" in column.dtype.names:
                columns.append(column[["mode", "height", "width"]].tolist())
        else:
            columns.append(column.tolist())
    return [repr(sample) for sample in zip(*columns, strict=True)]  # in which not-a-number is equal to itself


@pytest.mark.parametrize("notes", [None, {"class_names": ["a", "b"]}])
def test_all_samples_of_a_written_file_give_the_same_file(notes, tmp_path):
    writer = DatasetWriter(tmp_path / "a.beton", photo_fields("proportion"), PAGE, 1, progress=False, notes=notes)
    writer.from_indexed_dataset(Photos(600, (60, 80)))
    copy_samples(tmp_path / "a.beton", tmp_path / "b.beton")
    first, second = (tmp_path / "a.beton").read_bytes(), (tmp_path / "b.beton").read_bytes()
    assert len(first) > 3 * PAGE
    if notes is None:
        assert first == second
    else:
        assert values(tmp_path / "a.beton") == values(tmp_path / "b.beton")
        one, other = Reader(tmp_path / "a.beton"), Reader(tmp_path / "b.beton")
        assert np.array_equal(one.checksums, other.checksums)
        assert other.class_names == ("a", "b")
        assert other.notes["copied_from"] == ["a.beton"]


def test_samples_come_in_the_order_asked_for_also_twice(tmp_path):
    path = write_photos(tmp_path / "a.beton", 30)
    chosen = [29, 3, 3, 0, 14]
    copy_samples(path, tmp_path / "b.beton", chosen)
    before, after = values(path), values(tmp_path / "b.beton")
    assert after == [before[sample] for sample in chosen]
    assert verify(tmp_path / "b.beton").is_sound


@pytest.mark.parametrize("name", NAMES)
def test_ffcvs_files_are_copied_backwards(name, tmp_path):
    class Custom(ArgumentlessField):
        metadata_type = CUSTOM_TYPES.get("caption", np.dtype("<u8"))
        encode = get_decoder_class = None

    custom = {"caption": Custom()} if name == "custom" else None
    path = save(name, tmp_path)
    before = values(path, custom)
    copy_samples(path, tmp_path / "b.beton", range(len(before))[::-1], custom, page_size=8 << 20)
    assert values(tmp_path / "b.beton", custom) == before[::-1]
    assert Reader(tmp_path / "b.beton", custom).notes == {}


def test_several_files_become_one(tmp_path):
    first, second = write_photos(tmp_path / "a.beton", 10), write_photos(tmp_path / "b.beton", 7, write_mode="raw")
    copy_samples([first, second], tmp_path / "c.beton")
    assert values(tmp_path / "c.beton") == values(first) + values(second)
    copy_samples([first, second], tmp_path / "d.beton", [16, 0, 10, 9])
    both = values(first) + values(second)
    assert values(tmp_path / "d.beton") == [both[sample] for sample in (16, 0, 10, 9)]


def test_a_file_without_regions_is_copied(tmp_path):
    path = write(tmp_path / "a.beton", {"x": IntField(), "y": FloatField()}, [(number, 0.5) for number in range(5)])
    copy_samples(path, tmp_path / "b.beton", [4, 2])
    assert values(tmp_path / "b.beton") == ["(4, 0.5)", "(2, 0.5)"]


class TwoPointers(ArgumentlessField):
    """Its metadata holds where two regions begin, the end of the second, and a plain number."""

    metadata_type = np.dtype([("where", "<u8", (3,)), ("number", "<i8")])
    get_decoder_class = None

    def encode(self, destination, value, malloc):
        first, region = malloc(len(value))
        region[:] = np.frombuffer(value, np.uint8)
        second, region = malloc(2 * len(value))
        region[:] = np.frombuffer(value * 2, np.uint8)
        destination["where"] = [first, second, second + 2 * len(value)]
        destination["number"] = len(value)


def test_all_pointers_of_a_custom_field_are_updated(tmp_path):
    fields = {"x": BytesField(), "odd": TwoPointers(), "y": JSONField()}
    samples = [(b"%d" % number, b"abc%d" % number, number) for number in range(9)]
    single = write(tmp_path / "a.beton", fields, samples[:4])
    two = write(tmp_path / "b.beton", fields, samples[4:])
    copy_samples([single, two], tmp_path / "c.beton", [8, 1, 5], {"odd": TwoPointers})
    index, content = open_index(tmp_path / "c.beton", {"odd": TwoPointers})[0], (tmp_path / "c.beton").read_bytes()
    for row, sample in zip(index.column("odd"), (8, 1, 5), strict=True):
        first, second, end = row["where"].tolist()
        value = samples[sample][1]
        assert content[first : first + len(value)] == value
        assert content[second:end] == 2 * value
        assert row["number"] == len(value)


@given(arrays(np.uint64, 6, elements=st.integers(0, 2**63)))
def test_numbers_that_point_nowhere_stay(numbers):
    regions = np.arange(6, dtype=np.uint64) * 100 + 2**63 + 1000
    moved = MovedRegions(np.ones(6, np.int64), regions, np.full(6, 100, np.uint64), regions[::-1])
    column = numbers.copy()
    moved.update_pointers(column, FieldType.CUSTOM, None)
    assert np.array_equal(column, numbers)


def test_an_empty_value_and_the_next_one_at_the_same_place_are_distinguished():
    moved = MovedRegions(
        count=np.array([2]),
        old=np.array([100, 100], np.uint64),
        size=np.array([0, 7], np.uint64),
        new=np.array([500, 501], np.uint64),
    )
    for stored, expected in ((0, 500), (7, 501)):
        column = np.array([100], np.uint64)
        moved.update_pointers(column, FieldType.NDARRAY, np.array([stored], np.uint64))
        assert column.tolist() == [expected]


def test_a_size_that_looks_like_a_pointer_stays(tmp_path):
    # The first region begins at PAGE and has as many bytes.
    path = write(tmp_path / "a.beton", {"x": BytesField()}, [(bytes(PAGE),), (b"1",)])
    copy_samples(path, tmp_path / "b.beton", [1, 0])
    assert values(tmp_path / "b.beton") == values(path)[::-1]


def test_damage_is_not_copied(tmp_path):
    path = tmp_path / "a.beton"
    DatasetWriter(path, photo_fields("raw"), PAGE, 1, progress=False, notes={}).from_indexed_dataset(Photos(9))
    damage(path, 5)
    with pytest.raises(RegionError, match=r"sample 5: .* checksum"):
        copy_samples(path, tmp_path / "b.beton")
    assert not (tmp_path / "b.beton").exists()
    copy_samples(path, tmp_path / "b.beton", [0, 1])


def with_classes(path, names):
    fields = {"x": NDArrayField(np.dtype("u1"), (2,)), "label": IntField()}
    writer = DatasetWriter(path, fields, PAGE, 1, progress=False, notes={"class_names": names})
    writer.from_indexed_dataset([(np.zeros(2, np.uint8), 0)])
    return path


def test_files_that_name_different_classes_are_not_mixed_up(tmp_path):
    paths = [with_classes(tmp_path / "a.beton", ["owl"]), with_classes(tmp_path / "b.beton", ["cat"])]
    with pytest.raises(OptionError, match=r"owl.*cat"):
        copy_samples(paths, tmp_path / "c.beton")
    copy_samples(paths, tmp_path / "c.beton", class_names=["bird"])
    assert Reader(tmp_path / "c.beton").class_names == ("bird",)
    copy_samples(paths, tmp_path / "d.beton", class_names=[])
    assert Reader(tmp_path / "d.beton").class_names is None


def test_impossible_copies_are_refused(tmp_path):
    path = write_photos(tmp_path / "a.beton", 3)
    other = write(tmp_path / "b.beton", {"x": IntField()}, [(1,)])
    big = write(tmp_path / "c.beton", {"x": BytesField()}, [(b"1",)])
    out = tmp_path / "out.beton"
    with pytest.raises(OptionError, match="no sample 3; there are 3"):
        copy_samples(path, out, [3])
    with pytest.raises(NoSamplesError, match="0 samples"):
        copy_samples(path, out, [])
    with pytest.raises(FieldMismatchError):
        copy_samples([path, other], out)
    with pytest.raises(PageSizeError, match="1000"):
        copy_samples(big, out, page_size=1000)
    DatasetWriter(big, {"x": BytesField()}, 2 * PAGE, 1, progress=False).from_indexed_dataset([(bytes(PAGE + 1),)])
    with pytest.raises(RegionTooLargeError, match=f"Use page_size={2 * PAGE}"):
        copy_samples(big, out, page_size=PAGE)
    assert not out.exists()


@pytest.mark.parametrize("change", ["replaced", "written to"])
def test_a_file_that_changes_while_it_is_copied_is_refused(tmp_path, change):
    path, out = write_photos(tmp_path / "photos.beton", 300), tmp_path / "out.beton"
    content = path.read_bytes()

    def disturb(done, _):
        if done < 300:
            if change == "replaced":
                path.unlink()
            path.write_bytes(content)

    if change == "replaced":  # the open file is read to its end
        copy_samples(path, out, on_progress=disturb)
        assert verify(out).is_sound
    else:
        with pytest.raises(StorageError, match=r"photos\.beton: "):
            copy_samples(path, out, on_progress=disturb)
        assert not out.exists()
