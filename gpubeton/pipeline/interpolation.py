"""The interpolations: how a crop of an image is resized."""

from __future__ import annotations

from typing import Literal

Interpolation = Literal["area", "bilinear", "antialias", "bicubic", "nearest"]
"""Their names, for type checkers."""

INTERPOLATIONS: dict[Interpolation, int] = {"bilinear": 0, "area": 1, "antialias": 2, "nearest": 4, "bicubic": 5}
"""Name of each interpolation, and its number in compiled code; `_cpu.taps` and ``kernels/taps.cuh`` compute it.

``area`` is OpenCV's INTER_AREA, which FFCV uses: the mean over each output pixel's footprint when shrinking along both
axes, else its own two-tap rule. ``bilinear`` is torch's ``interpolate(align_corners=False)``. ``antialias`` is
torchvision's and Pillow's bilinear, a triangle as wide as the footprint. ``bicubic`` is their BICUBIC, a cubic with
a = -0.5, twice as wide. ``nearest`` is the pixel in which the output pixel's center lies, as torchvision's and Pillow's
NEAREST: for masks, since every value of the result is in the image.
"""

AREA_ENLARGING = 3
"""Number of the rule that replaces ``area`` where a side is enlarged."""


def filter_radius(rule: int) -> int:
    """Return the source pixels on each side of an output pixel's center that it may depend on if nothing shrinks."""
    return 2 if rule == INTERPOLATIONS["bicubic"] else 1
