from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._batch import step_rows
from gpubeton.errors import PipelineError
from gpubeton.pipeline import State
from gpubeton.transforms import ColorJitter, NormalizeImage, RandomBrightness, RandomContrast, RandomSaturation
from tests.apply import LAYOUTS, apply, as_nhwc_array, in_layout, state_after
from tests.reference.color import BRIGHTNESS, CONTRAST, ONE, SATURATION

#: Beyond what levels can be, at both ends.
IMAGES = np.random.default_rng(0).uniform(-40, 300, (5, 20, 30, 3))
FACTORS = np.array([0, 12_345, ONE, 50_000, 3 * ONE], np.int32)
DTYPES = ["float16", "float32", "float64"]
OPERATIONS = {kind: make(0.5, p=1) for kind, make in enumerate((RandomBrightness, RandomContrast, RandomSaturation))}


def blend(kind, images, factors):
    """FFCV's formula in float64. An image whose factor is 1 is not touched: none was drawn for it."""
    gray = (images @ [0.2989, 0.587, 0.114])[..., None] if images.shape[3] > 1 else images
    others = {BRIGHTNESS: 0 * gray, CONTRAST: gray.mean((1, 2), keepdims=True), SATURATION: gray}
    factor = factors[:, None, None, None] / ONE
    changed = np.clip(factor * images + (1 - factor) * others[kind], 0, 255)
    return np.where(factor == 1, images, changed)


def tolerance(dtype):
    """Up to eight roundings of numbers of up to 3 * 300 + 2 * 300, and one to the type that is handed out."""
    computed = np.finfo("float64" if dtype == "float64" else "float32").eps
    return 8 * 1500 * computed + 256 * np.finfo(dtype).eps


def steps_of(kind):
    kinds = {BRIGHTNESS: step_rows.BRIGHTNESS, CONTRAST: step_rows.CONTRAST, SATURATION: step_rows.SATURATION}
    return step_rows.step_rows(kinds[kind], FACTORS[:, None])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", OPERATIONS)
def test_a_blend_is_cut_off_and_not_rounded_to_levels(kind, dtype, layout):
    images = IMAGES.astype(dtype)
    batch = in_layout(images, layout)
    result = OPERATIONS[kind].apply(batch, steps_of(kind))
    assert result is batch
    result = as_nhwc_array(result, layout)
    assert result.dtype == dtype
    assert np.abs(result - blend(kind, images.astype(np.float64), FACTORS)).max() <= tolerance(dtype)


@pytest.mark.parametrize("kind", OPERATIONS)
def test_bfloat16_is_taken_too(kind):
    images = torch.from_numpy(IMAGES).bfloat16()
    result = OPERATIONS[kind].apply(images.clone(), steps_of(kind))
    expected = blend(kind, images.double().numpy(), FACTORS)
    assert np.abs(result.double().numpy() - expected).max() <= 256 * torch.finfo(torch.bfloat16).eps


@pytest.mark.parametrize("kind", [BRIGHTNESS, CONTRAST])
def test_a_gray_image_is_its_own_gray_value_and_a_fourth_channel_stays(kind):
    gray, rgba = IMAGES[..., :1].copy(), np.concatenate([IMAGES, IMAGES[..., :1]], axis=3)
    result = OPERATIONS[kind].apply(gray.copy(), steps_of(kind))
    assert np.abs(result - blend(kind, gray, FACTORS)).max() <= tolerance("float64")
    result = OPERATIONS[kind].apply(rgba.copy(), steps_of(kind))
    assert np.abs(result[..., :3] - blend(kind, IMAGES, FACTORS)).max() <= tolerance("float64")
    assert np.array_equal(result[..., 3], IMAGES[..., 0])


@pytest.mark.parametrize("operation", [RandomBrightness(0.5), RandomContrast(0.5), RandomSaturation(0.5)])
def test_the_factor_of_an_image_depends_on_neither_its_dtype_nor_its_batch(operation):
    samples, order = np.array([9, 4, 7, 1, 0]), [3, 0, 2]
    levels = np.clip(IMAGES, 0, 255).astype(np.uint8)
    floats = apply([operation], levels.astype(np.float32), seed=5, samples=samples)
    part = apply([operation], levels[order].astype(np.float32), seed=5, samples=samples[order])
    assert np.array_equal(part, floats[order])
    # Gray values are rounded down, by up to one level, and so are the results.
    assert np.abs(apply([operation], levels.copy(), seed=5, samples=samples) - floats).max() < 1.51


@pytest.mark.parametrize("operation", OPERATIONS.values())
def test_it_runs_after_normalize_image_but_not_on_the_bits_of_halves(operation):
    levels = State(True, torch.device("cpu"), (20, 30, 3), np.dtype("uint8"))
    assert state_after([NormalizeImage(0, 1, np.float32), operation], levels).dtype == np.float32
    with pytest.raises(PipelineError, match=r" int16\. .*before"):
        state_after([NormalizeImage(0, 1, np.float16), operation], levels)


def test_the_error_for_16_bit_images_recommends_normalize_image_where_it_helps():
    sixteen = State(True, torch.device("cpu"), (20, 30, 3), np.dtype("uint16"))
    for operation in OPERATIONS.values():
        with pytest.raises(PipelineError, match=r"uint16\. .*NormalizeImage\(0, 257, np"):
            operation.declare_state_and_memory(sixteen)
        images = np.full((1, 20, 30, 3), 65535, np.uint16)
        assert apply([NormalizeImage(0, 257, np.float32), operation], images).max() <= 255
    with pytest.raises(PipelineError, match=r"ColorJitter .* uint16\. .* 8 bits"):
        ColorJitter(0.5).declare_state_and_memory(sixteen)
