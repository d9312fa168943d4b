from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton._plan.lanes import (
    HEIGHT,
    KIND,
    MANY_CORES,
    MOST_PIXELS,
    SURVEY_COLUMNS,
    WIDTH,
    JpegKind,
    Lane,
    assign_lanes,
    cut,
    lanes_by_kind,
    raw_lane,
)
from gpubeton.format import ImageMode

JPEG_LANES = (Lane.HARDWARE, Lane.OWN)
AVAILABLE = st.sets(st.sampled_from(JPEG_LANES))


def choose_lanes(*columns, available, raw):
    lanes = np.full(len(columns[0]), 99, np.int8)
    assert assign_lanes(*columns, lanes_by_kind(available), int(raw), lanes) == (columns[0] == ImageMode.JPG).sum()
    return lanes


def chosen(kind, available, *, mode=ImageMode.JPG, size=900, metadata=(48, 64), markers=(48, 64), raw=Lane.BYTES):
    """The lane of one image."""
    survey = np.zeros((1, SURVEY_COLUMNS), np.int32)
    survey[0, KIND], survey[0, HEIGHT], survey[0, WIDTH] = kind, *markers
    sides = (np.array([side], np.int32) for side in metadata)
    columns = np.array([mode], np.uint8), np.array([size], np.uint64), *sides, survey
    lanes = choose_lanes(*columns, available=available, raw=raw)
    return Lane(lanes[0])


@pytest.mark.parametrize(
    ("available", "baseline"), [({Lane.HARDWARE}, Lane.HARDWARE), ({Lane.OWN}, Lane.CPU), ((), Lane.CPU)]
)
def test_each_kind_of_jpeg_goes_to_the_fastest_lane_that_takes_it(available, baseline):
    assert chosen(JpegKind.BASELINE, available) == baseline
    assert chosen(JpegKind.ELABORATE, available) == Lane.CPU
    assert chosen(JpegKind.FOREIGN, available) == Lane.CPU
    assert chosen(JpegKind.DAMAGED, available) == Lane.CPU


@pytest.mark.parametrize("side", [MOST_PIXELS, MOST_PIXELS + 1])
def test_images_that_are_too_large_for_the_engines_are_left_to_the_cpu(side):
    expected = Lane.HARDWARE if side == MOST_PIXELS else Lane.CPU
    for size in ((side, 8), (8, side)):
        assert chosen(JpegKind.BASELINE, {Lane.HARDWARE}, metadata=size, markers=size) == expected


@pytest.mark.parametrize("markers", [(48, 65), (48, 63), (49, 64), (47, 64), (64, 48), (0, 0), (0, 64)])
@pytest.mark.parametrize("kind", JpegKind)
def test_a_jpeg_whose_markers_contradict_the_metadata_is_left_to_the_cpu(kind, markers):
    assert chosen(kind, JPEG_LANES, markers=markers) == Lane.CPU


@pytest.mark.parametrize("raw", [Lane.CPU, Lane.BYTES])
def test_a_raw_image_takes_the_route_of_raw_images_in_spite_of_jpeg_markers(raw):
    size = 3 * 48 * 64
    for kind in JpegKind:
        for markers in ((48, 64), (0, 0)):
            assert chosen(kind, JPEG_LANES, mode=ImageMode.RAW, size=size, markers=markers, raw=raw) == raw


@pytest.mark.parametrize("size", [0, 1, 3 * 48 * 64 - 1, 3 * 48 * 64 + 1, 48 * 64])
def test_a_raw_image_of_too_few_or_too_many_bytes_is_left_to_the_cpu(size):
    assert chosen(JpegKind.DAMAGED, JPEG_LANES, mode=ImageMode.RAW, size=size) == Lane.CPU


def test_the_bytes_of_the_largest_raw_image_are_counted_without_overflow():
    side = 65535
    arguments = {"mode": ImageMode.RAW, "metadata": (side, side), "markers": (0, 0)}
    assert chosen(JpegKind.DAMAGED, JPEG_LANES, size=3 * side * side, **arguments) == Lane.BYTES
    assert chosen(JpegKind.DAMAGED, JPEG_LANES, size=3 * side * side - 2**32, **arguments) == Lane.CPU


@given(
    available=AVAILABLE,
    raw=st.sampled_from([Lane.CPU, Lane.BYTES]),
    images=st.lists(
        st.tuples(
            st.sampled_from(ImageMode), st.sampled_from(JpegKind), st.booleans(), st.booleans(), st.integers(1, 500)
        ),
        max_size=20,
    ),
)
def test_an_image_goes_where_it_would_go_alone(available, raw, images):
    mode = np.array([one[0] for one in images], np.uint8)
    height = np.array([one[4] for one in images], np.int32)
    survey = np.zeros((len(images), SURVEY_COLUMNS), np.int32)
    survey[:, KIND] = [one[1] for one in images]
    survey[:, HEIGHT] = height + [not one[2] for one in images]
    survey[:, WIDTH] = height
    size = np.array([3 * one[4] ** 2 + (not one[3]) for one in images], np.uint64)
    lanes = choose_lanes(mode, size, height, height, survey, available=available, raw=raw)
    for row in range(len(images)):
        own = slice(row, row + 1)
        alone = choose_lanes(mode[own], size[own], height[own], height[own], survey[own], available=available, raw=raw)
        assert alone[0] == lanes[row]
    # nvJPEG gets nothing but sound JPEGs that it knows, of the size that there is room for.
    decoded = lanes < Lane.CPU
    assert set(lanes[decoded].tolist()) <= set(available)
    assert (mode[decoded] == ImageMode.JPG).all()
    assert (survey[decoded, KIND] == JpegKind.BASELINE).all()
    assert (survey[decoded, HEIGHT] == height[decoded]).all()


@pytest.mark.parametrize("num_workers", [0, 1, MANY_CORES - 1, MANY_CORES, 100])
def test_raw_images_are_cropped_on_the_cpu_only_with_many_cores_or_on_request(num_workers):
    assert raw_lane("auto", num_workers) == (Lane.CPU if num_workers >= MANY_CORES else Lane.BYTES)
    assert raw_lane("cpu", num_workers) == Lane.CPU
    assert raw_lane("bytes", num_workers) == Lane.BYTES


@given(count=st.integers(0, 3000), most=st.integers(1, 400))
def test_pieces_cover_all_images_once_are_the_fewest_and_nearly_equal(count, most):
    pieces = cut(count, most)
    assert [place for piece in pieces for place in range(piece.start, piece.stop)] == list(range(count))
    sizes = [piece.stop - piece.start for piece in pieces]
    assert max(sizes, default=1) <= most
    assert min(sizes, default=1) >= max(max(sizes, default=1) - 1, 1)
    assert len(pieces) == -(-count // most)
