from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.pipeline import State
from gpubeton.transforms import (
    Cutout,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomRotation,
    RandomTranslate,
)
from tests.apply import LAYOUTS, as_nhwc_array, in_layout

IMAGES = np.random.default_rng(0).integers(1, 256, (4, 6, 8, 3), np.uint8)
NHWC = State(True, "cpu", (6, 8, 3), np.dtype("uint8"))
FRACTIONS = 125.3, 255.9, 3.0
PAINTING = [
    Cutout(2, FRACTIONS),
    RandomTranslate(2, FRACTIONS),
    RandomErasing(1, value=FRACTIONS),
    Pad(1, FRACTIONS),
    RandomCrop(7, 2, FRACTIONS),
    RandomRotation((90, 90), fill=FRACTIONS),
]


def many(uniforms):
    return lambda count, _rows=None: np.random.default_rng(1).random((uniforms, count))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_flip_mirrors_the_chosen_images(layout):
    expected = IMAGES.copy()
    expected[[1, 3]] = expected[[1, 3], :, ::-1]
    batch = in_layout(IMAGES, layout)
    flipped = RandomHorizontalFlip().apply(batch, np.array([[0], [1], [0], [1]]))
    assert np.array_equal(as_nhwc_array(flipped, layout), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cutout_paints_its_square_and_nothing_else(layout):
    corner = np.array([[0, 0], [4, 6], [1, 2], [3, 0]])
    expected = IMAGES.copy()
    for image, (top, left) in zip(expected, corner, strict=True):
        image[top : top + 2, left : left + 2] = [7, 8, 9]
    cut = Cutout(2, (7, 8, 9)).apply(in_layout(IMAGES, layout), corner)
    assert np.array_equal(as_nhwc_array(cut, layout), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_translate_is_a_window_of_the_padded_image(layout):
    window = np.array([[0, 0], [2, 2], [4, 4], [1, 3]])
    padded = np.empty((4, 10, 12, 3), np.uint8)
    padded[:] = [7, 8, 9]
    padded[:, 2:-2, 2:-2] = IMAGES
    expected = np.stack([image[y : y + 6, x : x + 8] for image, (y, x) in zip(padded, window, strict=True)])
    moved = RandomTranslate(2, (7, 8, 9)).apply(in_layout(IMAGES, layout), window)
    assert np.array_equal(as_nhwc_array(moved, layout), expected)


@pytest.mark.parametrize("layout", LAYOUTS[:3])
def test_images_three_pixels_high_and_wide_are_read_by_their_memory(layout):
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 3, 3), np.uint8)
    flipped = RandomHorizontalFlip().apply(in_layout(images, layout), np.array([[1], [1]]))
    assert np.array_equal(as_nhwc_array(flipped, layout), images[:, :, ::-1])


def test_an_image_moved_out_of_sight_is_all_padding():
    moved = RandomTranslate(9, (7, 8, 9)).apply(IMAGES.copy(), np.array([[0, 9], [18, 9], [9, 0], [9, 18]]))
    assert (moved[[0, 1, 2, 3]] == [7, 8, 9]).all()


def test_every_place_of_a_cutout_and_every_shift_of_a_translate_is_equally_likely():
    for operation, state_places in ((Cutout(4), 3 * 5), (RandomTranslate(2), 25)):
        drawn = operation.draw(many(15_000), 15_000, NHWC)
        places, times = np.unique(drawn, axis=0, return_counts=True)
        assert len(places) == state_places
        assert drawn.min(axis=0).tolist() == [0, 0]
        assert drawn.max(axis=0).tolist() == ([2, 4] if state_places == 15 else [4, 4])
        assert abs(times * state_places / 15_000 - 1).max() < 0.17


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (Cutout(7), r"7 pixels .* 6 x 8"),
        (Cutout(2, (0, 0, 256)), "levels from 0 to 255"),
        (RandomTranslate(2, (-0.5, 0, 0)), "levels from 0 to 255"),
        (Cutout(1, (-1, 0, 0)), "levels from 0 to 255"),
    ],
)
def test_a_cutout_larger_than_the_image_and_a_fill_that_is_no_level_are_refused(operation, message):
    with pytest.raises(PipelineError, match=message):
        operation.declare_state_and_memory(NHWC)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operation", PAINTING)
def test_levels_drop_the_fraction_of_a_fill(operation, layout):
    operation.declare_state_and_memory(NHWC)
    images = np.zeros((4, 6, 8, 3), np.uint8)
    draw = operation.draw(many(4), 4, NHWC)
    result = as_nhwc_array(operation.apply(in_layout(images, layout), draw), layout)
    assert np.unique(result.reshape(-1, 3), axis=0).tolist() == [[0, 0, 0], [125, 255, 3]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("operation", PAINTING[:-1])
def test_floating_point_images_are_painted_with_the_fraction(operation, dtype):
    state = State(True, "cpu", (6, 8, 3), np.dtype(dtype))
    operation.declare_state_and_memory(state)
    result = operation.apply(np.zeros((4, 6, 8, 3), dtype), operation.draw(many(4), 4, state))
    assert np.unique(result.reshape(-1, 3), axis=0).tolist() == [[0] * 3, np.array(FRACTIONS, dtype).tolist()]


def test_a_fill_in_normalized_units_is_painted_on_normalized_images():
    images = torch.zeros((1, 3, 6, 8))
    cutout = Cutout(2, (-0.5, 0.25, 2))
    cutout.declare_state_and_memory(State(False, "cpu", (3, 6, 8), torch.float32))
    assert cutout.apply(images, np.array([[1, 1]]))[0, :, 2, 2].tolist() == [-0.5, 0.25, 2]


def test_a_fill_for_images_from_0_to_1_is_warned_of_where_it_would_be_black():
    cutout = Cutout(2, (0.485, 0.456, 0.406))
    with pytest.warns(UserWarning, match=r"Cutout: fill \(0\.485, .* is black.* Multiply it by 255"):
        cutout.declare_state_and_memory(State(True, "cpu", (6, 8, 3), np.dtype("uint8")))
    cutout.declare_state_and_memory(State(True, "cpu", (6, 8, 3), np.dtype("float32")))
