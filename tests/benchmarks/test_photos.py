from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from benchmarks.harness.photos import PhotoSet, list_photos, write_photos


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path, _ in list_photos(folder)}


def test_equal_sets_are_equal_files_and_another_seed_gives_others(tmp_path):
    write_photos(tmp_path / "a", PhotoSet(6))
    write_photos(tmp_path / "b", PhotoSet(6))
    write_photos(tmp_path / "c", PhotoSet(6, seed=1))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert not set(contents(tmp_path / "a").values()) & set(contents(tmp_path / "c").values())


def test_images_are_jpeg_files_of_imagenet_like_sizes_in_a_folder_per_class(tmp_path):
    advanced = []
    write_photos(tmp_path, PhotoSet(12), lambda: advanced.append(1))
    photos = list_photos(tmp_path)
    assert len(photos) == len(advanced) == 12
    for path, name in photos:
        assert path.parent == tmp_path / name
        with Image.open(path) as image:
            assert image.format == "JPEG"
            assert 200 <= min(image.size) <= max(image.size) <= 812


def test_a_set_that_is_there_is_left_alone_and_another_one_replaced(tmp_path):
    write_photos(tmp_path, PhotoSet(4))
    before = {path: path.stat().st_mtime_ns for path, _ in list_photos(tmp_path)}
    write_photos(tmp_path, PhotoSet(4))
    assert {path: path.stat().st_mtime_ns for path, _ in list_photos(tmp_path)} == before
    write_photos(tmp_path, PhotoSet(3))
    assert len(list_photos(tmp_path)) == 3


def test_a_set_that_was_interrupted_is_made_again(tmp_path):
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_photos(tmp_path, PhotoSet(4), interrupt)
    list_photos(tmp_path)[0][0].unlink(missing_ok=True)
    write_photos(tmp_path, PhotoSet(4))
    assert len(list_photos(tmp_path)) == 4


def test_files_of_others_are_never_deleted(tmp_path):
    (tmp_path / "thesis.txt").write_text("three years")
    with pytest.raises(FileExistsError, match="not the demo's"):
        write_photos(tmp_path, PhotoSet(4))
    assert (tmp_path / "thesis.txt").read_text() == "three years"
