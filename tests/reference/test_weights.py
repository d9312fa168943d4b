from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gpubeton.fields.image_decoders import CenterCropRGBImageDecoder
from gpubeton.pipeline.interpolation import INTERPOLATIONS
from tests.reference.golden import center_crops, raw_images
from tests.reference.make_opencv import CASES
from tests.reference.weights import resize, resize_weights

OPENCV = Path(__file__).with_name("opencv.npz")
SIZES = [
    ((37, 50), (16, 20)),
    ((16, 20), (37, 50)),
    ((40, 9), (20, 30)),
    ((7, 7), (7, 7)),
    ((64, 48), (32, 24)),
    ((1, 5), (4, 3)),
]


@given(st.sampled_from(list(INTERPOLATIONS)), st.integers(1, 60), st.integers(1, 60))
def test_weights_of_a_pixel_sum_to_one_and_only_those_of_bicubic_may_be_negative(interpolation, source, target):
    weights = resize_weights(source, target, interpolation)
    assert weights.min() >= (-0.2 if interpolation == "bicubic" else 0)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("name", ["img_raw_fixed", "img_raw_var", "img_raw_odd"])
def test_area_gives_the_center_crops_of_ffcv(name):
    expected, parameters = center_crops(name)
    decoder = CenterCropRGBImageDecoder(tuple(parameters["output_size"]), parameters["ratio"])
    for image, reference in zip(raw_images(name), expected, strict=True):
        sides = np.array([image.shape[0]]), np.array([image.shape[1]])
        top, left, height, width = decoder.boxes(*sides, None)[0]
        levels = resize(image[top : top + height, left : left + width], decoder.output_size, "area")
        assert np.abs(levels - reference).max() <= 1, image.shape


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("interpolation", ["area", "bilinear"])
def test_area_and_bilinear_are_within_a_level_of_opencv(number, interpolation):
    with np.load(OPENCV) as arrays:
        image, expected = arrays[f"image_{number}"], arrays[f"{interpolation}_{number}"]
    assert np.abs(resize(image, expected.shape[:2], interpolation) - expected).max() <= 1.01


@pytest.mark.parametrize(("source", "target"), SIZES)
@pytest.mark.parametrize(
    ("interpolation", "mode", "antialias"),
    [("bilinear", "bilinear", False), ("antialias", "bilinear", True), ("bicubic", "bicubic", True)],
)
def test_weights_are_those_that_torch_interpolates_with(source, target, interpolation, mode, antialias):
    image = np.random.default_rng(0).integers(0, 256, (*source, 3)).astype(np.float64)
    batch = torch.from_numpy(image).permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(batch, target, mode=mode, antialias=antialias, align_corners=False)
    rows, columns = (resize_weights(*sides, interpolation) for sides in zip(source, target, strict=True))
    result = np.einsum("yh,hwc,xw->yxc", rows, image, columns)
    np.testing.assert_allclose(result, expected[0].permute(1, 2, 0).numpy(), atol=1e-9)


@pytest.mark.parametrize(("source", "target"), SIZES)
@pytest.mark.parametrize(
    ("interpolation", "resample"), [("antialias", Image.Resampling.BILINEAR), ("bicubic", Image.Resampling.BICUBIC)]
)
def test_antialias_and_bicubic_are_within_a_level_of_pillow(source, target, interpolation, resample):
    image = np.random.default_rng(1).integers(0, 256, (*source, 3), np.uint8)
    expected = np.asarray(Image.fromarray(image).resize(target[::-1], resample))
    # Pillow limits bicubic to the levels between the directions; the sizes and its version decide which comes first.
    down_first = resize(image, target, interpolation)
    across_first = resize(image.swapaxes(0, 1), target[::-1], interpolation).swapaxes(0, 1)
    assert min(np.abs(np.rint(resized) - expected).max() for resized in (down_first, across_first)) <= 1
