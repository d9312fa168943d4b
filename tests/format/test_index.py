from __future__ import annotations

import hashlib
import os
import zlib

import numpy as np
import pytest

from gpubeton.dataset import copy_samples, index_images, verify
from gpubeton.errors import (
    AllocationError,
    FieldArgumentsError,
    FieldTypeError,
    FormatError,
    GpubetonError,
    HeaderError,
    ImageSizeError,
    NoSuchFieldError,
    RegionError,
    RegionOverlapError,
    RegionSizeError,
    StorageError,
    TruncatedError,
)
from gpubeton.fields import BytesField, FloatField, IntField, RGBImageField
from gpubeton.format import open_dataset, read_notes
from gpubeton.format.file_notes import Notes
from gpubeton.format.layout import ALLOCATION_DTYPE, HEADER_DTYPE
from gpubeton.loader import Loader
from gpubeton.writer import DatasetWriter
from tests.golden_files import CUSTOM_TYPES, NAMES, content, save, sidecar


class Patched:
    """A golden file whose parts are numpy views, to be damaged."""

    def __init__(self, name, folder):
        self.path = save(name, folder)
        whole = open_dataset(self.path, CUSTOM_TYPES)
        self.file, self.length = bytearray(content(name)), None
        self.header = np.frombuffer(self.file, HEADER_DTYPE, 1)
        self.metadata = np.frombuffer(self.file, whole.metadata.dtype, whole.num_samples, whole.header.metadata_offset)
        self.table = np.frombuffer(self.file, ALLOCATION_DTYPE, -1, whole.header.alloc_table_ptr)

    def open(self, length=None, extra=b""):
        self.path.write_bytes(self.file[: self.length if length is None else length] + extra)
        return open_dataset(self.path, CUSTOM_TYPES)


def given_names(name):
    """The names under which the samples are described; FFCV cuts one of them."""
    return [field["given_name"] for field in sidecar(name)["fields"]]


@pytest.mark.parametrize("name", NAMES)
def test_every_region_of_ffcv_is_found(name, tmp_path):
    index = open_dataset(save(name, tmp_path), CUSTOM_TYPES)
    file = content(name)
    assert index.file_size == len(file)
    assert index.names == tuple(field["name"] for field in sidecar(name)["fields"])
    for field, given_name in zip(index.names, given_names(name), strict=True):
        for sample, expected in enumerate(sample[given_name] for sample in sidecar(name)["samples"]):
            if not isinstance(expected, dict) or "ptr" not in expected:
                assert not index.has_regions(field)
                continue
            offset = int(index.regions(field).offset[sample])
            size = int(index.regions(field).size[sample])
            assert (offset, size) == (expected["ptr"], expected["size"])
            assert hashlib.sha256(file[offset : offset + size]).hexdigest() == expected["stored_sha256"]


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_ffcv_is_read(name, tmp_path):
    index = open_dataset(save(name, tmp_path), CUSTOM_TYPES)
    for field, descriptor, given_name in zip(index.names, index.descriptors, given_names(name), strict=True):
        expected = [sample[given_name] for sample in sidecar(name)["samples"]]
        if descriptor.type_id == 0:
            assert [value.hex() for value in index.column(field).tolist()] == [value["hex"] for value in expected]
        elif descriptor.type_id == 1:
            assert index.column(field).tolist() == expected
        elif descriptor.type_id == 2:
            result = index.column(field)[["mode", "width", "height"]].tolist()
            assert result == [(value["mode_id"], value["width"], value["height"]) for value in expected]


@pytest.mark.parametrize("name", NAMES)
def test_the_table_comes_sorted_and_complete(name, tmp_path):
    index = open_dataset(save(name, tmp_path), CUSTOM_TYPES)
    assert index.allocations.tolist() == sorted(map(tuple, sidecar(name)["alloc_table"]), key=lambda row: row[1])


def test_a_sample_has_the_page_of_its_first_region(tmp_path):
    index = open_dataset(save("pages_two_workers", tmp_path))
    described = sidecar("pages_two_workers")
    expected = {row[0]: page for row, page in zip(described["alloc_table"], described["page_of_alloc"], strict=True)}
    assert index.page_runs().to_array().tolist() == [expected[sample] for sample in range(index.num_samples)]


def test_a_file_without_pages_has_no_pages_of_samples(tmp_path):
    with pytest.raises(AllocationError, match="random order"):
        open_dataset(save("scalars", tmp_path)).page_runs()


def test_an_index_cannot_be_changed_by_accident(tmp_path):
    index = open_dataset(save("all_fields", tmp_path))
    for array in (index.metadata, index.allocations, index.column("label")):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


def test_an_unknown_field_is_named_beside_those_there_are(tmp_path):
    index = open_dataset(save("img_raw_fixed", tmp_path))
    for ask in (index.column, index.regions, index.has_regions):
        with pytest.raises(NoSuchFieldError, match=r"'img'; .* 'label', 'image', 'score'"):
            ask("img")
        with pytest.raises(KeyError):
            ask("img")


def test_a_number_has_no_region(tmp_path):
    with pytest.raises(FieldTypeError, match=r"'label'.*metadata"):
        open_dataset(save("img_raw_fixed", tmp_path)).regions("label")


def test_a_custom_field_needs_its_type(tmp_path):
    with pytest.raises(FieldTypeError, match=r"'caption'.*custom_fields="):
        open_dataset(save("custom", tmp_path))


def test_a_custom_column_that_holds_no_pointers_has_no_regions(tmp_path):
    patched = Patched("custom", tmp_path)
    patched.metadata["f0"][3] = 12345
    index = patched.open()
    assert not index.has_regions("caption")
    assert index.column("caption")[3] == 12345


def test_a_custom_struct_may_hold_its_pointer_by_name(tmp_path):
    index = open_dataset(save("custom", tmp_path), {"caption": np.dtype([("ptr", "<u8")])})
    assert index.regions("caption").size.tolist() == [40] * 10


def test_an_unknown_type_is_refused(tmp_path):
    patched = Patched("scalars", tmp_path)
    patched.file[24] = 77
    with pytest.raises(FieldTypeError, match=r"'i' .* 77, .* 0 \(FLOAT\)"):
        patched.open()


@pytest.mark.parametrize("name", ["all_fields", "small_pages", "scalars", "page_exact"])
@pytest.mark.parametrize("share", [0.0001, 0.3, 0.6, 0.9])
def test_a_file_that_was_cut_is_truncated(name, share, tmp_path):
    patched = Patched(name, tmp_path)
    with pytest.raises(TruncatedError):
        patched.open(length=int(share * len(patched.file)))


def set_number(part, name, value, row=0):
    """Write a number into a part of the file."""

    def change(file):
        getattr(file, part)[name][row] = value

    return change


def set_bytes(offset, content):
    def change(file):
        file.file[offset : offset + len(content)] = content

    return change


def cut_at(position):
    """End the file there; `None`: where its table begins."""

    def change(file):
        file.length = int(file.header["alloc_table_ptr"][0]) if position is None else position

    return change


def swap_two_pointers(file):
    pointers = file.metadata["f0"]["data_ptr"]
    pointers[[1, 2]] = pointers[[2, 1]]


def lengthen_a_region(file):
    file.table["size"][3] += 1


SHAPE = 24 + 17  # where an array's arguments begin


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("img_raw_var", cut_at(None), AllocationError, r"sample 0, field 'image': .* 2097152.*8 "),
        ("img_raw_var", cut_at(-7), TruncatedError, r"185 bytes, .* 24"),
        ("img_raw_var", cut_at(-48), AllocationError, r"sample 6.*2 such samples"),
        # Before memory is allocated.
        ("scalars", set_number("header", "num_samples", 1 << 60), TruncatedError, str(1 << 60)),
        ("img_raw_var", set_number("header", "num_samples", 5), AllocationError, "at most 5 regions"),
        ("img_raw_var", set_number("table", "sample_id", 8, 2), AllocationError, r"sample 8, .* 8 samples"),
        ("scalars", set_number("header", "alloc_table_ptr", 3000), HeaderError, r"3000, .*metadata"),
        ("small_pages", set_number("header", "page_size", 1 << 12), RegionError, "4096 bytes"),
        ("img_raw_var", lengthen_a_region, RegionOverlapError, r"sample 3 \(.* sample 4"),
        ("img_raw_var", swap_two_pointers, RegionError, r"sample 1, field 'image': .* sample 2"),
        ("ndarray_big", set_bytes(SHAPE, b"A"), RegionSizeError, r"sample 0, field 'x'.*3840 .*\(65, 3, 5\).*3900"),
        ("ndarray_big", set_bytes(SHAPE, b"\xff" * 24), RegionSizeError, "sample 0, field 'x'"),
        ("ndarray_big", set_bytes(SHAPE + 264, b"{"), FieldArgumentsError, r"field 'x'.*expected JSON"),
    ],
    ids=[
        "cut where its table begins",
        "a table cut inside a row",
        "a table that lost whole rows",
        "more samples than the file can hold",
        "fewer samples than the table names",
        "a row of a sample that does not exist",
        "a table inside the metadata",
        "a region that crosses into the next page",
        "regions that share bytes",
        "a region of another sample",
        "an array whose shape contradicts its region",
        "an array beyond 64 bits",
        "an array whose dtype cannot be read",
    ],
)
def test_a_file_that_contradicts_itself_is_refused_with_the_place(name, change, error, message, tmp_path):
    patched = Patched(name, tmp_path)
    change(patched)
    with pytest.raises(error, match=message):
        patched.open()


@pytest.mark.parametrize("extra", [b"x", bytes(24), bytes(23)])
def test_bytes_after_the_table_are_noticed(extra, tmp_path):
    with pytest.raises((TruncatedError, AllocationError), match="appended"):
        Patched("img_raw_var", tmp_path).open(extra=extra)


@pytest.mark.parametrize(
    ("ptr", "size"),
    [(4 << 20, 1), ((4 << 20) - 1, 2), (100, 5), (2**64 - 1, 2), (2 << 20, 2**64 - 1), (2**63, 2**63)],
)
def test_a_region_outside_the_data_pages_is_refused(ptr, size, tmp_path):
    patched = Patched("img_raw_var", tmp_path)
    patched.table["ptr"][3], patched.table["size"][3] = ptr, size
    with pytest.raises(RegionError, match=f"sample 3: .* {size} bytes at {ptr} "):
        patched.open()


@pytest.mark.parametrize("side", ["width", "height"])
def test_an_image_without_a_side_is_refused(side, tmp_path):
    patched = Patched("img_jpg_var", tmp_path)
    patched.metadata["f0"][side][4] = 0
    with pytest.raises(ImageSizeError, match=rf"sample 4, field 'image'.*{side} 0.*65536"):
        patched.open()


@pytest.mark.parametrize("mode", [1, 2, 255])
def test_a_raw_image_whose_size_contradicts_its_region_is_refused(mode, tmp_path):
    patched = Patched("img_raw_var", tmp_path)
    patched.metadata["f0"]["mode"][4] = mode
    patched.metadata["f0"]["height"][4] += 1
    with pytest.raises(RegionSizeError, match=r"sample 4, field 'image': .* 19008 bytes, .*raw"):
        patched.open()


@pytest.mark.parametrize("claimed", [101, 103])
def test_bytes_whose_two_sizes_differ_are_refused(claimed, tmp_path):
    patched = Patched("all_fields", tmp_path)
    patched.metadata["f3"]["size"][2] = claimed
    with pytest.raises(RegionSizeError, match=rf"sample 2, field 'blob'.*102 bytes, .* {claimed}"):
        patched.open()


def test_the_order_of_the_table_does_not_matter(tmp_path):
    patched = Patched("all_fields", tmp_path)
    whole = patched.open()
    allocations = whole.allocations
    patched.table[:] = np.random.default_rng(0).permutation(patched.table)
    shuffled = patched.open()
    assert np.array_equal(shuffled.allocations, allocations)
    assert np.array_equal(shuffled.regions("vec").offset, whole.regions("vec").offset)


def empty_value(patched, sample, ptr, row):
    """Make one value of `blob` in page_exact empty, as FFCV's writer leaves it."""
    patched.metadata["f0"]["size"][sample] = 0
    patched.metadata["f0"]["ptr"][sample] = ptr
    patched.table["ptr"][row], patched.table["size"][row] = ptr, 0


@pytest.mark.parametrize("swapped", [False, True])
def test_an_empty_value_with_the_pointer_of_the_next_one_hides_nothing(swapped, tmp_path):
    patched = Patched("page_exact", tmp_path)
    empty_value(patched, 2, 6291456, 2)
    if swapped:
        patched.table[[2, 3]] = patched.table[[3, 2]]
    index = patched.open()
    assert index.regions("blob").size.tolist() == [2097152, 2097151, 0, 1, 2097152]
    assert index.page_runs().to_array().tolist() == [1, 2, -1, 3, 4]
    least = 2 * index.header.page_size
    assert index.page_runs(least).to_array().tolist() == [0, 1, -1, 1, 2]
    assert index.page_runs(least // 4).to_array().tolist() == [1, 2, -1, 3, 4]


def test_an_empty_value_before_all_others_may_point_to_the_start_of_the_file(tmp_path):
    patched = Patched("page_exact", tmp_path)
    empty_value(patched, 0, 0, 0)
    assert patched.open().regions("blob").size.tolist() == [0, 2097151, 1, 1, 2097152]


@pytest.mark.parametrize("ptr", [1 << 47, 1 << 48, (1 << 64) - 1])
def test_the_pointer_of_an_empty_value_may_be_any_number(ptr, tmp_path):
    patched = Patched("page_exact", tmp_path)
    patched.metadata["f0"]["size"][4], patched.metadata["f0"]["ptr"][4] = 0, ptr
    offset = patched.open(length=-24).regions("blob").offset
    assert offset.tolist() == [*patched.metadata["f0"]["ptr"][:4].tolist(), 0]


def test_an_empty_value_needs_no_row_in_the_table(tmp_path):
    patched = Patched("page_exact", tmp_path)
    empty_value(patched, 4, 0, 4)
    assert patched.open(length=-24).regions("blob").size.tolist() == [2097152, 2097151, 1, 1, 0]


def test_values_that_are_all_empty_need_no_table(tmp_path):
    patched = Patched("page_exact", tmp_path)
    patched.metadata["f0"]["size"] = 0
    index = patched.open(length=int(patched.header["alloc_table_ptr"][0]))
    assert index.regions("blob").size.tolist() == [0] * 5


def test_a_file_that_shrinks_while_it_is_read_is_noticed(tmp_path, monkeypatch):
    path = save("img_raw_var", tmp_path)
    change_while_it_is_read(monkeypatch, lambda: os.truncate(path, path.stat().st_size - 8))
    with pytest.raises(TruncatedError, match="while it was read"):
        open_dataset(path)


def test_a_file_that_is_written_to_while_it_is_read_is_noticed(tmp_path, monkeypatch):
    path = save("img_raw_var", tmp_path)
    change_while_it_is_read(monkeypatch, lambda: os.utime(path, ns=(1, 1)))
    with pytest.raises(StorageError, match=r"img_raw_var.* 0\.000 "):
        open_dataset(path)


def change_while_it_is_read(monkeypatch, change):
    preadv, changes = os.preadv, [change]

    def changing(*arguments):
        while changes:
            changes.pop()()
        return preadv(*arguments)

    monkeypatch.setattr(os, "preadv", changing)


def test_every_error_of_a_file_is_a_value_error(tmp_path):
    with pytest.raises(ValueError, match=r"76 bytes") as caught:
        Patched("img_raw_var", tmp_path).open(length=100)
    assert isinstance(caught.value, GpubetonError)


@pytest.mark.parametrize("made_by", ["writer", "index"])
def test_no_changed_number_of_the_metadata_is_believed_if_its_checksum_is_known(tmp_path, made_by):
    fields = {"image": RGBImageField("raw"), "label": IntField(), "weight": FloatField()}
    samples = [(np.full((2, 3, 3), number, np.uint8), number, number / 2) for number in range(4)]
    path = tmp_path / "a.beton"
    notes = {} if made_by == "writer" else None
    DatasetWriter(path, fields, 1 << 21, 1, progress=False, notes=notes).from_indexed_dataset(samples)
    if made_by == "index":
        index_images(path)
    index, content = open_dataset(path), bytearray(path.read_bytes())
    first = index.header.metadata_offset
    metadata = range(first, first + index.num_samples * index.metadata_type.itemsize)
    for place in (*range(HEADER_DTYPE.itemsize, first, 41), *metadata):
        content[place] ^= 1 << place % 8
        path.write_bytes(content)
        content[place] ^= 1 << place % 8
        with pytest.raises(GpubetonError, match=r"a\.beton"):
            open_dataset(path)
    content[first + index.metadata_type.fields["f1"][1]] ^= 1  # the label of the first sample
    path.write_bytes(content)
    cure = "write it again" if made_by == "writer" else r"remove .*a\.beton\.index and run gpubeton index .*a\.beton"
    with pytest.raises(FormatError, match=rf"a\.beton: its fields and metadata have .*, expected .* Labels .*{cure}"):
        Loader(path, 2)
    (finding,) = verify(path).findings
    assert "Labels or other numbers have changed" in finding.what
    (tmp_path / "a.beton.index").unlink(missing_ok=True)
    if made_by == "index":
        assert open_dataset(path).column("label").tolist() == [1, 1, 2, 3]


def test_copies_of_a_file_with_checksums_have_their_own_of_the_metadata(tmp_path):
    path, fields = tmp_path / "a.beton", {"note": BytesField(), "label": IntField()}
    samples = [(b"abc", number) for number in range(4)]
    DatasetWriter(path, fields, 1 << 21, 1, progress=False, notes={}).from_indexed_dataset(samples)
    copied = copy_samples([path], tmp_path / "b.beton", [2, 0])
    sums = [read_notes(file).metadata_checksum for file in (path, copied)]
    assert None not in sums
    assert sums[0] != sums[1]
    assert open_dataset(copied).column("label").tolist() == [2, 0]


def test_checksums_of_regions_alone_are_read_as_before(tmp_path):
    path, fields = tmp_path / "a.beton", {"note": BytesField(), "label": IntField()}
    DatasetWriter(path, fields, 1 << 21, 1, progress=False, notes={}).from_indexed_dataset([(b"abc", 1)])
    header = open_dataset(path).header
    content = path.read_bytes()
    old = Notes({}, np.array([zlib.crc32(b"abc")], np.uint32)).to_bytes()
    stop = header.alloc_table_ptr
    new = Notes({}, np.array([zlib.crc32(b"abc")], np.uint32), 0).to_bytes()
    place = stop - len(new)
    path.write_bytes(content[:16] + (place + len(old)).to_bytes(8, "little") + content[24:place] + old + content[stop:])
    assert open_dataset(path).regions("note").checksums.tolist() == [zlib.crc32(b"abc")]
    assert read_notes(path).metadata_checksum is None
