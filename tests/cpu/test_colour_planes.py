from __future__ import annotations

import numba
import numpy as np
import pytest

from gpubeton.cpu.colour_planes import load_planes, store_planes
from tests.cpu.guarded import guarded

WIDTHS = [1, 2, 15, 16, 17, 31, 32, 33, 48, 50, 224]


@numba.njit
def load(row, line):
    load_planes(row, line)


@numba.njit
def store(line, row):
    store_planes(line, row)


@pytest.mark.parametrize("width", WIDTHS)
def test_pixels_are_copied_apart_and_back_and_nothing_beyond_is_touched(width):
    row = guarded(np.random.default_rng(width).integers(0, 256, (width, 3), np.uint8))
    line = guarded(np.full((3, width), -1, np.int32))
    load(row, line)
    assert np.array_equal(line, row.T)
    back = guarded(np.zeros((width, 3), np.uint8))
    store(line, back)
    assert np.array_equal(back, row)
