from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpubeton.dataset import open_source
from gpubeton.errors import OptionError
from tests.picture_folders import write_folder, write_picture


def samples_of(source):
    """The path of each image from the folder on, and its label."""
    root = Path(source.loose_files[0])
    paths = [Path(source.name(number)).relative_to(root).as_posix() for number in range(len(source))]
    return list(zip(paths, source.columns["label"], strict=True))


def make(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def test_classes_and_files_come_in_order_of_their_names_and_the_endings_can_be_chosen(tmp_path):
    make(tmp_path, "b/2.jpg", "b/10.JPEG", "a/x.png", "a/deep/er/y.jpg", "b/notes.txt", "at_the_top.jpg")
    folder = open_source(tmp_path)
    assert folder.class_names == ("a", "b")
    assert samples_of(folder) == [("a/x.png", 0), ("a/deep/er/y.jpg", 0), ("b/10.JPEG", 1), ("b/2.jpg", 1)]
    make(tmp_path, "a/2.tif", "b/3.tif")
    assert samples_of(open_source(tmp_path, suffixes=(".tif",))) == [("a/2.tif", 0), ("b/3.tif", 1)]


def test_a_folder_without_classes_and_a_class_without_images_are_named(tmp_path):
    with pytest.raises(OptionError, match=re.escape(str(tmp_path))):
        open_source(tmp_path)
    make(tmp_path, "a/1.jpg", "b/1.txt")
    with pytest.raises(OptionError, match=r"b: .*\(\.jpg, "):
        open_source(tmp_path)


def test_hidden_files_and_folders_are_neither_images_nor_classes(tmp_path):
    write_folder(tmp_path, 6)
    write_picture(tmp_path / ".ipynb_checkpoints" / "0000-checkpoint.png", 1)
    write_picture(tmp_path / "cat" / ".ipynb_checkpoints" / "a.png", 1)
    (tmp_path / "cat" / "._0000.jpg").write_bytes(b"Mac OS X")
    source = open_source(tmp_path)
    assert source.class_names == ("cat", "dog", "eel")
    assert len(source) == 6
    assert source.passed_over == {"hidden": 3}


def test_links_that_lead_back_bring_no_image_twice(tmp_path):
    write_folder(tmp_path / "photos", 6)
    (tmp_path / "photos" / "cat" / "all").symlink_to(tmp_path / "photos")
    (tmp_path / "photos" / "dog" / "deeper").mkdir()
    (tmp_path / "photos" / "dog" / "deeper" / "up").symlink_to("..")
    elsewhere = write_picture(tmp_path / "elsewhere" / "more.png", 7)
    (tmp_path / "photos" / "eel" / "more").symlink_to(elsewhere.parent)
    (tmp_path / "photos" / "eel" / "again").symlink_to(elsewhere.parent)
    source = open_source(tmp_path / "photos")
    assert len(source) == 7
    assert source.passed_over == {"links to folders that were read": 3}


def test_parts_of_a_dataset_as_classes_are_warned_of(tmp_path):
    for part in ("train", "val"):
        write_folder(tmp_path / "data" / part, 3)
    with pytest.warns(UserWarning, match=r"data: the folders train, val become classes.*data/val"):
        open_source(tmp_path / "data")
    assert open_source(tmp_path / "data" / "val").class_names == ("cat", "dog", "eel")
