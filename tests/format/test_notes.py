from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton.errors import NotesError
from gpubeton.fields import BytesField, IntField
from gpubeton.format import Notes, read_notes
from gpubeton.format.layout import HEADER_DTYPE
from gpubeton.reader import Reader
from gpubeton.writer import DatasetWriter
from tests.golden_files import save

SAMPLES = [(bytes([number]) * number, number) for number in range(5)]


def write(path, notes, samples=SAMPLES):
    fields = {"blob": BytesField(), "label": IntField()}
    DatasetWriter(path, fields, 1 << 21, 1, progress=False, notes=notes).from_indexed_dataset(samples)
    return path


def table_offset(path):
    return int(np.frombuffer(path.read_bytes()[: HEADER_DTYPE.itemsize], HEADER_DTYPE)[0]["alloc_table_ptr"])


def test_a_file_gives_its_notes_back(tmp_path):
    notes = {"class_names": ["cat", "Hündin"], "settings": {"quality": 90, "limit": None}}
    reader = Reader(write(tmp_path / "a.beton", notes))
    assert reader.notes == notes
    assert reader.class_names == ("cat", "Hündin")


def test_there_is_a_checksum_of_each_region_in_the_order_of_the_table(tmp_path):
    import zlib

    path = write(tmp_path / "a.beton", {})
    reader, content = Reader(path), path.read_bytes()
    regions = [content[int(row["ptr"]) :][: int(row["size"])] for row in reader.alloc_table]
    assert reader.checksums.tolist() == [zlib.crc32(region) for region in regions]
    assert regions == [blob for blob, _ in SAMPLES]


def test_a_file_with_notes_is_one_without_but_for_them(tmp_path):
    with_notes, without = write(tmp_path / "a.beton", {"a": 1}), write(tmp_path / "b.beton", None)
    first, second = with_notes.read_bytes(), without.read_bytes()
    start, stop = table_offset(without), table_offset(with_notes)
    assert first[HEADER_DTYPE.itemsize : start] == second[HEADER_DTYPE.itemsize : start]
    assert first[stop:] == second[start:]
    assert Reader(without).notes == {}
    assert (Reader(without).class_names, Reader(without).checksums) == (None, None)


def test_notes_of_a_file_without_pages_are_found(tmp_path):
    path = tmp_path / "a.beton"
    DatasetWriter(path, {"x": IntField()}, num_workers=1, progress=False, notes={"k": 2}).from_indexed_dataset([(1,)])
    assert (Reader(path).notes, Reader(path).num_samples, Reader(path).checksums) == ({"k": 2}, 1, None)


def test_several_files_name_classes_if_they_agree_and_have_all_checksums(tmp_path):
    first, second = (
        write(tmp_path / "a.beton", {"class_names": ["x"]}),
        write(tmp_path / "b.beton", {"class_names": ["x"]}),
    )
    other, without = write(tmp_path / "c.beton", {"class_names": ["y"]}), write(tmp_path / "d.beton", None)
    assert Reader([first, second]).class_names == ("x",)
    with pytest.warns(UserWarning, match=r"label 0 is 'x' in .*a\.beton, and 'y' in .*c\.beton"):
        assert Reader([first, other]).class_names is None
    assert Reader([first, without]).class_names is None
    assert Reader([first, second]).checksums.tolist() == 2 * Reader(first).checksums.tolist()
    assert Reader([first, without]).checksums is None
    assert Reader([other, first]).notes == {"class_names": ["y"]}
    assert Reader(write(tmp_path / "e.beton", {"class_names": 3})).class_names is None


@pytest.mark.parametrize("name", ["all_fields", "one_int", "names"])
def test_files_of_ffcvs_have_none(name, tmp_path):
    assert read_notes(save(name, tmp_path)) is None


def test_each_changed_byte_of_the_notes_is_noticed(tmp_path):
    path = write(tmp_path / "a.beton", {"k": "v"})
    whole, stop = path.read_bytes(), table_offset(path)
    size = len(Notes({"k": "v"}, np.zeros(len(SAMPLES), np.uint32)).to_bytes())
    for position in range(stop - size, stop):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        if stop - 32 <= position < stop - 24:
            assert read_notes(path) is None  # no longer marked as notes
        else:
            with pytest.raises(NotesError, match=r"damaged|version"):
                read_notes(path)
    assert Reader(path).num_samples == len(SAMPLES)


def test_a_file_that_ends_before_its_notes_has_none(tmp_path):
    path = write(tmp_path / "a.beton", {"k": "v"})
    path.write_bytes(path.read_bytes()[: table_offset(path) - 1])
    assert read_notes(path) is None


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text())), st.integers(0, 5))
def test_the_bytes_are_a_multiple_of_four(content, count):
    assert len(Notes(content, np.zeros(count, np.uint32)).to_bytes()) % 4 == 0


def test_the_bytes_do_not_depend_on_the_order_of_the_names():
    assert Notes({"a": 1, "b": {"c": 2, "d": 3}}).to_bytes() == Notes({"b": {"d": 3, "c": 2}, "a": 1}).to_bytes()


def test_half_a_surrogate_pair_is_kept_in_notes_and_names_of_classes_have_its_escape(tmp_path):
    notes = {"class_names": ["cat\ud800", "Hündin"], "skipped": ["\udcff.jpg"]}
    path = write(tmp_path / "a.beton", notes)
    assert read_notes(path).content == notes
    assert Reader(path).class_names == ("cat\\ud800", "Hündin")


def nested(levels):
    return '{"a":' + "[" * levels + "]" * levels + "}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "hold a list"),
        ("[" * 100_000, "are no JSON"),
        (nested(99), None),
        (nested(100), "notes"),
        (nested(20_000), "notes"),
    ],
    ids=["a list", "no JSON", "99 levels", "100 levels", "20,000 levels"],
)
def test_notes_that_are_no_mapping_or_of_more_than_100_levels_are_refused(text, message, tmp_path, monkeypatch):
    monkeypatch.setattr("json.dumps", lambda *_, **__: text)
    path = write(tmp_path / "a.beton", {})
    monkeypatch.undo()
    if message is None:
        assert read_notes(path) is not None
    else:
        with pytest.raises(NotesError, match=message):
            read_notes(path)
