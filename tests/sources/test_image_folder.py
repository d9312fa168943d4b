from __future__ import annotations

import re

import pytest

from gpubeton._sources.file_sources import ImageFolder
from gpubeton.errors import OptionError
from tests.picture_folders import write_folder, write_picture


def make(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def test_classes_and_files_come_in_order_of_their_names_and_the_endings_can_be_chosen(tmp_path):
    make(tmp_path, "b/2.jpg", "b/10.JPEG", "a/x.png", "a/deep/er/y.jpg", "b/notes.txt", "at_the_top.jpg")
    folder = ImageFolder(tmp_path)
    assert folder.classes == ("a", "b")
    results = list(zip(folder.files, folder.labels, strict=True))
    assert results == [("a/x.png", 0), ("a/deep/er/y.jpg", 0), ("b/10.JPEG", 1), ("b/2.jpg", 1)]
    make(tmp_path, "a/2.tif", "b/3.tif")
    assert ImageFolder(tmp_path, suffixes=(".tif",)).files == ["a/2.tif", "b/3.tif"]


def test_a_folder_without_classes_and_a_class_without_images_are_named(tmp_path):
    with pytest.raises(OptionError, match=re.escape(str(tmp_path))):
        ImageFolder(tmp_path)
    make(tmp_path, "a/1.jpg", "b/1.txt")
    with pytest.raises(OptionError, match=r"b: .*\(\.jpg, "):
        ImageFolder(tmp_path)


def test_hidden_files_and_folders_are_neither_images_nor_classes(tmp_path):
    write_folder(tmp_path, 6)
    write_picture(tmp_path / ".ipynb_checkpoints" / "0000-checkpoint.png", 1)
    write_picture(tmp_path / "cat" / ".ipynb_checkpoints" / "a.png", 1)
    (tmp_path / "cat" / "._0000.jpg").write_bytes(b"Mac OS X")
    plain = ImageFolder(tmp_path)
    assert plain.classes == ("cat", "dog", "eel")
    assert len(plain.files) == 6
    assert plain.passed_over == {"hidden": 3}


def test_links_that_lead_back_bring_no_image_twice(tmp_path):
    write_folder(tmp_path / "photos", 6)
    (tmp_path / "photos" / "cat" / "all").symlink_to(tmp_path / "photos")
    (tmp_path / "photos" / "dog" / "deeper").mkdir()
    (tmp_path / "photos" / "dog" / "deeper" / "up").symlink_to("..")
    elsewhere = write_picture(tmp_path / "elsewhere" / "more.png", 7)
    (tmp_path / "photos" / "eel" / "more").symlink_to(elsewhere.parent)
    (tmp_path / "photos" / "eel" / "again").symlink_to(elsewhere.parent)
    result = ImageFolder(tmp_path / "photos")
    assert len(result.files) == 7
    assert result.passed_over == {"links to folders that were read": 3}


def test_parts_of_a_dataset_as_classes_are_warned_of(tmp_path):
    for part in ("train", "val"):
        write_folder(tmp_path / "data" / part, 3)
    with pytest.warns(UserWarning, match=r"data: the folders train, val become classes.*data/val"):
        ImageFolder(tmp_path / "data")
    assert ImageFolder(tmp_path / "data" / "val").classes == ("cat", "dog", "eel")
