"""Restart markers put into JPEGs: the same pixels by every decoder, and no harm by damaged files."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gpubeton.conversion import Settings, convert, open_source
from gpubeton.errors import OptionError
from gpubeton.fields import ImageField, RGBImageField
from gpubeton.fields.restart_markers import with_restart_markers
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder
from gpubeton.inspection import verify
from gpubeton.loader import Loader
from gpubeton.pipeline.compiler import Compiler
from gpubeton.reader import Reader
from gpubeton.writer import DatasetWriter
from tests.cpu.pictures import SAMPLINGS, decoded, jpeg, noise, photo, pillow_jpeg
from tests.picture_folders import write_folder

MCU = {"4:2:0": (16, 16), "4:2:2": (8, 16), "4:4:0": (16, 8), "4:4:4": (8, 8), "gray": (8, 8)}


def pixels(data):
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image)


def markers(data):
    """The restart markers of the scan, from 0 to 7."""
    scan = data.index(b"\xff\xda")
    return [found[1] - 0xD0 for found in re.findall(rb"\xff[\xd0-\xd7]", data[scan:])]


def mcus_of(data, sampling):
    height, width = pixels(data).shape[:2]
    down, across = MCU[sampling]
    return -(-height // down) * -(-width // across)


def check(data, interval, mcus):
    made = with_restart_markers(data, interval)
    np.testing.assert_array_equal(pixels(made), pixels(data))
    np.testing.assert_array_equal(decoded(made), decoded(data))
    assert markers(made) == [number % 8 for number in range(-(-mcus // interval) - 1)]
    return made


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("height", "width"), [(1, 1), (33, 70), (64, 128), (90, 130)])
def test_pixels_are_the_same_with_a_marker_after_each_interval(sampling, height, width):
    for data in (jpeg(photo(height, width), 85, sampling), jpeg(noise(height, width), 100, sampling)):
        mcus = mcus_of(data, sampling)
        for interval in (1, 3, 8, mcus - 1):
            if 0 < interval < mcus:
                assert b"\xff\xdd\0\4" + interval.to_bytes(2, "big") in check(data, interval, mcus)
        assert with_restart_markers(data, mcus) == data


@settings(max_examples=40)
@given(
    st.sampled_from(SAMPLINGS), st.integers(1, 80), st.integers(1, 80), st.integers(1, 100), st.integers(1, 30),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_any_image_keeps_its_pixels(sampling, height, width, quality, interval, seed):
    data = jpeg(photo(height, width, seed), quality, sampling)
    check(data, interval, mcus_of(data, sampling))


def test_markers_that_are_there_are_replaced():
    data = pillow_jpeg(photo(90, 130), quality=85, restart_marker_blocks=7)
    once = check(data, 4, 54)
    assert once.count(b"\xff\xdd\0\4") == 1
    assert once == with_restart_markers(with_restart_markers(data, 5), 4)


def test_tables_without_a_code_for_a_larger_difference_are_replaced():
    y, x = np.mgrid[0:160, 0:160]
    slope = np.repeat((128 + (y + x) / 3).astype(np.uint8)[..., None], 3, 2)
    data = pillow_jpeg(slope, quality=95, optimize=True)
    made = check(data, 8, 100)
    before, after = (content.index(b"\xff\xda") for content in (data, made))
    assert after > before + 6  # the headers have other tables, too
    assert with_restart_markers(made, 3) == with_restart_markers(data, 3)


def test_the_plain_function_and_the_compiled_one_make_the_same_file(monkeypatch):
    data = jpeg(photo(40, 50), 70)
    expected = with_restart_markers(data, 2)
    monkeypatch.setattr(Compiler, "compile", lambda code: code)
    assert with_restart_markers(data, 2) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8",
        pillow_jpeg(photo(40, 50), progressive=True),
        pillow_jpeg(photo(40, 50), mode="CMYK"),
        jpeg(photo(40, 50))[:-40],
        jpeg(photo(40, 50))[:-300] + b"\xff\xd9",
        pillow_jpeg(photo(90, 130), restart_marker_blocks=7).replace(b"\xff\xd1", b"\xff\xd2", 1),
    ],
)
def test_what_cannot_be_read_stays_as_it_is(data):
    assert with_restart_markers(data, 2) == data


@pytest.mark.parametrize("body", [b"\3\1\0", b"\3", bytes([3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0, 0])])
def test_a_scan_header_of_a_wrong_length_changes_nothing(body, monkeypatch):
    monkeypatch.setattr(Compiler, "compile", lambda code: code)  # which reads nothing outside of arrays
    before, scan = jpeg(photo(40, 50)).split(b"\xff\xda\0\x0c\3\1\0\2\x11\3\x11\0\x3f\0")
    data = before + b"\xff\xda\0" + bytes([len(body) + 2]) + body + scan
    assert with_restart_markers(data, 2) == data


@pytest.mark.parametrize(("height", "interval"), [(512, 1), (520, 2)])
def test_large_images_get_longer_intervals(height, interval):
    data = jpeg(photo(height, 1024), sampling="gray")
    mcus = height * 1024 // 64
    assert markers(with_restart_markers(data, 1)) == [number % 8 for number in range(-(-mcus // interval) - 1)]


SOUND = [jpeg(photo(40, 50), 80), pillow_jpeg(photo(40, 50), quality=80, optimize=True, restart_marker_blocks=3)]


@settings(max_examples=300)
@given(st.sampled_from(SOUND), st.lists(st.tuples(st.integers(2, 10**6), st.integers(0, 255)), max_size=4), st.data())
def test_damaged_files_do_no_harm(sound, changes, data):
    content = bytearray(sound)
    for place, value in changes:
        content[place % len(content)] = value
    content = bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])
    made = with_restart_markers(content, 2)
    if made == content:
        return
    try:
        expected = decoded(content)
    except ValueError:
        return
    np.testing.assert_array_equal(decoded(made), expected)


def test_writers_and_conversions_put_markers_into_files_and_encoded_images(tmp_path):
    picture = photo(90, 130)
    fields = {
        "image": RGBImageField("jpg", restart_interval=8),
        "gray": ImageField("gray", "jpg", restart_interval=20),
        "plain": RGBImageField("jpg"),
    }
    sample = jpeg(picture), picture[..., 1], jpeg(picture)
    path = tmp_path / "a.beton"
    DatasetWriter(path, fields, 1 << 21, 1, progress=False).from_indexed_dataset([sample])
    index, content = Reader(path).index, path.read_bytes()
    stored = {
        name: content[int(index.regions(name).offset[0]) :][: int(index.regions(name).size[0])] for name in fields
    }
    assert {name: len(markers(data)) for name, data in stored.items()} == {"image": 6, "gray": 10, "plain": 0}
    assert stored["plain"] == sample[0]
    with Loader(path, 1, num_workers=1) as loader:
        image, _, plain = next(iter(loader))
        np.testing.assert_array_equal(np.asarray(image), np.asarray(plain))
    pipelines = {"image": [CenterCropRGBImageDecoder((20, 20), 1.0)]}
    source = open_source(write_folder(tmp_path / "photos"))
    done = convert(source, tmp_path / "b.beton", Settings(page_size=1 << 21, restart_interval=1), num_workers=2)
    assert verify(done.path).is_sound
    assert Reader(done.path).notes["settings"]["restart_interval"] == 1
    with Loader(done.path, 9, num_workers=1, pipelines=pipelines) as loader:
        made = np.asarray(next(iter(loader))[0])
    convert(source, tmp_path / "c.beton", Settings(page_size=1 << 21), num_workers=1)
    with Loader(tmp_path / "c.beton", 9, num_workers=1, pipelines=pipelines) as loader:
        np.testing.assert_array_equal(made, np.asarray(next(iter(loader))[0]))


@pytest.mark.parametrize("interval", [0, -1, 65536, 1.5, "8"])
def test_intervals_outside_of_the_standard_are_refused(interval):
    with pytest.raises((OptionError, TypeError)):
        RGBImageField("jpg", restart_interval=interval)
