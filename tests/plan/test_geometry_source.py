from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpubeton._plan.program import scaled_boxes

sides = st.integers(1, 5000)


@given(st.data(), sides, sides, sides, sides)
def test_a_part_of_another_size_is_the_same_part_to_half_a_pixel(data, height, width, other_height, other_width):
    top, left = (data.draw(st.integers(0, side - 1)) for side in (height, width))
    rows, columns = data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left))
    whole, other = np.array([[height, width]]), np.array([[other_height, other_width]])
    box = scaled_boxes(np.array([[top, left, rows, columns]], np.int32), whole, other)
    first, last = box[0, :2], box[0, :2] + box[0, 2:]
    assert box.dtype == np.int32
    assert (first >= 0).all()
    assert (box[0, 2:] >= 1).all()
    assert (last <= other[0]).all()
    scale = other[0] / whole[0]
    expected = np.array([top, left]) * scale, np.array([top + rows, left + columns]) * scale
    # A part that would be empty is a pixel beside the border.
    assert (np.abs(first - expected[0]) <= np.where(box[0, 2:] == 1, 1, 0.5) + 1e-6).all()
    assert (np.abs(last - expected[1]) <= np.where(box[0, 2:] == 1, 1, 0.5) + 1e-6).all()


@given(st.data(), sides, sides)
def test_a_part_of_the_same_size_stays(data, height, width):
    top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    box = np.array([[top, left, data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left))]])
    size = np.array([[height, width]])
    assert np.array_equal(scaled_boxes(box, size, size), box)
