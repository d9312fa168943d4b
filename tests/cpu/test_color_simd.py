"""Steps in the pass: to the bit those of the formulas, for every level and color and many factors."""

from __future__ import annotations

import numpy as np
import pytest

from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.step_rows import BRIGHTNESS, CONTRAST, HUE, SATURATION
from tests.cpu.changed_colors import changed, changed_by_lines

GRAYS = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(1, 256, 3)
COLORS = np.concatenate([np.random.default_rng(1).integers(0, 256, (511, 256, 3), np.uint8), GRAYS])
#: Up to the largest of vectors, 2 * ONE - 1, and beyond.
FACTORS = [
    0,
    1,
    ONE // 2 - 1,
    ONE // 2,
    ONE - 1,
    ONE,
    ONE + 1,
    3 * ONE // 2 - 1,
    45678,
    *range(2 * ONE - 2, 2 * ONE + 2),
]
TURNS = [-ONE // 2, -12345, -1, 0, 1, 5461, ONE // 3, ONE // 2]


def all_colors():
    """Every color there is, in a random order, and its gray value by whole numbers without limit."""
    order = np.random.default_rng(0).permutation(1 << 24).reshape(4096, 4096)
    pixels = np.stack([order >> 16, order >> 8 & 255, order & 255], axis=-1)
    return pixels.astype(np.uint8), pixels @ np.array([2989, 5870, 1140]) // 10000


def test_every_color_has_its_gray_value_and_a_contrast_of_zero_is_the_mean_of_them():
    pixels, gray = all_colors()
    assert (changed(pixels, [SATURATION, 0]) == gray[..., None]).all()
    assert (changed(pixels, [CONTRAST, 0]) == gray.sum() // gray.size).all()


def test_the_brightest_pixels_have_a_mean_without_overflow():
    assert (changed(np.full((1000, 999, 3), 255, np.uint8), [CONTRAST, 0]) == 254).all()


@pytest.mark.parametrize(
    ("kind", "factor"),
    [(kind, factor) for kind in (BRIGHTNESS, CONTRAST, SATURATION) for factor in FACTORS]
    + [(HUE, turn) for turn in TURNS],
)
def test_a_step_is_the_formulas(kind, factor):
    assert np.array_equal(changed(COLORS, [kind, factor]), changed_by_lines(COLORS, [kind, factor]))


@pytest.mark.parametrize("factor", FACTORS)
def test_every_level_moves_from_every_mean(factor):
    for level in range(0, 256, 15):
        image = np.concatenate([GRAYS, np.full((9, 256, 3), level, np.uint8)])
        assert np.array_equal(changed(image, [CONTRAST, factor]), changed_by_lines(image, [CONTRAST, factor])), level


def test_the_hue_turns_by_all_drawn_angles():
    for turn in np.random.default_rng(2).integers(-ONE // 2, ONE // 2, 40):
        assert np.array_equal(changed(COLORS, [HUE, turn]), changed_by_lines(COLORS, [HUE, turn])), turn
