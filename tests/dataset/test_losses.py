"""What a conversion leaves out or changes, and reports."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from gpubeton.dataset import Contents, Settings, convert, open_source
from gpubeton.errors import OptionError
from tests.cli import command
from tests.docs.pages import ROOT
from tests.fields.test_image_metadata import exif
from tests.picture_folders import write_picture, write_tar
from tests.small_files import picture

SMALL = {"page_size": 1 << 21}


run = partial(command.run, "convert", "--workers", "1")


@pytest.fixture
def photos(tmp_path):
    """A photo with a position, on its side; an upright one; a PNG on its side."""
    (tmp_path / "photos").mkdir()
    image = Image.fromarray(picture(5, 30, 50))
    image.save(tmp_path / "photos" / "0.jpg", exif=exif(6), quality=95)
    image.save(tmp_path / "photos" / "1.jpg")
    image.save(tmp_path / "photos" / "2.png", exif=exif(8, position=False))
    return tmp_path / "photos"


def made(photos, tmp_path, **settings):
    done = convert(open_source(photos), tmp_path / "a.beton", Settings(**SMALL, **settings), num_workers=1)
    contents = Contents(done.path)
    return done.changed, [contents.value(number, "image") for number in range(done.samples)]


def test_metadata_of_photos_are_kept_and_counted(photos, tmp_path):
    changed, images = made(photos, tmp_path)
    assert changed == {"jpeg": 1, "orientation": 2, "position": 1}
    assert images[0].content == (photos / "0.jpg").read_bytes()
    assert [(image.height, image.width) for image in images] == [(30, 50)] * 3


@pytest.mark.parametrize("settings", [{"write_mode": "raw"}, {"max_resolution": 20}])
def test_metadata_of_pixels_is_gone_and_not_counted(settings, photos, tmp_path):
    changed, _ = made(photos, tmp_path, **settings)
    assert "position" not in changed
    assert changed["orientation"] == 2


def test_metadata_is_removed_without_a_change_of_pixels(photos, tmp_path):
    changed, images = made(photos, tmp_path, strip_metadata=True)
    assert "position" not in changed
    assert [b"Exif" in image.content for image in images] == [False] * 3
    with Image.open(photos / "0.jpg") as before:
        assert np.array_equal(images[0].pixels(), np.asarray(before))
    assert images[1].content == (photos / "1.jpg").read_bytes()


@pytest.mark.parametrize("mode", ["rgb", "gray", "rgba"])
def test_images_are_turned_by_their_orientation(mode, photos, tmp_path):
    changed, images = made(photos, tmp_path, apply_orientation=True, mode=mode, write_mode="raw")
    assert changed["turned"] == 2
    assert [(image.height, image.width) for image in images] == [(50, 30), (30, 50), (50, 30)]
    expected = np.rot90(
        np.asarray(Image.open(photos / "2.png").convert({"rgb": "RGB", "gray": "L", "rgba": "RGBA"}[mode]))
    )
    assert np.array_equal(images[2].pixels().squeeze(), expected)


def test_the_command_reports_each_kind_once_with_the_option_that_helps(photos, tmp_path):
    done = run(photos, tmp_path / "a.beton")
    counts = {word: done.stdout.count(word) for word in ("--write-mode raw", "--apply-orientation", "--strip-metadata")}
    assert counts == dict.fromkeys(counts, 1)
    done = run(photos, tmp_path / "b.beton", "--strip-metadata", "--apply-orientation", "--write-mode", "raw")
    assert (done.exit_code, "--strip" in done.stdout) == (0, False)


def test_columns_that_are_not_stored_are_named(tmp_path):
    write_picture(tmp_path / "x.jpg", 1)
    (tmp_path / "a.csv").write_text("filename,category_id,caption\nx.jpg,3,hello\n")
    done = run(tmp_path / "a.csv", tmp_path / "a.beton")
    assert ("without labels" in done.stdout, "'category_id', 'caption'" in done.stdout) == (True, True)
    done = run(tmp_path / "a.csv", tmp_path / "b.beton", "--label", "category_id")
    assert ("without labels" in done.stdout, "not stored: 'caption'" in done.stdout) == (False, True)
    with pytest.raises(OptionError, match="'category_id', 'caption'"):
        open_source(tmp_path / "a.csv", label="klass")


def test_columns_of_parquet_files_that_are_not_stored_are_named(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    content = write_picture(tmp_path / "x.jpg", 1).read_bytes()
    parquet.write_table(arrow.table({"image": [content], "score": [0.5]}), tmp_path / "a.parquet")
    assert list(open_source(tmp_path / "a.parquet").unused) == ["score"]


def test_files_of_a_tar_file_that_are_not_stored_are_named(tmp_path):
    content = write_picture(tmp_path / "x.jpg", 1).read_bytes()
    write_tar(tmp_path / "a.tar", [("0.jpg", content), ("0.json", b'{"score": 3}'), ("0.txt", b"a cat")])
    done = run(tmp_path / "a.tar", tmp_path / "a.beton")
    assert ("without labels" in done.stdout, "'json', 'txt'" in done.stdout) == (True, True)
    assert list(open_source(tmp_path / "a.tar", label="json:score").unused) == ["txt"]
    with pytest.raises(OptionError, match="'score'"):
        open_source(tmp_path / "a.tar", label="json:klass")


def test_hidden_files_in_a_tar_file_are_ignored_and_counted(tmp_path):
    content = write_picture(tmp_path / "x.jpg", 1).read_bytes()
    files = {"./cat/._0.jpg": b"x", "./cat/0.jpg": content, "./cat/._0.cls": b"x", "./cat/0.cls": b"4"}
    files |= {".ipynb_checkpoints/1.jpg": content, ".ipynb_checkpoints/1.cls": b"1"}
    write_tar(tmp_path / "a.tar", files.items())
    source = open_source(tmp_path / "a.tar")
    assert (len(source), source[0], dict(source.passed_over)) == (1, (content, 4), {"hidden": 4})


def _with_datasets(data):
    return np.asarray(pytest.importorskip("datasets").Image().decode_example({"bytes": data, "path": None}))


def _with_opencv(data):
    cv2 = pytest.importorskip("cv2")
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)


def _with_torchcodec(data):
    return pytest.importorskip("torchcodec.decoders").decode_jpeg(data).permute(1, 2, 0)


DECODERS: dict[str, Callable[[bytes], Any]] = {
    "Pillow": lambda data: np.asarray(Image.open(io.BytesIO(data))),
    "simplejpeg": simplejpeg.decode_jpeg,
    "`datasets`": _with_datasets,
    "OpenCV": _with_opencv,
    "torchcodec": _with_torchcodec,
}


@pytest.mark.parametrize("library", DECODERS)
def test_the_guide_names_the_libraries_that_turn_images(library, photos):
    text = (ROOT / "docs/guides/command.md").read_text()
    (table,) = re.findall(r"<!-- table: orientation.*?-->\n(.*?)<!-- end of table -->", text, re.DOTALL)
    (answer,) = [row.split(" | ")[1] for row in table.splitlines() if row.startswith(f"| {library}")]
    shape = DECODERS[library]((photos / "0.jpg").read_bytes()).shape
    assert (shape == (50, 30, 3), shape == (30, 50, 3)) == (answer.startswith("yes"), answer.startswith("no"))
