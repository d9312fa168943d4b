"""Points by hand; `tests/loader/test_keypoints.py` compares them with pixels."""

from __future__ import annotations

import numpy as np
import pytest

from gpubeton.pipeline.ragged import Ragged
from gpubeton.transforms import TransformKeypoints
from gpubeton.transforms.placements import MosaicPlacement, PlacementList


def turned(*bits):
    placements = PlacementList(len(bits), (8, 8))
    placements.turn(np.array(bits))
    return placements.placements


@pytest.mark.parametrize("bits", range(8))
def test_points_turn_as_a_picture_and_pairs_change_places_if_it_is_mirrored(bits):
    picture = np.zeros((8, 8), int)
    picture[1, 2], picture[1, 5], picture[4, 4] = 1, 2, 3
    result = picture[:: -1 if bits & 2 else 1, :: -1 if bits & 1 else 1]
    result = result.T if bits & 4 else result
    expected = np.array([np.argwhere(result == mark)[0, ::-1] for mark in (1, 2, 3)])
    points = np.array([[[2.0, 1], [5, 1], [4, 4]]])
    assert np.array_equal(TransformKeypoints(centers=True).apply(points, turned(bits))[0], expected)
    if bits.bit_count() % 2:
        expected = expected[[1, 0, 2]]
    pairs = TransformKeypoints(centers=True, flip_pairs=[(1, 0)])
    assert np.array_equal(pairs.apply(points, turned(bits))[0], expected)
    assert np.array_equal(pairs.apply(points.reshape(1, 6), turned(bits))[0], expected.ravel())
    assert np.array_equal(pairs.apply(Ragged(points, np.array([0, 1])), turned(bits))[0][0], expected)


def test_absent_points_stay_absent():
    points = np.array([[[np.nan, 1], [-1, -1], [8, 0], [8.5, 0]]], np.float32)
    result = TransformKeypoints().apply(points, turned(1))
    assert np.isnan(result[0, [0, 1, 3]]).all()
    assert result[0, 2].tolist() == [0, 0]
    marked = np.array([[[5, 1, 0], [5, 1, 2], [9, 1, 1]]], np.float32)
    expected = [[0, 0, 0], [3, 1, 2], [0, 0, 0]]
    assert TransformKeypoints(columns=3).apply(marked, turned(1))[0].tolist() == expected
    assert TransformKeypoints(outside="keep").apply(points, turned(1))[0, 3].tolist() == [-0.5, 0]


def test_a_mosaic_of_samples_without_objects_has_none():
    places = [(0, 0, 4, 4), (0, 4, 4, 8), (4, 0, 8, 4), (4, 4, 8, 8)]
    tiles = np.array([[(tile % 2, 0, 0, *place) for tile, place in enumerate(places)]] * 2, np.int32)
    placements = [*turned(0, 0), MosaicPlacement(tiles, (8, 8))]
    one = Ragged(np.array([[1.0, 2]]), np.array([0, 0, 1]))
    result = TransformKeypoints().apply(one, placements)
    assert result.offsets.tolist() == [0, 2, 4]
    assert result.values.tolist() == [[5, 2], [5, 6]] * 2
    none = TransformKeypoints().apply(Ragged(np.zeros((0, 2)), np.zeros(3, int)), placements)
    assert none.offsets.tolist() == [0, 0, 0]
