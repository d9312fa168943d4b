"""FFCV's module of that name; `ColorJitter` has what these three have, and hue."""

from __future__ import annotations

from gpubeton.transforms.brightness import RandomBrightness
from gpubeton.transforms.contrast import RandomContrast
from gpubeton.transforms.saturation import RandomSaturation

__all__ = ["RandomBrightness", "RandomContrast", "RandomSaturation"]
