from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton.fields.area_average import area_average, fitted_size
from tests.golden.make_opencv_writer import picture
from tests.golden_files import GOLDEN

REDUCTIONS = json.loads((GOLDEN / "opencv_writer.json").read_text())["reductions"]
SIDES = st.integers(1, 60)


@pytest.mark.parametrize(("height", "width", "limit", "size", "sha256"), REDUCTIONS)
def test_reduced_images_are_those_of_opencv_to_the_bit(height, width, limit, size, sha256):
    assert list(fitted_size(height, width, limit)) == size
    pixels = area_average(picture(height, width), *size)
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == sha256


def coverage(old, new):
    """Share of each old pixel in each new one, float64 (new, old)."""
    edges = np.arange(new + 1) * (old / new)
    positions = np.arange(old)
    overlap = np.minimum(edges[1:, None], positions + 1) - np.maximum(edges[:-1, None], positions)
    return np.maximum(overlap, 0) * (new / old)


@settings(max_examples=50)
@given(SIDES, SIDES, st.data())
def test_each_pixel_is_the_mean_over_its_area(height, width, data):
    size = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    pixels = picture(height, width)
    narrow = coverage(width, size[1]) @ pixels.astype(np.float64)
    exact = np.tensordot(coverage(height, size[0]), narrow, 1)
    # Half a level of rounding, and shares below a thousandth of a pixel that are left out on either side.
    assert np.max(np.abs(area_average(pixels, *size) - exact)) <= 0.5 + 4 * 255e-3


@settings(max_examples=50)
@given(SIDES, SIDES, st.integers(0, 255))
def test_a_uniform_color_does_not_change(height, width, level):
    pixels = np.full((60, 60, 3), level, np.uint8)
    assert np.all(area_average(pixels, height, width) == level)


def test_an_image_of_the_wanted_size_is_not_copied():
    pixels = picture(5, 6)
    assert area_average(pixels, 5, 6) is pixels


@pytest.mark.parametrize(
    ("size", "limit", "fitted"),
    [
        ((375, 500), 256, (192, 256)),
        ((500, 333), 256, (256, 170)),
        ((427, 640), 256, (170, 256)),
        ((999, 1000), 256, (255, 256)),
        ((20, 30), 30, (20, 30)),
        ((20, 30), 31, (20, 30)),
        ((20, 30), None, (20, 30)),
        ((1, 1000), 256, (1, 256)),  # FFCV fails here: the side truncates to 0
    ],
)
def test_the_longer_side_decides_and_the_other_is_truncated(size, limit, fitted):
    assert fitted_size(*size, limit) == fitted
