from __future__ import annotations

import csv
import re

import numpy as np
import pytest

from gpubeton.dataset import Contents, Settings, convert, extract, open_source
from gpubeton.errors import OptionError
from gpubeton.fields import IntField, NDArrayField, RGBImageField
from gpubeton.writer import DatasetWriter
from tests.picture_folders import write_folder
from tests.small_files import damage, picture, write_photos


def samples(path):
    """Pixels and labels of all samples."""
    contents = Contents(path)
    count = contents.index.num_samples
    return [(contents.value(sample, "image").content, contents.value(sample, "label")) for sample in range(count)]


def write_labelled(path, names, labels, write_mode="raw"):
    fields = {"image": RGBImageField(write_mode), "label": IntField()}
    writer = DatasetWriter(path, fields, 1 << 21, 1, progress=False, notes={"class_names": names})
    writer.from_indexed_dataset([(picture(number, 12, 9), label) for number, label in enumerate(labels)])
    return path


@pytest.mark.parametrize("write_mode", ["jpg", "raw"])
def test_converting_extracted_files_gives_the_same_samples(write_mode, tmp_path):
    source = open_source(write_folder(tmp_path / "photos", 12))
    settings = Settings(write_mode, page_size=1 << 21, shuffle=True)
    first = convert(source, tmp_path / "a.beton", settings, num_workers=1).path
    done = extract(first, tmp_path / "out", num_workers=2)
    again = Settings(write_mode, page_size=1 << 21)
    by_table = convert(open_source(done.table), tmp_path / "b.beton", again, num_workers=1)
    assert samples(by_table.path) == samples(first)
    assert by_table.class_names == ("cat", "dog", "eel")
    by_folder = convert(open_source(done.images), tmp_path / "c.beton", again, num_workers=1)
    assert sorted(samples(by_folder.path)) == sorted(samples(first))
    assert by_folder.class_names == ("cat", "dog", "eel")


def test_files_of_all_fields_are_listed_in_the_table(tmp_path):
    path = write_photos(tmp_path / "a.beton", 11)
    done = extract(path, tmp_path / "out", [10, 2], num_workers=1)
    rows = list(csv.DictReader(done.table.read_text().splitlines()))
    assert [row["image"] for row in rows] == ["image/100/10.jpg", "image/020/02.jpg"]
    assert [(row["label"], row["weight"], row["info"]) for row in rows] == [
        ("100", "2.5", '{"number": 10}'),
        ("20", "0.5", '{"number": 2}'),
    ]
    assert np.load(tmp_path / "out" / rows[0]["vector"]).tolist() == [[10] * 3] * 2
    assert (done.samples, done.bad) == (2, [])


def test_class_folders_sort_as_the_labels_also_where_their_names_do_not(tmp_path):
    path = write_labelled(tmp_path / "a.beton", ["owl", "cat", "a/../b", ".."], [3, 0, 1, 2, 0])
    done = extract(path, tmp_path / "out", num_workers=1)
    assert sorted(path.name for path in done.images.iterdir()) == ["0_owl", "1_cat", "2_a_.._b", "3__.."]
    assert samples(convert(open_source(done.table), tmp_path / "b.beton", Settings("raw")).path) == samples(path)


def test_class_folders_have_plain_names_where_these_sort_as_the_labels(tmp_path):
    path = write_labelled(tmp_path / "a.beton", ["cat", "owl"], [1, 0])
    assert sorted(folder.name for folder in extract(path, tmp_path / "out").images.iterdir()) == ["cat", "owl"]
    path = write_labelled(tmp_path / "b.beton", ["owl", "cat"], [1, 0])
    assert sorted(folder.name for folder in extract(path, tmp_path / "other").images.iterdir()) == ["0_owl", "1_cat"]


def test_names_of_classes_without_samples_are_kept_in_a_list(tmp_path):
    path = write_labelled(tmp_path / "a.beton", ["ant", "bee", "cow"], [2, 0])
    done = extract(path, tmp_path / "out", num_workers=1)
    names = (tmp_path / "out" / "classes.txt").read_text().split()
    again = convert(open_source(done.table, class_names=names), tmp_path / "b.beton", Settings("raw"), num_workers=1)
    assert again.class_names == ("ant", "bee", "cow")
    assert samples(again.path) == samples(path)


def test_names_of_fields_lead_nowhere_else(tmp_path):
    fields = {"../up": NDArrayField(np.dtype("u1"), (2,)), "samples.csv": NDArrayField(np.dtype("u1"), (2,))}
    path = tmp_path / "a.beton"
    writer = DatasetWriter(path, fields, 1 << 21, 1, progress=False)
    writer.from_indexed_dataset([(np.zeros(2, np.uint8), np.ones(2, np.uint8))])
    extract(path, tmp_path / "out", num_workers=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.beton", "out"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["_.._up", "_samples.csv", "samples.csv"]


def test_a_value_that_cannot_be_extracted_is_named(tmp_path):
    path = write_photos(tmp_path / "a.beton", 4)
    damage(path, 2, field="info", content=b"[")
    done = extract(path, tmp_path / "out", num_workers=1)
    assert [(bad.sample, bad.field) for bad in done.bad] == [(2, "info")]


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    path = write_photos(tmp_path / "a.beton", 2)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(OptionError, match=re.escape(str(tmp_path))):
        extract(path, tmp_path / "out")
    with pytest.raises(OptionError, match="no sample 2; there are 2"):
        extract(path, tmp_path / "new", [2])
    assert not (tmp_path / "new").exists()


HOSTILE_CLASSES = ["../../up", "/etc/passwd", "..", ".", "", "a\0b", "犬" * 300, "\ud800", "samples.csv", "a/b", "a\\b"]


def test_names_of_classes_lead_nowhere_else_and_each_class_has_its_folder(tmp_path):
    labels = range(len(HOSTILE_CLASSES))
    (tmp_path / "a").mkdir()
    path = write_labelled(tmp_path / "a" / "a.beton", HOSTILE_CLASSES, labels)
    done = extract(path, tmp_path / "a" / "out", num_workers=1)
    assert done.bad == []
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["a.beton", "out"]
    assert sorted(path.name for path in done.folder.iterdir()) == ["classes.txt", "image", "samples.csv"]
    assert [len(list(path.iterdir())) for path in done.images.iterdir()] == [1] * len(HOSTILE_CLASSES)
    again = convert(open_source(done.table), tmp_path / "b.beton", Settings("raw"), num_workers=1)
    assert samples(again.path) == samples(path)


def test_classes_whose_names_are_equal_but_for_case_have_a_folder_each_on_any_file_system(tmp_path):
    path = write_labelled(tmp_path / "a.beton", ["Cat", "cat"], [0, 1])
    folders = [folder.name.casefold() for folder in extract(path, tmp_path / "out").images.iterdir()]
    assert len(set(folders)) == 2


@pytest.mark.parametrize(
    "names",
    [["x_2", "x", "X"], ["a_b_2", "a/b", "a_b", "a\\b"], ["Samples.CSV", "..", "."]],
)
def test_fields_whose_names_are_equal_once_cleaned_have_a_folder_each(names, tmp_path):
    path = tmp_path / "a.beton"
    fields = {name: NDArrayField(np.dtype("u1"), (1,)) for name in names}
    writer = DatasetWriter(path, fields, 1 << 21, 1, progress=False)
    writer.from_indexed_dataset([tuple(np.full(1, number, np.uint8) for number in range(len(names)))])
    done = extract(path, tmp_path / "out", num_workers=1)
    with done.table.open(newline="") as table:
        (row,) = csv.DictReader(table)
    assert [np.load(done.folder / row[name]).tolist() for name in names] == [[number] for number in range(len(names))]
    folders = [path.name.casefold() for path in done.folder.iterdir()]
    assert len(set(folders)) == len(names) + 1
