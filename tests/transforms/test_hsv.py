from __future__ import annotations

import colorsys

import numpy as np
import pytest
import torch

from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.step_rows import KEEP, KIND, PARAMETERS
from gpubeton.pipeline import State
from gpubeton.transforms import RandomHSV
from tests.transforms.random_numbers import numbers

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 9, 3), np.uint8)
NHWC = State(True, torch.device("cpu"), (8, 9, 3), np.dtype("uint8"))


def test_pixels_are_those_of_the_color_model():
    change = RandomHSV(0.3, 0.9, 0.8)
    rows, drawn = change.draw(numbers, 20_000, NHWC)[:6], change.drawn(numbers, 20_000, NHWC)
    result = change.apply(IMAGES.copy(), rows)
    for number, image in enumerate(IMAGES):
        turn, saturation, value = (drawn[name][number] for name in ("hue", "saturation", "value"))
        for pixel, output in zip(image.reshape(-1, 3), result[number].reshape(-1, 3), strict=True):
            h, s, v = colorsys.rgb_to_hsv(*(pixel / 255))
            exact = colorsys.hsv_to_rgb((h + turn) % 1, min(saturation * s, 1), min(value * v, 1))
            assert np.abs(255 * np.array(exact) - output).max() <= 0.56


@pytest.mark.parametrize("saturation", [0, ONE - 1, ONE, ONE + 1, ONE + 300, 2 * ONE])
@pytest.mark.parametrize("value", [0, ONE - 1, ONE, ONE + 1, ONE + 300, 2 * ONE])
def test_factors_around_1_limit_levels_as_they_do_one_after_the_other(saturation, value):
    """RGB images have code with and without divisions; those with an opacity have the plain formula."""
    levels = np.array([0, 1, 2, 100, 253, 254, 255], np.uint8)
    opaque = np.stack(np.meshgrid(levels, levels, levels, levels[:1]), axis=-1).reshape(1, 7, 49, 4)
    kinds = {channels: State(True, torch.device("cpu"), (7, 49, channels), np.dtype("uint8")) for channels in (3, 4)}
    results = {}
    for channels, kind in kinds.items():
        change = RandomHSV(0.3, 0.9, 0.8)
        rows = change.draw(numbers, 20_000, kind)[:1]
        rows[0, 0, PARAMETERS : PARAMETERS + 2] = saturation, value
        results[channels] = change.apply(np.ascontiguousarray(opaque[..., :channels]), rows)
    assert np.array_equal(results[3], results[4][..., :3])


def test_changes_are_uniform_and_as_often_as_asked():
    change = RandomHSV(0.1, 0.5, 0.25, p=0.3)
    rows, drawn = change.draw(numbers, 20_000, NHWC), change.drawn(numbers, 20_000, NHWC)
    is_done = rows[:, 0, KIND] != KEEP
    assert abs(is_done.mean() - 0.3) < 0.015
    for name, middle, reach in (("hue", 0, 0.1), ("saturation", 1, 0.5), ("value", 1, 0.25)):
        assert (drawn[name][~is_done] == middle).all()
        assert np.abs(drawn[name] - middle).max() <= reach + 2.0**-16
        parts = np.histogram(drawn[name][is_done], 5, (middle - reach, middle + reach))[0]
        assert parts.min() > 0.18 * is_done.sum()
