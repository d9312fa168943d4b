"""Pixel operations for tests: both halves, and the same in float64."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpubeton.transforms import PixelOperation


class Case(NamedTuple):
    """An operation, and ``reference(levels, parameters)`` for one image, float64 (H, W, 3), not yet rounded."""

    make: object
    reference: object


def sepia(r, g, b, share):
    gray = np.float32(0.25) * r + np.float32(0.5) * g + np.float32(0.25) * b
    rest = np.float32(1) - share
    return (
        rest * r + share * gray * np.float32(1.25),
        rest * g + share * gray,
        rest * b + share * gray * np.float32(0.75),
    )


SEPIA = """
    float gray = 0.25f * r + 0.5f * g + 0.25f * b, rest = 1.0f - share;
    r = rest * r + share * gray * 1.25f;
    g = rest * g + share * gray;
    b = rest * b + share * gray * 0.75f;
"""


def sepia_reference(levels, parameters):
    (share,) = parameters
    gray = levels @ [0.25, 0.5, 0.25]
    return (1 - share) * levels + share * gray[..., None] * [1.25, 1, 0.75]


def ramp(r, g, b, x, dark, height, bright, y, width):
    """The arguments in an order of their own; the red and the green exchanged on every other row."""
    light = dark + (bright - dark) * (x + width * y) / (width * height)
    if y % np.float32(2) == np.float32(1):
        return g * light, r * light, b
    return r * light, g * light, b


RAMP = """
    float light = dark + (bright - dark) * (x + width * y) / (width * height);
    r *= light;
    g *= light;
    if (fmodf(y, 2.0f) == 1.0f) { float old = r; r = g; g = old; }
"""


def ramp_reference(levels, parameters):
    dark, bright = parameters
    height, width = levels.shape[:2]
    made = levels.copy()
    light = dark + (bright - dark) * np.arange(height * width).reshape(height, width) / (width * height)
    made[..., :2] *= light[..., None]
    made[1::2, :, :2] = made[1::2, :, 1::-1]
    return made


def threshold(r, g, b):
    """Leaves the levels' range on both sides, and is no number for black."""
    return (r - np.float32(128)) * np.float32(3), g / g * np.float32(77), b + np.float32(300)


THRESHOLD = "r = (r - 128.0f) * 3.0f; g = g / g * 77.0f; b += 300.0f;"


def threshold_reference(levels, parameters):
    red, green = (levels[..., 0] - 128) * 3, np.where(levels[..., 1] > 0, 77, 0)
    return np.stack([red, green, np.full(red.shape, 555)], axis=-1)


CASES = {
    "one parameter": Case(
        lambda **more: PixelOperation(SEPIA, sepia, {"share": (0, 1)}, **more),
        sepia_reference,
    ),
    "position": Case(
        lambda **more: PixelOperation(
            RAMP, ramp, ["dark", "bright"], lambda numbers: np.sort(numbers[:, :2]) * [1, 2], numbers=3, **more
        ),
        ramp_reference,
    ),
    "out of range": Case(lambda **more: PixelOperation(THRESHOLD, threshold, **more), threshold_reference),
}


def parameters_of(steps):
    """The parameters in the row of an image."""
    return np.ascontiguousarray(steps[1:-1:2]).view(np.float32).astype(np.float64)


def referred(case, image, steps):
    """What becomes of an image in float64, cut off, and not rounded."""
    if steps[-1] == 0:
        return image.astype(np.float64)
    with np.errstate(all="raise"):
        return np.clip(case.reference(image.astype(np.float64), parameters_of(steps)), 0, 255)
