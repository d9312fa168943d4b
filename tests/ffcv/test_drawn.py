"""Random draws differ from FFCV's, as they depend on the seed here; the results for a given draw do not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ffcv.package import HEIGHT, SAMPLES, WIDTH, Samples
from tests.ffcv.results import golden, of_case, ours

GRAY = np.array([0.2989, 0.587, 0.114])
IMAGES = np.stack([Samples()[number][0] for number in range(SAMPLES)])
LABELS = np.array([Samples()[number][1] for number in range(SAMPLES)])


@pytest.fixture(params=["ffcv", "gpubeton"])
def results(request, surface_file):
    """Gives the arrays of a case."""
    return lambda name: of_case(golden() if request.param == "ffcv" else ours(surface_file, name), name)


def test_flips_are_of_whole_images(results):
    for image, result in zip(IMAGES, np.concatenate(results("flip_some")), strict=True):
        assert (result == image).all() or (result == image[:, ::-1]).all()


def test_a_cutout_fills_a_square_and_leaves_the_rest(results):
    for image, result in zip(IMAGES, np.concatenate(results("cutout")), strict=True):
        (rows,) = np.nonzero((result == (9, 8, 7)).all(axis=(1, 2)))
        assert rows.tolist() == list(range(rows[0], rows[0] + WIDTH))
        unpainted = np.setdiff1d(np.arange(HEIGHT), rows)
        assert (result[unpainted] == image[unpainted]).all()


@pytest.mark.parametrize(
    ("name", "colour"), [("cutout_fraction", (1, 125, 3)), ("cutout_floats", np.float32([1.5, 125.9, 3.2]))]
)
def test_levels_drop_the_fraction_of_a_fill_and_floats_keep_it(results, name, colour):
    for image, result in zip(IMAGES, np.concatenate(results(name)), strict=True):
        painted = (result == colour).all(axis=(1, 2))
        assert painted.sum() == WIDTH
        assert (result[~painted] == image[~painted]).all()


def test_a_translated_image_is_a_window_of_the_padded_one(results):
    for image, result in zip(IMAGES, np.concatenate(results("translate")), strict=True):
        padded = np.empty((HEIGHT + 6, WIDTH + 6, 3), np.uint8)
        padded[:] = (1, 2, 3)
        padded[3:-3, 3:-3] = image
        windows = [padded[y : y + HEIGHT, x : x + WIDTH] for y in range(7) for x in range(7)]
        assert any((window == result).all() for window in windows)


def blended_from(kind, image):
    """What an image is blended with; float64, broadcast against the image."""
    gray = image @ GRAY
    return {"brightness": np.zeros(1), "contrast": gray.mean(), "saturation": gray[..., None]}[kind]


@pytest.mark.parametrize(("kind", "magnitude"), [("brightness", 0.8), ("contrast", 0.8), ("saturation", 0.8)])
def test_a_change_of_colours_is_a_blend_with_one_factor(results, kind, magnitude):
    factors = []
    for image, result in zip(IMAGES.astype(np.float64), np.concatenate(results(kind)), strict=True):
        other = np.broadcast_to(blended_from(kind, image), image.shape)
        clear = (np.abs(image - other) > 40) & (result > 0) & (result < 255)
        factor = np.median((result + 0.25 - other)[clear] / (image - other)[clear])
        assert 1 - magnitude - 0.02 <= factor <= 1 + magnitude + 0.02
        blend = np.clip(factor * image + (1 - factor) * other, 0, 255)
        # Half a level of rounding or a whole one of cutting off, and what the estimate of the factor is off by.
        assert np.abs(blend - result).max() <= 2.5
        factors.append(factor)
    assert np.std(factors) > 0.1  # one for each image


@pytest.mark.parametrize("name", ["brightness_floats", "contrast_floats", "saturation_doubles"])
def test_a_change_of_floating_point_colours_is_the_blend_and_not_rounded(results, name):
    kind = name.partition("_")[0]
    arrays = np.concatenate(results(name)).transpose(0, 2, 3, 1)
    # A value is off by a few roundings; a mean summed in float32, as FFCV's is, by as many as there are pixels.
    roundings = HEIGHT * WIDTH if kind == "contrast" else 8
    tolerance = 1.8 * 255 * roundings * np.finfo(arrays.dtype).eps
    factors = []
    for image, result in zip(IMAGES.astype(np.float64), arrays.astype(np.float64), strict=True):
        other = np.broadcast_to(blended_from(kind, image), image.shape)
        inside = (np.abs(image - other) > 40) & (result > 0) & (result < 255)
        estimates = (result - other)[inside] / (image - other)[inside]
        assert np.ptp(estimates) <= tolerance / 20
        factor = np.median(estimates)
        assert 0.2 <= factor <= 1.8
        blend = np.clip(factor * image + (1 - factor) * other, 0, 255)
        assert np.abs(blend - result).max() <= 8 * tolerance  # the factor's error, times at most 255 / 40
        factors.append(factor)
    assert np.std(factors) > 0.1  # one for each image


def test_brightness_is_changed_with_its_probability(results):
    changed = [
        (result != image).any()
        for image, result in zip(IMAGES, np.concatenate(results("brightness_some")), strict=True)
    ]
    assert 0 < sum(changed) < SAMPLES


def test_images_and_labels_are_mixed_with_the_one_before_and_the_same_share(results):
    # Three batches of images, labels, vectors, with one share a batch; then with a share for each image.
    outputs = results("mixup")
    for start in range(0, len(outputs), 3):
        first = start // 3 % 3 * 5
        images, labels, vectors = outputs[start : start + 3]
        rows = np.arange(first, first + len(images))
        before = np.roll(rows, 1)
        assert (labels[:, 0] == LABELS[rows]).all()
        assert (labels[:, 1] == LABELS[before]).all()
        share = labels[:, 2].astype(np.float64)
        if start < 9:
            assert np.ptp(share) == 0
        mixed = share[:, None, None, None] * IMAGES[rows] + (1 - share)[:, None, None, None] * IMAGES[before]
        assert np.abs(mixed - images).max() <= 1.01
        assert vectors.sum(axis=1) == pytest.approx(1, abs=1e-5)
        assert vectors[np.arange(len(rows)), LABELS[rows]] == pytest.approx(
            np.where(LABELS[rows] == LABELS[before], 1, share), abs=1e-5
        )
