from __future__ import annotations

import numpy as np
import pytest

from gpubeton.errors import PipelineError
from gpubeton.pipeline.ragged import Ragged
from gpubeton.pipeline.state import State
from gpubeton.transforms import TransformBoxes

# A crop of 20 x 40 pixels at (5, 10) of an image of 40 x 60, enlarged twice to 40 x 80.
AS_IT_IS = (5, 10, 20, 40, 0, 0, 0, 40, 60, 40, 80)
MIRRORED = (5, 10, 20, 40, 1, 0, 0, 40, 60, 40, 80)


def moved(boxes, placement=AS_IT_IS, **arguments):
    boxes = np.array(boxes, np.float64).reshape(-1, len(boxes[0]) if boxes else 4)
    ragged = TransformBoxes(**arguments).apply(Ragged(boxes, np.array([0, len(boxes)])), np.array([placement]))
    return ragged[0].tolist()


def reference(box, placement, min_visible):
    """One box, step by step in plain Python: the corners that are left, and whether they count."""
    top, left, height, width, flip, shift_y, shift_x, _, _, out_height, out_width = map(float, placement)
    scale_x, scale_y = out_width / width, out_height / height
    x = [(box[0] - left) * scale_x, (box[2] - left) * scale_x]
    y = [(box[1] - top) * scale_y, (box[3] - top) * scale_y]
    area = (x[1] - x[0]) * (y[1] - y[0])
    x, y = [min(max(edge, 0), out_width) for edge in x], [min(max(edge, 0), out_height) for edge in y]
    if flip:
        x = [out_width - x[1], out_width - x[0]]
    x = [min(max(edge - shift_x, 0), out_width) for edge in x]
    y = [min(max(edge - shift_y, 0), out_height) for edge in y]
    inside = (x[1] - x[0]) * (y[1] - y[0])
    return [x[0], y[0], x[1], y[1]], inside > 0 and inside >= min_visible * area * (1 - 2.0**-30)


@pytest.mark.parametrize("min_visible", [0.0, 0.3, 1.0])
def test_boxes_go_where_a_plain_computation_puts_them(min_visible):
    rng = np.random.default_rng(0)
    placements, boxes, lengths = [], [], rng.integers(0, 5, 60)
    for length in lengths:
        height, width = rng.integers(20, 90, 2)
        crop = rng.integers(1, [height, width])
        corner = rng.integers(0, [height, width] - crop + 1)
        placements.append([*corner, *crop, rng.integers(2), *rng.integers(-5, 6, 2), height, width, 24, 32])
        corners = rng.uniform(0, [width, height], (length, 2, 2))
        boxes.append(
            np.concatenate([corners.min(axis=1), corners.max(axis=1), rng.integers(9, size=(length, 1))], axis=1)
        )
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ragged = Ragged(np.concatenate(boxes).astype(np.float32), offsets)
    result = TransformBoxes(min_visible=min_visible).apply(ragged, np.array(placements))
    everything = TransformBoxes(min_visible=min_visible, keep="all").apply(ragged, np.array(placements))
    num_hidden = 0
    for placement, sample_boxes, output, every in zip(placements, ragged, result, everything, strict=True):
        expected = [(*reference(row[:4].tolist(), placement, min_visible), row[4]) for row in sample_boxes]
        visible = [[*box, label] for box, counts, label in expected if counts]
        num_hidden += len(expected) - len(visible)
        # Float64 all the way, rounded to float32 once: half a unit in the last place of numbers below 32.
        np.testing.assert_allclose(output, np.reshape(visible, (-1, 5)), rtol=0, atol=2.0**-20)
        rows = [[*box, label, counts] for box, counts, label in expected]
        np.testing.assert_allclose(every, np.reshape(rows, (-1, 6)), rtol=0, atol=2.0**-20)
    assert num_hidden > 10
    assert result.dtype == everything.dtype == np.float32


def test_placements_follow_one_another():
    # The 40 x 80 pixels are mirrored, of their right half 30 x 30 are taken, half outside, and made 60 x 60.
    then = (-5, 40, 30, 30, 0, 0, 0, 40, 80, 60, 60)
    assert moved([[15, 10, 25, 15]], MIRRORED + then) == [[20, 30, 60, 50]]
    assert moved([[2, 10, 25, 15]], MIRRORED + then, min_visible=0.43) == [[20, 30, 60, 50]]
    fractions = [15 / 60, 10 / 40, 25 / 60, 15 / 40]
    np.testing.assert_allclose(moved([fractions], MIRRORED + then, relative=True), [[1 / 3, 0.5, 1, 5 / 6]], rtol=1e-14)
    # 2 of 23 source pixels are cut off by the first, 6 by the second, and 4 of the last 15 rows.
    assert moved([[2, 0, 25, 15]], MIRRORED + then, min_visible=10 / 23 * 10 / 15) == [[20, 10, 60, 50]]
    assert moved([[2, 0, 25, 15]], MIRRORED + then, min_visible=10 / 23 * 10 / 15 + 1e-6) == []


def test_a_part_cut_off_or_shifted_out_by_one_placement_does_not_come_back():
    padded = (-10, -10, 60, 100, 0, 0, 0, 40, 80, 60, 100)
    assert moved([[0, 0, 15, 10]], AS_IT_IS + padded) == [[10, 10, 20, 20]]
    # Right of the crop, and 4 pixels to the right again: the shift to the left shows nothing of it.
    outside = (5, 10, 20, 40, 0, 0, 4, 40, 60, 40, 80)
    assert moved([[49, 10, 52, 15]], outside) == [[74, 10, 76, 20]]


@pytest.mark.parametrize(
    ("box_format", "box", "expected"),
    [
        ("xyxy", [15, 10, 25, 15], [10, 10, 30, 20]),
        ("xywh", [15, 10, 10, 5], [10, 10, 20, 10]),
        ("cxcywh", [20, 12.5, 10, 5], [20, 15, 20, 10]),
    ],
)
def test_boxes_are_given_back_as_they_are_written(box_format, box, expected):
    assert moved([box], box_format=box_format) == [expected]
    fractions = (np.array(box) / [60, 40, 60, 40]).tolist()
    np.testing.assert_allclose(
        moved([fractions], box_format=box_format, relative=True), [np.array(expected) / [80, 40, 80, 40]], rtol=1e-14
    )


def test_a_box_counts_from_the_share_on_that_is_wished_also_in_spite_of_rounding():
    for min_visible, count in ((0.0, 1), (0.5, 1), (0.51, 0)):
        assert len(moved([[5, 10, 15, 15]], min_visible=min_visible)) == count
    corner = np.random.default_rng(1).uniform(0.1, 0.4, (200, 2))
    boxes = np.concatenate([corner, corner + 0.3], axis=1)
    rolled = (0, 0, 37, 53, 1, 0, 1, 37, 53, 41, 29)
    assert len(moved(boxes.tolist(), rolled, relative=True, min_visible=1.0)) == 200


def test_all_boxes_may_be_kept_and_marked_in_a_column_more():
    boxes = [[15, 10, 25, 15, 7], [0, 0, 9, 5, 8]]
    assert moved(boxes, keep="all") == [[10, 10, 30, 20, 7, 1], [0, 0, 0, 0, 8, 0]]
    assert moved([]) == moved([], keep="all") == []
    state = State(False, "cpu", (-1, 5), np.dtype("f4"))
    assert TransformBoxes().declare_state_and_memory(state)[0].shape == (-1, 5)
    assert TransformBoxes(keep="all").declare_state_and_memory(state)[0].shape == (-1, 6)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((7, 4), "f4", "TransformBoxes works on.*RaggedDecoder"),
        ((-1, 3), "f4", r"shape \(3,\)"),
        ((-1,), "f4", r"shape \(\)"),
        ((-1, 4), "i4", "dtype int32"),
        ((-1, 4), None, "TransformBoxes works on.*RaggedDecoder"),
    ],
)
def test_other_batches_than_ragged_floats_are_refused(shape, dtype, message):
    import torch

    state = State(False, "cpu", shape, torch.float32 if dtype is None else np.dtype(dtype))
    with pytest.raises(PipelineError, match=message):
        TransformBoxes().declare_state_and_memory(state)
