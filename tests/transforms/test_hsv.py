from __future__ import annotations

import colorsys

import numpy as np
import torch

from gpubeton._batch.step_rows import KEEP, KIND
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
