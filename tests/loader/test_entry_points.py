"""A loader of files with entry points: the same images, and a warning where they cannot be used."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton import Loader
from gpubeton.dataset import copy_samples, index_images
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.format.dataset import open_dataset
from gpubeton.format.entry_points import open_entry_points
from gpubeton.format.layout import ENTRY_DTYPE
from gpubeton.writer import DatasetWriter
from tests.cpu.pictures import SAMPLINGS, jpeg, noise, photo, pillow_jpeg

COUNT = 12
PIPELINES = {
    "image": [RandomResizedCropRGBImageDecoder((32, 40), scale=(0.02, 0.6))],
    "label": None,
}


def contents():
    kinds = [jpeg(photo(150, 190, number), 85, sampling) for number, sampling in enumerate(SAMPLINGS)]
    kinds += [jpeg(noise(100, 120, number), 95, sampling) for number, sampling in enumerate(SAMPLINGS)]
    return [*kinds, pillow_jpeg(photo(90, 100), restart_marker_blocks=3), photo(90, 100)]


def images(path, pipelines=PIPELINES, **options):
    """The images of an epoch, and the warnings until its end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Loader(path, 5, num_workers=2, seed=3, pipelines=pipelines, drop_last=False, **options) as loader:
            result = np.concatenate([np.asarray(batch[0]) for batch in loader])
    return result, [str(warning.message) for warning in caught]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "a.beton"
    fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
    samples = [(content, number) for number, content in enumerate(contents())]
    DatasetWriter(path, fields, 1 << 21, 1, progress=False).from_indexed_dataset(samples)
    return path


@pytest.fixture(scope="module")
def expected(file):
    return images(file)[0]


@pytest.fixture
def indexed(file, tmp_path):
    path = tmp_path / "a.beton"
    path.write_bytes(file.read_bytes())
    index_images(path)
    return path


def index_of(path):
    return path.with_name("a.beton.index")


@pytest.mark.parametrize("os_cache", [True, False])
def test_images_are_the_same_with_entry_points_beside_and_in_the_file(indexed, expected, tmp_path, os_cache):
    for path in (indexed, copy_samples(indexed, tmp_path / "inside.beton")):
        pixels, warned = images(path, os_cache=os_cache)
        assert warned == []
        np.testing.assert_array_equal(pixels, expected)


def test_several_files_give_the_same_images_when_one_of_them_has_entry_points(file, indexed):
    pixels, warned = images([file, indexed, file])
    assert warned == []
    np.testing.assert_array_equal(pixels, images([file, file, file])[0])


def test_explain_names_the_fields_with_entry_points(file, indexed, capsys):
    with Loader(indexed, 5, num_workers=1, pipelines=PIPELINES) as loader:
        loader.explain()
    assert f"'image': only what crops need of {COUNT - 1} JPEGs" in capsys.readouterr().out
    with Loader(file, 5, num_workers=1, pipelines=PIPELINES) as loader:
        loader.explain()
    assert "'image': JPEGs have no entry points, and are decoded from their beginning" in capsys.readouterr().out


@pytest.mark.parametrize("fault", ["cut", "stale", "foreign"])
def test_an_index_that_cannot_be_used_is_a_warning_with_a_command(indexed, expected, tmp_path, fault):
    content = index_of(indexed).read_bytes()
    if fault == "cut":
        index_of(indexed).write_bytes(content[:-100])
    elif fault == "foreign":
        index_of(indexed).write_bytes(b"something else" * 100)
    else:
        copy_samples(indexed, tmp_path / "other.beton", [1, 0, *range(2, COUNT)])
        index_images(tmp_path / "other.beton", overwrite=True)
        (tmp_path / "other.beton.index").rename(index_of(indexed))
    pixels, warned = images(indexed)
    np.testing.assert_array_equal(pixels, expected)
    assert len(warned) == 2  # of the entry points, and of the checksums
    assert all(str(index_of(indexed)) in message for message in warned)
    assert all(f"gpubeton index --overwrite {indexed}" in message for message in warned)


def test_a_pipe_in_place_of_an_index_is_a_warning(indexed, expected):
    index_of(indexed).unlink()
    os.mkfifo(index_of(indexed))
    pixels, warned = images(indexed)
    np.testing.assert_array_equal(pixels, expected)
    assert [str(index_of(indexed)) in line for line in warned] == [True, True]  # entry points, and checksums


# --- entries that open, but lie ---------------------------------------------------------------------------------------


def parts(content):
    """First entry of each image, and the entries as arrays that can be changed; where these begin."""
    count = int(np.frombuffer(content[-16:-8], "<u8")[0])
    start = len(content) - 80 - -(-4 * COUNT // 8) * 8 - 8 * (COUNT + 1)
    first = np.frombuffer(content[start : start + 8 * (COUNT + 1)], "<u8").astype(int)
    start -= -(-count * ENTRY_DTYPE.itemsize // 8) * 8
    return first, np.frombuffer(content[start : start + count * ENTRY_DTYPE.itemsize], ENTRY_DTYPE).copy(), start


@settings(max_examples=25)
@given(st.data())
def test_changed_entries_never_give_other_pixels(indexed, expected, data):
    content = index_of(indexed).read_bytes()
    _, entries, start = parts(content)
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(entries) - 1))
        change = data.draw(st.sampled_from(["bit", "dc", "swap", "huge", "zero"]))
        if change == "bit":
            entries["bit"][place] ^= np.uint32(1 << data.draw(st.integers(0, 31)))
        elif change == "dc":
            component = data.draw(st.integers(0, 2))
            changed = int(entries["dc"][place, component]) + data.draw(st.integers(1, 2000))
            entries["dc"][place, component] = (changed + 32768) % 65536 - 32768  # as 16 bits wrap around
        elif change == "swap":
            other = data.draw(st.integers(0, len(entries) - 1))
            entries[[place, other]] = entries[[other, place]]
        elif change == "huge":
            entries[place] = (2**32 - 1, (32767, -32768, 32767))
        else:
            entries[place:] = 0
    index_of(indexed).write_bytes(content[:start] + entries.tobytes() + content[start + entries.nbytes :])
    pixels, warned = images(indexed)
    index_of(indexed).write_bytes(content)
    assert warned == []
    np.testing.assert_array_equal(pixels, expected)


def test_entries_of_another_image_of_the_same_number_never_give_other_pixels(indexed, expected):
    content = index_of(indexed).read_bytes()
    first, entries, start = parts(content)
    counts = np.diff(first)
    for number in range(5):  # photos: the noise of the same sampling has other sizes
        others = [other for other in range(COUNT) if other != number and counts[other] == counts[number] > 0]
        for other in others[:1]:
            changed = entries.copy()
            changed[first[number] : first[number + 1]] = entries[first[other] : first[other + 1]]
            rest = content[start + changed.nbytes :]
            index_of(indexed).write_bytes(content[:start] + changed.tobytes() + rest)
            np.testing.assert_array_equal(images(indexed)[0], expected)


def test_whole_images_need_no_entry_points_and_are_the_same(indexed, file):
    pipelines = {"image": [CenterCropRGBImageDecoder((64, 64), 1.0)], "label": None}
    np.testing.assert_array_equal(images(indexed, pipelines)[0], images(file, pipelines)[0])


def test_bytes_that_no_crop_needs_may_be_damaged(indexed):
    """Entry points are really used: without them the damage above and beside the crops is noticed."""
    pipelines = {"image": [RandomResizedCropRGBImageDecoder((32, 40), scale=(0.01, 0.06))], "label": None}
    expected, _ = images(indexed, pipelines)
    with Loader(indexed, 5, num_workers=2, seed=3, pipelines=pipelines, drop_last=False) as loader:
        draws = np.concatenate([plan.images["image"].draws for plan in loader.plan()])
    index, content = open_dataset(indexed), bytearray(indexed.read_bytes())
    points, regions = open_entry_points(index)[0]["image"], index.regions("image")
    damaged = 0
    for number in range(COUNT):
        bits = points.entries["bit"][int(points.first[number]) : int(points.first[number + 1])]
        if draws[number, 0] > 40 and len(bits) > 1:
            # The end of the first interval; words that the seal covers lie at sixteenths of the scan.
            content[int(regions.offset[number]) + int(bits[1]) // 8 - 2] ^= 0xFF
            damaged += 1
    assert damaged > 3
    indexed.write_bytes(content)
    np.testing.assert_array_equal(images(indexed, pipelines, checksums=False)[0], expected)
