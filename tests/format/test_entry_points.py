"""Entry points in a file and beside it: found again, and refused where they are damaged or of another file."""

from __future__ import annotations

import os
import shutil
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton.dataset import index_images
from gpubeton.errors import EntryPointsError
from gpubeton.fields import ImageField, IntField, RGBImageField
from gpubeton.format import open_dataset, read_notes
from gpubeton.format.dataset import join
from gpubeton.format.entry_layout import index_path
from gpubeton.format.entry_points import EntryBlock, image_fields, open_entry_points, read_beside, read_within
from gpubeton.format.layout import ENTRY_DTYPE
from gpubeton.writer import DatasetWriter
from tests.bytes.unmapped_source import LocalFile
from tests.cpu.making import entry_points
from tests.cpu.pictures import jpeg, photo, pillow_jpeg
from tests.golden_files import CUSTOM_TYPES, save

COUNT = 9
FIELDS = {
    "image": RGBImageField(write_mode="jpg"),
    "label": IntField(),
    "again": ImageField("rgb", write_mode="jpg"),
    "gray": ImageField("gray", write_mode="jpg"),
}


def sample(number):
    picture = photo(40 + number, 60 + 3 * number, seed=number)
    return jpeg(picture), number, jpeg(picture, 50), picture[..., 0]


def write(path, samples=None, fields=FIELDS, **options):
    samples = [sample(number) for number in range(COUNT)] if samples is None else samples
    DatasetWriter(path, fields, 1 << 21, 1, progress=False, **options).from_indexed_dataset(samples)
    return path


def expected(path, name="image"):
    """Entries and seal of each image."""
    index, content = open_dataset(path), path.read_bytes()
    regions = index.regions(name)
    found = []
    for offset, size in zip(regions.offset.tolist(), regions.size.tolist(), strict=True):
        block = entry_points(np.frombuffer(content[offset : offset + size], np.uint8))
        found.append((block.entries.tobytes(), int(block.seals[0])))
    return found


def held(points):
    """The same of entry points in memory."""
    addresses, counts, seals, _ = points.of(np.arange(len(points.counts)))
    memory = [points.entries] if isinstance(points, EntryBlock) else [part.entries for part in points.keep]
    found = []
    for address, count, seal in zip(addresses.tolist(), counts.tolist(), seals.tolist(), strict=True):
        own = b""
        for entries in memory:
            start = address - entries.ctypes.data
            if address and 0 <= start < entries.nbytes:
                own = entries.tobytes()[start : start + ENTRY_DTYPE.itemsize * count]
        found.append((own, seal))
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file with entry points and one with an index beside it."""
    folder = tmp_path_factory.mktemp("files")
    write(folder / "inside.beton", index=True)
    write(folder / "beside.beton")
    index_images(folder / "beside.beton", num_workers=2)
    return folder


@pytest.mark.parametrize("name", ["inside", "beside"])
def test_each_field_of_images_gets_its_entry_points_back(files, name):
    index = open_dataset(files / f"{name}.beton")
    found, _, faults = open_entry_points(index)
    assert faults == []
    assert list(found) == image_fields(index) == ["image", "again"]
    for field, points in found.items():
        assert held(points) == expected(files / f"{name}.beton", field)
        assert points.counts.all()


def test_entry_points_lie_before_notes_and_move_nothing_else(tmp_path):
    plain = write(tmp_path / "plain.beton", notes={"a": 1}, index=False)
    noted = write(tmp_path / "noted.beton", notes={"a": 1})
    alone = write(tmp_path / "alone.beton", index=True)
    notes = read_notes(plain)
    assert read_notes(noted).content == notes.content
    assert (read_notes(noted).checksums == notes.checksums).all()
    assert read_notes(alone) is None
    first, second = open_dataset(plain), open_dataset(noted)
    start = first.header.alloc_table_ptr - len(notes.to_bytes())
    assert noted.read_bytes()[24:start] == plain.read_bytes()[24:start]
    assert (first.allocations == second.allocations).all()
    assert held(open_entry_points(second)[0]["image"]) == expected(plain)
    assert held(open_entry_points(open_dataset(alone))[0]["again"]) == expected(plain, "again")


def test_a_writer_without_notes_stores_no_entry_points(tmp_path):
    index = open_dataset(write(tmp_path / "a.beton"))
    assert open_entry_points(index) == ({}, [{}], [])


def test_images_without_entry_points_are_between_others(tmp_path):
    picture = photo(50, 60)
    sound = jpeg(picture)
    damaged = sound[:-300] + b"\xff\xd9"
    contents = [sound, pillow_jpeg(picture, restart_marker_blocks=2), picture[:20], damaged, sound]
    fields = {"image": ImageField("rgb", write_mode="smart", smart_threshold=20 * 60 * 3)}
    path = write(tmp_path / "a.beton", [(content,) for content in contents], fields, index=True)
    points = open_entry_points(open_dataset(path))[0]["image"]
    assert points.counts.astype(bool).tolist() == [True, False, False, False, True]
    assert held(points)[0] == held(points)[4]


@pytest.mark.parametrize("kinds", [("inside", "beside"), ("beside", "none"), ("none", "inside", "beside")])
def test_several_files_are_one_dataset(files, tmp_path, kinds):
    write(tmp_path / "none.beton")
    paths = [(tmp_path if kind == "none" else files) / f"{kind}.beton" for kind in kinds]
    found, _, faults = open_entry_points(join([open_dataset(path) for path in paths]))
    own = expected(files / "inside.beton")
    assert faults == []
    assert held(found["image"]) == [one for kind in kinds for one in ([(b"", 0)] * COUNT if kind == "none" else own)]


def test_joined_files_may_store_jpegs_in_different_fields(tmp_path):
    samples = [(photo(40, 60), photo(50, 70))] * 3
    for name, mode in (("a", "raw"), ("b", "jpg")):
        fields = {"x": RGBImageField(write_mode="jpg"), "y": RGBImageField(write_mode=mode)}
        index_images(write(tmp_path / f"{name}.beton", samples, fields))
    found, _, faults = open_entry_points(join([open_dataset(tmp_path / f"{name}.beton") for name in "ab"]))
    assert faults == []
    assert (found["x"].counts > 0).tolist() == [True] * 6
    assert (found["y"].counts > 0).tolist() == [False] * 3 + [True] * 3


def test_those_beside_a_file_are_used_rather_than_those_in_it(files, tmp_path):
    path = shutil.copy(files / "inside.beton", tmp_path)
    index_images(path, overwrite=True)
    index = open_dataset(path)
    assert list(read_within(index)) == list(read_beside(index)) == ["image", "again"]
    with open(index_path(path), "r+b") as file:
        file.truncate(100)
    found, _, faults = open_entry_points(index)
    assert held(found["image"]) == expected(files / "inside.beton")
    assert len(faults) == 1
    assert f"gpubeton index --overwrite {path}" in faults[0]


@pytest.mark.parametrize("name", ["all_fields", "one_int", "names"])
def test_files_of_ffcvs_have_none(name, tmp_path):
    assert open_entry_points(open_dataset(save(name, tmp_path), CUSTOM_TYPES)) == ({}, [{}], [])


def test_a_source_that_cannot_be_mapped_is_read(files, monkeypatch):
    monkeypatch.setattr(LocalFile, "is_mappable", False)
    for name in ("inside", "beside"):
        found, _, faults = open_entry_points(open_dataset(files / f"{name}.beton"))
        assert faults == []
        assert held(found["image"]) == expected(files / f"{name}.beton")


# --- hostile ----------------------------------------------------------------------------------------------------------


def damaged(files, folder, change):
    """The file with a changed index beside it, opened; `change` takes and returns bytes."""
    path = folder / "beside.beton"
    shutil.copy(files / "beside.beton", path)
    content = (files / "beside.beton.index").read_bytes()
    (folder / "beside.beton.index").write_bytes(change(content))
    return open_dataset(path)


def sizes(content):
    """Where the parts of the last block begin: entries, first, seals, trailer, end."""
    trailer = np.frombuffer(content[-80:], np.uint8)
    images, entries = (int(trailer[start : start + 8].view("<u8")[0]) for start in (56, 64))
    end = len(content)
    seals = end - 80 - -(-4 * images // 8) * 8
    first = seals - 8 * (images + 1)
    return first - -(-10 * entries // 8) * 8, first, seals, end - 80, end


def refused(index):
    with pytest.raises(EntryPointsError, match="gpubeton index --overwrite"):
        read_beside(index)
    found, _, faults = open_entry_points(index)
    assert found == {}
    assert len(faults) == 1
    assert index.files[0].path in faults[0]


@settings(max_examples=60)
@given(st.data())
def test_each_changed_bit_outside_of_entries_is_noticed(files, tmp_path, data):
    content = (files / "beside.beton.index").read_bytes()
    _, first, _, _, end = sizes(content)
    position = data.draw(st.integers(first, end - 5))
    bit = 1 << data.draw(st.integers(0, 7))
    refused(damaged(files, tmp_path, lambda c: c[:position] + bytes([c[position] ^ bit]) + c[position + 1 :]))


@settings(max_examples=40)
@given(st.data())
def test_a_cut_index_is_noticed(files, tmp_path, data):
    size = (files / "beside.beton.index").stat().st_size
    count = data.draw(st.integers(0, size - 1))
    cut = slice(size - count, size) if data.draw(st.booleans()) else slice(count)
    refused(damaged(files, tmp_path, lambda content: content[cut]))


def resealed(content, **changes):
    """The last block with other numbers and the checksum that fits them."""
    _, first, _, trailer, _ = sizes(content)
    row = bytearray(content[trailer:])
    for name, value in changes.items():
        start, size = {"version": (16, 4), "every": (20, 4), "images": (56, 8), "entries": (64, 8)}[name]
        row[start : start + size] = value.to_bytes(size, "little")
    tables = content[first:trailer]
    row[72:76] = zlib.crc32(tables, zlib.crc32(row[:72])).to_bytes(4, "little")
    return content[:trailer] + bytes(row)


def with_numbers(**changes):
    return lambda content: resealed(content, **changes)


def with_first_entries(*numbers):
    """The last block with other first entries; none: the fourth and the fifth are exchanged."""

    def change(content):
        _, first, seals, _, _ = sizes(content)
        stored = np.frombuffer(content[first:seals], "<u8").copy()
        stored[:] = numbers or [*stored[:3], stored[4], stored[3], *stored[5:]]
        return resealed(content[:first] + stored.tobytes() + content[seals:])

    return change


LIES = {
    "one of the fields is missing": lambda content: content[sizes(content)[0] :],
    "something before it": lambda content: b"\0" * 8 + content,
    "something after it": lambda content: content + b"\0" * 8,
    "other bytes": lambda content: b"x" * len(content),
    # With a right checksum.
    "another version": with_numbers(version=2),
    "every fourth MCU": with_numbers(every=4),
    "every 0th MCU": with_numbers(every=0),
    "an image less": with_numbers(images=COUNT - 1),
    "an image more": with_numbers(images=COUNT + 1),
    "2**64 - 1 images": with_numbers(images=2**64 - 1),
    "2**61 images": with_numbers(images=2**61),
    "no entry": with_numbers(entries=0),
    "one entry": with_numbers(entries=1),
    "2**63 entries": with_numbers(entries=2**63),
    "2**64 - 1 entries": with_numbers(entries=2**64 - 1),
    "first entries that end lower": with_first_entries(0, *[5] * (COUNT - 1), 4),
    "first entries that begin at 1": with_first_entries(1, *[5] * COUNT),
    "first entries of 2**63": with_first_entries(0, 2**63, *[0] * (COUNT - 1)),
    "first entries of 2**64 - 1": with_first_entries(0, 2**64 - 1, *[0] * (COUNT - 1)),
    "first entries of 2**40": with_first_entries(0, *[2**40] * COUNT),
    "first entries that go back": with_first_entries(),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_index_that_lies_is_refused(files, tmp_path, lie):
    refused(damaged(files, tmp_path, LIES[lie]))


def test_the_index_of_another_file_is_refused(files, tmp_path):
    other = write(tmp_path / "other.beton", [sample(number + 1) for number in range(COUNT)])
    shutil.copy(files / "beside.beton.index", index_path(str(other)))
    refused(open_dataset(other))


def test_the_index_of_an_older_state_is_refused(tmp_path):
    path = write(tmp_path / "a.beton")
    index_images(path)
    before, content = path.stat(), (tmp_path / "a.beton.index").read_bytes()
    write(path, [sample(number) for number in reversed(range(COUNT))])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / "a.beton.index").write_bytes(content)
    refused(open_dataset(path))
    assert index_images(path).new == 2 * COUNT
    assert held(open_entry_points(open_dataset(path))[0]["image"]) == expected(path)


def test_a_copy_of_a_file_and_its_index_is_good(files, tmp_path):
    for name in ("beside.beton", "beside.beton.index"):
        shutil.copy(files / name, tmp_path)
    (tmp_path / "beside.beton").rename(tmp_path / "moved.beton")
    (tmp_path / "beside.beton.index").rename(tmp_path / "moved.beton.index")
    assert list(read_beside(open_dataset(tmp_path / "moved.beton"))) == ["image", "again"]


def test_a_folder_in_place_of_an_index_is_a_fault(tmp_path):
    path = write(tmp_path / "a.beton")
    (tmp_path / "a.beton.index").mkdir()
    found, _, faults = open_entry_points(open_dataset(path))
    assert found == {}
    assert len(faults) == 1
    assert "a.beton.index" in faults[0]


@settings(max_examples=60)
@given(st.data())
def test_changed_bytes_in_a_file_never_harm_and_never_give_other_numbers(files, tmp_path, data):
    content = bytearray((files / "inside.beton").read_bytes())
    index = open_dataset(files / "inside.beton")
    last = max(int((regions.offset + regions.size).max()) for regions in map(index.regions, ("image", "again", "gray")))
    begin = -(-last // (1 << 21)) * (1 << 21)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(begin, index.header.alloc_table_ptr - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "a.beton"
    path.write_bytes(content)
    found, _, faults = open_entry_points(open_dataset(path))
    assert len(faults) <= 1
    for points in found.values():
        assert (points.counts >= 0).all()
        start = points.entries.ctypes.data
        stop = points.addresses[points.counts > 0] + 10 * points.counts[points.counts > 0].astype(np.uint64)
        assert (stop <= start + points.entries.nbytes).all()
