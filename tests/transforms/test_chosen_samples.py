from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.pipeline import State
from gpubeton.transforms import Poison, ReplaceLabel, ToTensor
from tests.apply import LAYOUTS, apply, as_nhwc_array, in_layout

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.integers(0, 256, (5, 6, 8, 3), np.uint8)
MASK = GENERATOR.integers(0, 256, (6, 8, 3), np.uint8)
ALPHA = GENERATOR.random((6, 8))
SAMPLES = np.array([4, 1, 9, 3, 0], np.uint64)
NHWC = State(True, torch.device("cpu"), (6, 8, 3), np.dtype("uint8"))


def poisoned(images, clamp=(0, 255)):
    """FFCV's arithmetic: float32 in between."""
    background = (images * (1 - ALPHA[..., None])).astype(np.float32)
    return np.clip((background + MASK * ALPHA[..., None]).astype(np.float32), *clamp)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_mask_is_blended_over_the_chosen_images_and_no_others(layout):
    expected = IMAGES.copy()
    expected[[1, 2]] = poisoned(IMAGES[[1, 2]])
    batch = in_layout(IMAGES, layout)
    assert Poison(MASK, ALPHA, [9, 1, 77]).apply(batch, SAMPLES) is batch
    assert np.array_equal(as_nhwc_array(batch, layout), expected)
    assert np.array_equal(as_nhwc_array(Poison(MASK, ALPHA, []).apply(batch, SAMPLES), layout), expected)


@pytest.mark.parametrize("alpha", [0.3, 0.4, 0.8])
def test_a_blend_that_is_a_level_but_for_float64_is_that_level(alpha):
    levels = np.arange(256, dtype=np.uint8)
    image, mask = np.broadcast_arrays(levels[:, None, None], levels[None, :, None], np.zeros(3, np.uint8))[:2]
    result = Poison(mask, np.full((256, 256), alpha), [0]).apply(image[None].copy(), np.zeros(1, np.uint64))[0]
    tenths = round(10 * alpha)
    assert np.array_equal(result, ((10 - tenths) * image.astype(int) + tenths * mask.astype(int)) // 10)


def test_values_are_cut_off():
    result = Poison(MASK, ALPHA, [4], clamp=(60, 180)).apply(IMAGES.copy(), SAMPLES)
    assert np.array_equal(result[0], poisoned(IMAGES[0], (60, 180)).astype(np.uint8))
    assert (result[0].min(), result[0].max()) == (60, 180)


def test_floating_point_images_are_poisoned_in_their_own_units():
    images = torch.zeros((1, 3, 6, 8))
    poison = Poison(np.ones((6, 8, 3)) * 2, np.full((6, 8), 0.75), [0], clamp=(-1, 1.25))
    poison.declare_state_and_memory(State(False, "cpu", (3, 6, 8), torch.float32))
    assert poison.apply(images, np.zeros(1, np.uint64)).unique().tolist() == [1.25]


@pytest.mark.parametrize("batch", [np.array([[5], [6], [7], [8], [9]]), torch.tensor([5, 6, 7, 8, 9])])
def test_chosen_labels_are_replaced(batch):
    assert ReplaceLabel(np.array([3, 4, 4]), 1).apply(batch, SAMPLES).ravel().tolist() == [1, 6, 7, 1, 9]


def test_operations_get_the_sample_ids():
    for operations in ([ReplaceLabel([9], 0)], [ToTensor(), ReplaceLabel([9], 0)]):
        assert apply(operations, np.ones((5, 1), int), samples=SAMPLES).ravel().tolist() == [1, 1, 0, 1, 1]
    changed = apply([Poison(MASK, ALPHA, [0])], IMAGES.copy(), samples=SAMPLES) != IMAGES
    assert changed.any(axis=(1, 2, 3)).tolist() == [False, False, False, False, True]


def test_generated_code_declares_with_indices_as_ffcvs_does():
    code = ReplaceLabel([9], 0).generate_code()
    assert code.with_indices is True
    assert code(np.ones(5), None, SAMPLES).tolist() == [1, 1, 0, 1, 1]


def test_apply_without_sample_ids_names_the_missing_argument():
    with pytest.raises(TypeError, match=r"Poison.apply .* ids"):
        Poison(MASK, ALPHA, [1]).apply(IMAGES.copy())


@pytest.mark.parametrize(
    ("clamp", "shape", "dtype", "message"),
    [
        ((0, 255), (20, 30, 3), "uint8", r"mask .* 6 x 8 .* 20 x 30"),
        ((0, 300), (6, 8, 3), "uint8", "levels are 0 to 255"),
        ((0, 255), (6, 8, 3), "int16", r"int16\. .*before\s+NormalizeImage"),
        ((0, 255), (6, 8, 3), "uint16", r"uint16\. .*NormalizeImage\(0, 257"),
    ],
)
def test_images_that_a_mask_or_its_limits_do_not_fit_are_refused(clamp, shape, dtype, message):
    assert Poison(MASK, ALPHA, [1]).declare_state_and_memory(NHWC) == (NHWC, None)
    with pytest.raises(PipelineError, match=message):
        Poison(MASK, ALPHA, [1], clamp).declare_state_and_memory(State(True, "cpu", shape, np.dtype(dtype)))


def test_whole_floats_are_sample_ids_as_in_ffcv():
    labels = np.array([[5], [6], [7], [8], [9]])
    assert ReplaceLabel([3.0, 9.0], 1).apply(labels, SAMPLES).ravel().tolist() == [5, 6, 1, 1, 9]
    result = Poison(MASK, ALPHA, np.array([9, 1], np.float32)).apply(IMAGES.copy(), SAMPLES)
    assert np.array_equal(result, Poison(MASK, ALPHA, [9, 1]).apply(IMAGES.copy(), SAMPLES))


def test_a_repr_does_not_print_the_mask():
    assert (
        repr(Poison(MASK, ALPHA, [3, 1])) == "Poison(indices=[1, 3], mask=<6 x 8 x 3>, alpha=<6 x 8>, clamp=(0, 255))"
    )
    assert repr(ReplaceLabel(range(100), 7)) == "ReplaceLabel(indices=<100>, new_label=7)"
