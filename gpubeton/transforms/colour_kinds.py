"""Colour kinds: the numbers that name the steps on colours; ``kernels/colour_step.cuh`` has the same."""

from __future__ import annotations

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)

PARAMETER, PIXEL = 4, 5
"""Of a user's pixel operation: a parameter (in place of the factor the bits of a float32), and behind all of its
parameters the operation (the width of the image in pixels, or 0 where the image stays as it is)."""

ONE = 1 << 15
"""The factor 1. With it, 255 times a factor still leaves room in 32 bits for factors up to `MAX_FACTOR`."""

MAX_FACTOR = 256

NEUTRAL = {BRIGHTNESS: ONE, CONTRAST: ONE, SATURATION: ONE, HUE: 0}
"""The factor of each kind that leaves every level as it is."""

RED_WEIGHT, GREEN_WEIGHT, BLUE_WEIGHT, WEIGHTS = 2989, 5870, 1140, 10000
"""Weights of the gray value: FFCV's and torchvision's, which sum to a little less than 1."""
