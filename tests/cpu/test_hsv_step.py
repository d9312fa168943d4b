"""The HSV step: to the bit its formula, and near exact colors."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest

from gpubeton._batch.step_rows import HSV
from tests.cpu.carried_out import KINDS, carried_out, noise, row_of, size_of
from tests.reference.exact_steps import hsv

ONE = 1 << 15


def drawn(random):
    """Factors of saturation and value, and a turn: one in three at a bound."""
    factors = np.where(
        random.random(2) < 0.3, random.choice([0, 1, ONE, 2 * ONE - 1, 2 * ONE], 2), random.integers(0, 2 * ONE + 1, 2)
    )
    turn = random.integers(-2 * ONE, 2 * ONE) if random.random() < 0.7 else random.choice([0, 1, -1, ONE, -ONE])
    return [*factors.tolist(), int(turn)]


@pytest.mark.parametrize("kind", KINDS)
def test_hsv_equals_the_formula(kind):
    random = np.random.default_rng(0)
    for number in range(96 if kind == "rgb" else 24):
        image, _ = noise(random, *size_of(random, number), kind)
        if number % 3 == 0:
            image[..., random.integers(image.shape[2])] //= 50
        parameters = drawn(random)
        assert np.array_equal(carried_out(image, row_of(HSV, *parameters)), hsv(image, *parameters)), parameters


def test_every_pair_of_largest_level_and_chroma_equals_the_formula():
    largest, least = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        image = np.stack([largest, least, (largest & 7) * 32], axis=2)[..., order]
        for parameters in ((2 * ONE, 2 * ONE, 1234), (65000, 20000, -9), (ONE, 2 * ONE, ONE // 2), (0, 50000, 77)):
            assert np.array_equal(carried_out(image, row_of(HSV, *parameters)), hsv(image, *parameters))


@pytest.mark.parametrize("kind", KINDS)
def test_factors_of_one_change_nothing(kind):
    image, _ = noise(np.random.default_rng(0), 37, 50, kind)
    assert np.array_equal(carried_out(image, row_of(HSV, ONE, ONE, 0)), image)
    assert np.array_equal(carried_out(image, row_of(HSV, ONE, ONE, 3 * ONE)), image)


def test_opacity_stays_and_gray_images_have_a_value_only():
    random = np.random.default_rng(0)
    rgba, gray = noise(random, 9, 9, "rgba")[0], noise(random, 9, 9, "gray")[0]
    assert np.array_equal(carried_out(rgba, row_of(HSV, 9000, 9000, 900))[..., 3], rgba[..., 3])
    brighter = carried_out(gray, row_of(HSV, 9000, 40000, 900))
    assert np.array_equal(brighter, np.minimum((gray * 40000.0 / ONE + 0.5).astype(int), 255))


def exact(pixels, saturation, value, turn):
    """Colors in float64, before they are rounded."""
    changed = []
    for pixel in pixels.tolist():
        h, s, v = colorsys.rgb_to_hsv(*(level / 255 for level in pixel))
        changed.append(colorsys.hsv_to_rgb((h + turn) % 1, min(s * saturation, 1), min(v * value, 1)))
    return 255 * np.array(changed)


def like_opencv(pixels, saturation, value, turn):
    """Colors by way of HSV in 8 bits, hues of two degrees, and tables for each, as detectors change them."""
    changed = []
    for pixel in pixels.tolist():
        h, s, v = colorsys.rgb_to_hsv(*(level / 255 for level in pixel))
        h, s, v = round(h * 180) % 180, round(s * 255), round(v * 255)
        h, s, v = int((h + turn * 180) % 180), min(int(s * saturation), 255), min(int(v * value), 255)
        changed.append([round(255 * level) for level in colorsys.hsv_to_rgb(h / 180, s / 255, v / 255)])
    return np.array(changed)


@pytest.mark.parametrize("seed", range(8))
def test_colors_are_the_exact_ones_and_near_those_of_opencv(seed):
    random = np.random.default_rng(seed)
    image, _ = noise(random, 40, 50, "rgb")
    parameters = [random.uniform(0.3, 1.7), random.uniform(0.6, 1.4), random.uniform(-0.1, 0.1)]
    row = np.rint(np.multiply(parameters, ONE)).astype(int)
    result = carried_out(image, row_of(HSV, *row)).reshape(-1, 3)
    pixels = image.reshape(-1, 3)
    away = np.abs(result - exact(pixels, *parameters))
    assert away.max() < 0.55
    assert away.mean() < 0.3
    assert np.abs(result - like_opencv(pixels, *parameters)).mean() < 2.5
