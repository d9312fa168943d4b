from __future__ import annotations

import json
import os
import shutil
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton.dataset.indexing import write_manifest
from gpubeton.errors import FormatError, OptionError
from gpubeton.fields import BytesField, IntField, RGBImageField
from gpubeton.fields.registry import open_index
from gpubeton.format import Index, open_dataset
from gpubeton.format.data_files import DESCRIPTION
from gpubeton.format.dataset import join
from gpubeton.format.index_checks import check_index
from gpubeton.format.manifest import (
    BLOCK,
    COLUMNS,
    Manifest,
    StoredIndex,
    blocks_of,
    form_of,
    read_rows,
)
from tests.golden_files import CUSTOM_TYPES, NAMES, save
from tests.small_files import picture, write

FIELDS = {"image": RGBImageField(), "note": BytesField(), "label": IntField()}


def samples(count, first):
    return [
        (picture(number, 20, 30), np.full(number % 3, number % 251, np.uint8), number)
        for number in range(first, first + count)
    ]


def shards(folder, *counts):
    folder.mkdir(exist_ok=True)
    for number, count in enumerate(counts):
        write(folder / f"{number}.beton", FIELDS, samples(count, 100 * number))
    return str(folder)


def list_shards(folder):
    return sorted(map(str, Path(folder).glob("*.beton")))


def with_manifest(folder, *counts):
    shards(folder, *counts)
    write_manifest(str(folder), open_index(list_shards(folder))[0])
    return str(folder)


def opened_quietly(folder, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return open_index(folder, **arguments)[0]


def assert_same(result, expected):
    assert (result.names, result.num_samples, result.fingerprint) == (
        expected.names,
        expected.num_samples,
        expected.fingerprint,
    )
    assert [(Path(file.path).name, file.rows) for file in result.files] == [
        (Path(file.path).name, file.rows) for file in expected.files
    ]
    assert result.metadata.tobytes() == expected.metadata.tobytes()
    for name in expected.names:
        assert result.has_regions(name) == expected.has_regions(name)
        if expected.has_regions(name):
            assert result.regions(name).offset.tolist() == expected.regions(name).offset.tolist()
            assert result.regions(name).size.tolist() == expected.regions(name).size.tolist()


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_list_of_folders_is_one_dataset_of_their_files(is_damaged, tmp_path):
    first, second = with_manifest(tmp_path / "first", 5, 1), with_manifest(tmp_path / "second", 2, 3)
    plain = shards(tmp_path / "plain", 4)
    expected = open_index([path for folder in (second, plain, first) for path in list_shards(folder)])[0]
    if is_damaged:
        os.truncate(tmp_path / "first" / COLUMNS, 64)
        with pytest.warns(UserWarning, match="first: index.json does not describe"):
            result = open_index([second, plain, first])[0]
    else:
        result = opened_quietly([second, plain, first])
    assert_same(result, expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("copies", [1, 3])
def test_columns_are_read_as_they_were_written(name, copies, tmp_path):
    index = join([open_dataset(save(name, tmp_path), CUSTOM_TYPES)] * copies)
    content = np.frombuffer(b"".join(blocks_of(index)), np.uint8)
    kinds, forms = [row.column.dtype for row in index.rows], [form_of(row) for row in index.rows]
    rows = read_rows(content, index.descriptors, kinds, forms, index.num_samples)
    result = Index(index.files, index.header, index.descriptors, rows)
    check_index(result)
    assert_same(result, index)
    for wrong in (content[:-1], np.append(content, np.uint8(0))):
        with pytest.raises(FormatError, match=f"{len(wrong)} bytes"):
            read_rows(wrong, index.descriptors, kinds, forms, index.num_samples)


def test_blocks_have_one_length_for_all_lengths_of_columns(tmp_path, monkeypatch):
    index = open_dataset(write(tmp_path / "a.beton", FIELDS, samples(50, 0)))
    whole = b"".join(blocks_of(index))
    monkeypatch.setattr("gpubeton.format.manifest.BLOCK", 128)
    blocks = list(blocks_of(index))
    assert b"".join(blocks) == whole
    assert {len(block) for block in blocks[:-1]} == {128}
    assert BLOCK % 64 == 0


def test_a_folder_opens_by_its_manifest_as_the_list_of_its_files(tmp_path):
    folder = with_manifest(tmp_path / "shards", 5, 1, 7)
    expected = open_index(list_shards(folder))[0]
    assert_same(opened_quietly(folder), expected)
    (Path(folder) / DESCRIPTION).unlink()
    assert_same(opened_quietly(folder), expected)


def test_a_copied_folder_opens_by_its_manifest(tmp_path, monkeypatch):
    folder = with_manifest(tmp_path / "shards", 5, 7)
    expected = open_index(folder)[0]
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in Path(folder).iterdir():
        shutil.copyfile(path, copy / path.name)
    monkeypatch.setattr("gpubeton.format.dataset.read_index", None)
    assert_same(opened_quietly(str(copy)), expected)


def replace(folder):
    write(folder / "1.beton", FIELDS, samples(7, 500))


def relabel(folder):
    path = folder / "0.beton"
    index = open_dataset(path)
    with path.open("r+b") as file:
        file.seek(index.header.metadata_offset + index.metadata_type.fields["f2"][1])
        file.write(np.int64(77).tobytes())


def relabel_in_the_middle(folder):
    path = folder / "0.beton"
    place = open_dataset(path).header.metadata_offset + 8 * 10_000
    assert place > 1 << 16
    with path.open("r+b") as file:
        file.seek(place)
        file.write(np.int64(77).tobytes())


def test_a_change_anywhere_in_the_metadata_is_noticed(tmp_path):
    (tmp_path / "shards").mkdir()
    path = write(tmp_path / "shards" / "0.beton", {"label": IntField()}, [(number,) for number in range(20_000)])
    write_manifest(str(path.parent), open_index(path)[0])
    relabel_in_the_middle(path.parent)
    with pytest.warns(UserWarning, match=r"0\.beton was replaced"):
        assert open_index(path.parent)[0].column("label")[10_000] == 77


def remove(folder):
    (folder / "0.beton").unlink()


def add(folder):
    write(folder / "2.beton", FIELDS, samples(3, 900))


@pytest.mark.parametrize("change", [replace, relabel, remove, add])
def test_shards_that_changed_are_opened_without_the_manifest_and_with_one_warning(change, tmp_path):
    folder = with_manifest(tmp_path / "shards", 5, 7)
    change(tmp_path / "shards")
    with pytest.warns(UserWarning, match=r"shards: index.json .* gpubeton index .*shards") as caught:
        result = open_index(folder)[0]
    assert len(caught) == 1
    assert_same(result, open_index(list_shards(folder))[0])


@pytest.fixture(scope="module")
def two_shards(tmp_path_factory):
    """A folder of two shards, its index, and the files of its manifest."""
    folder = Path(with_manifest(tmp_path_factory.mktemp("damaged") / "shards", 2, 3))
    contents = {name: (folder / name).read_bytes() for name in (DESCRIPTION, COLUMNS)}
    return folder, open_index(list_shards(folder))[0], contents


@settings(max_examples=150)
@given(name=st.sampled_from([DESCRIPTION, COLUMNS]), place=st.integers(0, (1 << 32) - 1), bits=st.integers(0, 255))
def test_a_damaged_manifest_is_never_believed(name, place, bits, two_shards):
    folder, expected, contents = two_shards
    content = bytearray(contents[name])
    place = place * len(content) >> 32
    if bits:
        content[place] ^= bits
    else:
        del content[place:]
    (folder / name).write_bytes(content)
    try:
        with pytest.warns(UserWarning, match="index.json"):
            assert_same(open_index(str(folder))[0], expected)
    finally:
        (folder / name).write_bytes(contents[name])


def test_a_wide_raw_image_is_not_mistaken_for_one_of_another_size(tmp_path):
    # 256 times 256 is 0 in 16 bits, in which numpy 1 multiplies sides.
    (tmp_path / "shards").mkdir()
    raw = {"image": RGBImageField(write_mode="raw")}
    path = write(tmp_path / "shards" / "0.beton", raw, [(np.zeros((256, 256, 3), np.uint8),)])
    write_manifest(str(path.parent), open_index(path)[0])
    assert opened_quietly(str(path.parent)).num_samples == 1


def test_more_files_than_offsets_can_name_are_refused(tmp_path, monkeypatch):
    folder = with_manifest(tmp_path / "shards", 1, 1, 1)
    text = (Path(folder) / DESCRIPTION).read_bytes()
    for module in ("dataset", "manifest"):
        monkeypatch.setattr(f"gpubeton.format.{module}.MAX_FILES", 2)
    with pytest.raises(FormatError, match="3 shards, expected at most 2"):
        Manifest.from_bytes(text)
    (Path(folder) / DESCRIPTION).unlink()
    with pytest.raises(OptionError, match="3 files; expected 1 to 2"):
        open_index(folder)


def rewrite(folder, change):
    """Change the content of a manifest, with right checksums."""
    description, columns = folder / DESCRIPTION, folder / COLUMNS
    content = json.loads(description.read_bytes())["content"]
    changed = bytearray(columns.read_bytes())
    changed = change(content, changed) or changed
    columns.write_bytes(changed)
    content["checksums"] = [zlib.crc32(changed[at : at + BLOCK]) for at in range(0, len(changed), BLOCK)]
    content["num_bytes"] = len(changed)
    text = json.dumps(content)
    description.write_text(json.dumps({"checksum": zlib.crc32(text.encode()), "content": content}))


def in_first_shard(**changes):
    return lambda content, _: content["shards"][0].update(changes)


def entries_at(start, stop, fields=("image",), beside=None):
    return in_first_shard(entry_place={"fields": list(fields), "start": start, "stop": stop, "beside": beside})


def bytes_at(place, written):
    return lambda _, columns: columns.__setitem__(slice(place, place + len(written)), written)


def one_more_sample(content, _):
    content["shards"][0]["samples"] += 1


def a_sample_in_another_shard(content, _):
    content["shards"][0]["samples"] -= 1
    content["shards"][1]["samples"] += 1


def a_raw_image_of_another_size(_, columns):
    columns[1] += 1


HUGE = np.uint64(1 << 40).tobytes()
LIES = {
    "more samples": one_more_sample,
    "a sample of another shard": a_sample_in_another_shard,
    "negative samples": in_first_shard(samples=-2),
    "no regions": lambda content, _: content["fields"][0].update(form=""),
    "no sizes": lambda content, _: content["fields"][0].update(form="regions"),
    "another type": lambda content, _: content["fields"][2].update(type=3),
    "no fields": lambda content, _: content.update(fields=[]),
    "numbers for classes": lambda content, _: content.update(class_names=[1, 2]),
    "a name outside of the folder": in_first_shard(name="../other.beton"),
    "no pages": in_first_shard(page_size=0),
    "pages of one byte": in_first_shard(page_size=1),
    "pages of three bytes": in_first_shard(page_size=3),
    "a number for a version": in_first_shard(version=3),
    "a number for a hash": in_first_shard(digest=3),
    "entry points that end before they begin": entries_at(9, 8),
    "entry points after the end": entries_at(0, 1 << 40),
    "huge entry points beside a shard": entries_at(0, 1 << 40, (), [1 << 40, "a"]),
    "numbers for fields": entries_at(0, 0, [3]),
    "a pointer outside": bytes_at(5, HUGE),
    "a pointer to another file": bytes_at(5, np.uint64((7 << 48) + 8388608).tobytes()),
    "a huge region": bytes_at(3 * 64 + 24, HUGE),  # the notes come after 5 images of 13 bytes and their sizes
    "an image without pixels": bytes_at(0, b"\0\0\0"),  # a JPEG, whose length does not follow from height and width
    "a raw image of another size": a_raw_image_of_another_size,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_manifest_that_lies_is_refused(lie, tmp_path):
    folder = with_manifest(tmp_path / "shards", 2, 3)
    rewrite(tmp_path / "shards", lie)
    with pytest.raises(FormatError):
        StoredIndex(folder).open({})
    with pytest.warns(UserWarning, match="index.json"):
        assert_same(open_index(folder)[0], open_index(list_shards(folder))[0])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda value: (
            st.lists(value)
            | st.dictionaries(st.sampled_from(["content", "format", "fields", "shards", "header"]), value)
        ),
    )
)
def test_any_json_is_a_format_error(content):
    for text in (
        json.dumps(content),
        json.dumps({"checksum": zlib.crc32(json.dumps(content).encode()), "content": content}),
    ):
        with pytest.raises(FormatError):
            Manifest.from_bytes(text.encode())
