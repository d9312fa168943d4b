from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton._plan.routes import (
    HEIGHT,
    KIND,
    MANY_CORES,
    MOST_PIXELS,
    PROBE_COLUMNS,
    WIDTH,
    DecodeRoute,
    JpegKind,
    assign_routes,
    cut,
    raw_route,
    routes_by_kind,
)
from gpubeton.format import ImageMode

JPEG_ROUTES = (DecodeRoute.HARDWARE, DecodeRoute.ENTRIES)
AVAILABLE = st.sets(st.sampled_from(JPEG_ROUTES))


def choose_routes(*columns, available, raw):
    routes = np.full(len(columns[0]), 99, np.int8)
    assert assign_routes(*columns, routes_by_kind(available), int(raw), routes) == (columns[0] == ImageMode.JPG).sum()
    return routes


def chosen(
    kind, available, *, mode=ImageMode.JPG, size=900, metadata=(48, 64), markers=(48, 64), raw=DecodeRoute.BYTES
):
    """The route of one image."""
    probes = np.zeros((1, PROBE_COLUMNS), np.int32)
    probes[0, KIND], probes[0, HEIGHT], probes[0, WIDTH] = kind, *markers
    sides = (np.array([side], np.int32) for side in metadata)
    columns = np.array([mode], np.uint8), np.array([size], np.uint64), *sides, probes
    routes = choose_routes(*columns, available=available, raw=raw)
    return DecodeRoute(routes[0])


@pytest.mark.parametrize(
    ("available", "baseline"),
    [({DecodeRoute.HARDWARE}, DecodeRoute.HARDWARE), ({DecodeRoute.ENTRIES}, DecodeRoute.CPU), ((), DecodeRoute.CPU)],
)
def test_each_kind_of_jpeg_goes_to_the_fastest_route_that_takes_it(available, baseline):
    assert chosen(JpegKind.BASELINE, available) == baseline
    assert chosen(JpegKind.ELABORATE, available) == DecodeRoute.CPU
    assert chosen(JpegKind.FOREIGN, available) == DecodeRoute.CPU
    assert chosen(JpegKind.DAMAGED, available) == DecodeRoute.CPU


@pytest.mark.parametrize("side", [MOST_PIXELS, MOST_PIXELS + 1])
def test_images_that_are_too_large_for_the_engines_are_left_to_the_cpu(side):
    expected = DecodeRoute.HARDWARE if side == MOST_PIXELS else DecodeRoute.CPU
    for size in ((side, 8), (8, side)):
        assert chosen(JpegKind.BASELINE, {DecodeRoute.HARDWARE}, metadata=size, markers=size) == expected


@pytest.mark.parametrize("markers", [(48, 65), (48, 63), (49, 64), (47, 64), (64, 48), (0, 0), (0, 64)])
@pytest.mark.parametrize("kind", JpegKind)
def test_a_jpeg_whose_markers_contradict_the_metadata_is_left_to_the_cpu(kind, markers):
    assert chosen(kind, JPEG_ROUTES, markers=markers) == DecodeRoute.CPU


@pytest.mark.parametrize("raw", [DecodeRoute.CPU, DecodeRoute.BYTES])
def test_a_raw_image_takes_the_route_of_raw_images_in_spite_of_jpeg_markers(raw):
    size = 3 * 48 * 64
    for kind in JpegKind:
        for markers in ((48, 64), (0, 0)):
            assert chosen(kind, JPEG_ROUTES, mode=ImageMode.RAW, size=size, markers=markers, raw=raw) == raw


@pytest.mark.parametrize("size", [0, 1, 3 * 48 * 64 - 1, 3 * 48 * 64 + 1, 48 * 64])
def test_a_raw_image_of_too_few_or_too_many_bytes_is_left_to_the_cpu(size):
    assert chosen(JpegKind.DAMAGED, JPEG_ROUTES, mode=ImageMode.RAW, size=size) == DecodeRoute.CPU


def test_the_bytes_of_the_largest_raw_image_are_counted_without_overflow():
    side = 65535
    arguments = {"mode": ImageMode.RAW, "metadata": (side, side), "markers": (0, 0)}
    assert chosen(JpegKind.DAMAGED, JPEG_ROUTES, size=3 * side * side, **arguments) == DecodeRoute.BYTES
    assert chosen(JpegKind.DAMAGED, JPEG_ROUTES, size=3 * side * side - 2**32, **arguments) == DecodeRoute.CPU


@given(
    available=AVAILABLE,
    raw=st.sampled_from([DecodeRoute.CPU, DecodeRoute.BYTES]),
    images=st.lists(
        st.tuples(
            st.sampled_from(ImageMode), st.sampled_from(JpegKind), st.booleans(), st.booleans(), st.integers(1, 500)
        ),
        max_size=20,
    ),
)
def test_an_image_goes_where_it_would_go_alone(available, raw, images):
    mode = np.array([image[0] for image in images], np.uint8)
    height = np.array([image[4] for image in images], np.int32)
    probes = np.zeros((len(images), PROBE_COLUMNS), np.int32)
    probes[:, KIND] = [image[1] for image in images]
    probes[:, HEIGHT] = height + [not image[2] for image in images]
    probes[:, WIDTH] = height
    size = np.array([3 * image[4] ** 2 + (not image[3]) for image in images], np.uint64)
    routes = choose_routes(mode, size, height, height, probes, available=available, raw=raw)
    for row in range(len(images)):
        own_row = slice(row, row + 1)
        alone = choose_routes(
            mode[own_row],
            size[own_row],
            height[own_row],
            height[own_row],
            probes[own_row],
            available=available,
            raw=raw,
        )
        assert alone[0] == routes[row]
    # nvJPEG gets nothing but sound JPEGs that it knows, of the size that there is room for.
    decoded = routes < DecodeRoute.CPU
    assert set(routes[decoded].tolist()) <= set(available)
    assert (mode[decoded] == ImageMode.JPG).all()
    assert (probes[decoded, KIND] == JpegKind.BASELINE).all()
    assert (probes[decoded, HEIGHT] == height[decoded]).all()


@pytest.mark.parametrize("num_workers", [0, 1, MANY_CORES - 1, MANY_CORES, 100])
def test_raw_images_are_cropped_on_the_cpu_only_with_many_cores_or_on_request(num_workers):
    assert raw_route("auto", num_workers) == (DecodeRoute.CPU if num_workers >= MANY_CORES else DecodeRoute.BYTES)
    assert raw_route("cpu", num_workers) == DecodeRoute.CPU
    assert raw_route("bytes", num_workers) == DecodeRoute.BYTES


@given(count=st.integers(0, 3000), most=st.integers(1, 400))
def test_pieces_cover_all_images_once_are_the_fewest_and_nearly_equal(count, most):
    pieces = cut(count, most)
    assert [place for piece in pieces for place in range(piece.start, piece.stop)] == list(range(count))
    sizes = [piece.stop - piece.start for piece in pieces]
    assert max(sizes, default=1) <= most
    assert min(sizes, default=1) >= max(max(sizes, default=1) - 1, 1)
    assert len(pieces) == -(-count // most)
