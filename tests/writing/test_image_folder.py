from __future__ import annotations

import re

import pytest

from gpubeton.errors import OptionError
from gpubeton.writing.datasets import ImageFolder


def make(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def test_classes_and_files_come_in_order_of_their_names(tmp_path):
    make(tmp_path, "b/2.jpg", "b/10.JPEG", "a/x.png", "a/deep/er/y.jpg", "b/notes.txt", "at_the_top.jpg")
    folder = ImageFolder(tmp_path)
    assert folder.classes == ("a", "b")
    found = [
        (path.relative_to(tmp_path).as_posix(), label) for path, label in map(folder.__getitem__, range(len(folder)))
    ]
    assert found == [("a/x.png", 0), ("a/deep/er/y.jpg", 0), ("b/10.JPEG", 1), ("b/2.jpg", 1)]


def test_the_endings_can_be_chosen(tmp_path):
    make(tmp_path, "a/1.jpg", "a/2.tif")
    assert len(ImageFolder(tmp_path, (".tif",))) == 1


def test_a_folder_without_classes_and_a_class_without_images_are_named(tmp_path):
    with pytest.raises(OptionError, match=re.escape(str(tmp_path))):
        ImageFolder(tmp_path)
    make(tmp_path, "a/1.jpg", "b/1.txt")
    with pytest.raises(OptionError, match=r"b: .*\(\.jpg, "):
        ImageFolder(tmp_path)
