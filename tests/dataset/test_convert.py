from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpubeton.dataset import Settings, Source, convert, open_source
from gpubeton.dataset.file_settings import fields_of
from gpubeton.errors import NoSamplesError, OptionError, PageSizeError, RegionTooLargeError, SampleError
from gpubeton.fields.pixels import rgb_pixels_of
from gpubeton.format import ImageMode
from gpubeton.reader import Reader
from gpubeton.writer import DatasetWriter
from tests.picture_folders import images_and_labels, write_folder, write_picture

SMALL = {"page_size": 1 << 21}


def stored(path):
    """Each image's bytes, and the labels."""
    return tuple(map(list, zip(*images_and_labels(path), strict=True)))


def test_a_folder_becomes_the_file_of_the_writer_and_notes(tmp_path):
    source = open_source(write_folder(tmp_path / "photos"))
    done = convert(source, tmp_path / "a.beton", Settings(**SMALL), num_workers=1)
    fields = fields_of(Settings(**SMALL), {"label": "int"})
    writer = DatasetWriter(tmp_path / "b.beton", fields, 1 << 21, 1, progress=False)
    writer.from_image_folder(tmp_path / "photos")
    assert stored(tmp_path / "a.beton") == stored(tmp_path / "b.beton")
    assert (done.samples, done.class_names, done.skipped, done.resumed) == (9, ("cat", "dog", "eel"), [], 0)
    reader = Reader(tmp_path / "a.beton")
    assert reader.class_names == ("cat", "dog", "eel")
    assert reader.notes["settings"]["quality"] == 90
    assert len(reader.checksums) == 9


def test_jpeg_files_are_taken_over_and_others_encoded(tmp_path):
    folder = write_folder(tmp_path / "photos")
    convert(open_source(folder), tmp_path / "a.beton", Settings(**SMALL), num_workers=1)
    images, _ = stored(tmp_path / "a.beton")
    files = sorted(folder.rglob("*.*"))
    assert [image == file.read_bytes() for image, file in zip(images, files, strict=True)] == [
        file.suffix == ".jpg" for file in files
    ]


@pytest.mark.parametrize("workers", [2, 3])
def test_the_file_does_not_depend_on_the_number_of_processes(workers, tmp_path):
    source = open_source(write_folder(tmp_path / "photos", 20))
    settings = Settings(write_mode="proportion", shuffle=True, seed=3, max_resolution=20, **SMALL)
    for number in (1, workers):
        convert(source, tmp_path / f"{number}.beton", settings, num_workers=number, chunksize=3)
    assert (tmp_path / "1.beton").read_bytes() == (tmp_path / f"{workers}.beton").read_bytes()


def test_shuffled_samples_are_a_permutation_by_seed_and_the_limit_takes_the_first(tmp_path):
    source = open_source(write_folder(tmp_path / "photos", 12))
    all_of_them = convert(source, tmp_path / "a.beton", Settings(shuffle=True, seed=1, **SMALL), num_workers=1)
    some = convert(source, tmp_path / "b.beton", Settings(shuffle=True, seed=1, limit=5, **SMALL), num_workers=1)
    plain = convert(source, tmp_path / "c.beton", Settings(**SMALL), num_workers=1)
    shuffled, in_order = stored(all_of_them.path), stored(plain.path)
    assert shuffled != in_order
    assert sorted(shuffled[0]) == sorted(in_order[0])
    assert stored(some.path) == (shuffled[0][:5], shuffled[1][:5])


def test_large_images_shrink_and_raw_mode_stores_the_pixels_that_pillow_decodes(tmp_path):
    path = write_picture(tmp_path / "photos" / "a" / "1.jpg", 1, 40, 60)
    source = open_source(tmp_path / "photos")
    small, whole = (
        convert(source, tmp_path / f"{most}.beton", Settings("raw", most, **SMALL), num_workers=1) for most in (30, 60)
    )
    column = Reader(small.path).index.column("image")
    assert (column["height"].tolist(), column["width"].tolist()) == ([20], [30])
    assert column["mode"].tolist() == [ImageMode.RAW]
    assert stored(whole.path)[0] == [rgb_pixels_of(path.read_bytes()).tobytes()]


def spoil(folder):
    """Three bad files of eleven: not an image, a JPEG cut short, an empty one."""
    (folder / "cat" / "0000x.jpg").write_bytes(b"not an image")
    whole = (folder / "dog" / "0001.jpg").read_bytes()
    (folder / "dog" / "0001x.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "eel" / "zzz.png").write_bytes(b"")
    return ["cat/0000x.jpg", "dog/0001x.jpg", "eel/zzz.png"]


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_images_are_left_out_and_named(workers, tmp_path):
    folder = write_folder(tmp_path / "photos")
    convert(open_source(folder), tmp_path / "good.beton", Settings(**SMALL), num_workers=1)
    bad = spoil(folder)
    options = {"on_error": "skip", "num_workers": workers, "chunksize": 2}
    done = convert(open_source(folder), tmp_path / "a.beton", Settings(**SMALL), **options)
    assert [skipped_sample.name for skipped_sample in done.skipped] == [str(folder / name) for name in bad]
    assert done.samples == Reader(done.path).num_samples == 9
    assert stored(done.path) == stored(tmp_path / "good.beton")
    assert [note["name"] for note in Reader(done.path).notes["skipped"]] == [str(folder / name) for name in bad]


def test_a_bad_image_stops_the_conversion_by_name(tmp_path):
    folder = write_folder(tmp_path / "photos")
    bad = spoil(folder)
    with pytest.raises(SampleError, match=rf"{bad[0]}: sample 1 "):
        convert(open_source(folder), tmp_path / "a.beton", Settings(**SMALL), num_workers=1)
    assert not (tmp_path / "a.beton").exists()


def test_a_pipe_among_the_images_is_a_bad_image(tmp_path):
    folder = write_folder(tmp_path / "photos")
    os.mkfifo(folder / "dog" / "pipe.jpg")
    done = convert(open_source(folder), tmp_path / "a.beton", Settings(**SMALL), on_error="skip", num_workers=1)
    assert [(skipped_sample.name, "regular file" in skipped_sample.reason) for skipped_sample in done.skipped] == [
        (str(folder / "dog" / "pipe.jpg"), True)
    ]
    writer = DatasetWriter(
        tmp_path / "b.beton", fields_of(Settings(**SMALL), {"label": "int"}), 1 << 21, 1, progress=False
    )
    with pytest.raises(SampleError, match="regular file"):
        writer.from_image_folder(folder)


def test_a_jpeg_that_ends_in_its_middle_is_bad_if_it_is_looked_at(tmp_path):
    folder = write_folder(tmp_path / "photos")
    whole = (folder / "dog" / "0001.jpg").read_bytes()
    # Its markers are in order.
    (folder / "dog" / "0001.jpg").write_bytes(whole[:-60] + b"\xff\xd9" + whole[-60:])
    for check in (True, False):
        settings = Settings(check=check, **SMALL)
        done = convert(open_source(folder), tmp_path / f"{check}.beton", settings, on_error="skip", num_workers=1)
        assert len(done.skipped) == check


def test_nothing_but_bad_images_is_an_error(tmp_path):
    (tmp_path / "photos" / "a").mkdir(parents=True)
    (tmp_path / "photos" / "a" / "1.jpg").write_bytes(b"x")
    with pytest.raises(NoSamplesError, match=r"1\.jpg"):
        convert(open_source(tmp_path / "photos"), tmp_path / "a.beton", Settings(**SMALL), on_error="skip")


def test_an_image_larger_than_a_page_is_no_bad_image(tmp_path):
    class Large(Source):
        fields: dict[str, str] = {}  # noqa: RUF012  (a test's)

        def __len__(self):
            return 1

        def __getitem__(self, index):
            return (np.zeros((900, 900, 3), np.uint8),)

        def name(self, index):
            return "the large one"

    with pytest.raises(RegionTooLargeError, match=r"the large one: .*page_size=4194304"):
        convert(Large(), tmp_path / "a.beton", Settings("raw", **SMALL), on_error="skip", num_workers=1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"limit": 0}, OptionError, "limit is 0"),
        ({"quality": 0}, OptionError, "jpeg_quality is 0"),
        ({"write_mode": "png"}, OptionError, "write_mode is 'png'"),
        ({"write_mode": "smart"}, OptionError, "needs smart_threshold"),
        ({"page_size": 3 << 20}, PageSizeError, str(3 << 20)),
    ],
)
def test_settings_out_of_range_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        Settings(**options)


@pytest.mark.parametrize("mode", ["rgb", "gray", "rgba"])
def test_no_program_runs_for_an_image_that_is_a_program(mode, tmp_path, monkeypatch):
    """Pillow decodes PostScript with Ghostscript, for any file name."""
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "a.jpg", "EPS")
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "b.jpg", "JPEG")
    ghostscript = tmp_path / "gs"
    ghostscript.write_text(f"#!/bin/sh\ntouch '{tmp_path}/has-run'\nexit 1\n")
    ghostscript.chmod(0o755)
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", str(ghostscript))
    done = convert(
        open_source(tmp_path / "photos"), tmp_path / "a.beton", Settings(mode=mode), on_error="skip", num_workers=1
    )
    assert [Path(bad.name).name for bad in done.skipped] == ["a.jpg"]
    assert not (tmp_path / "has-run").exists()
