"""What steps make of an image, in plain int64: the bits that every executor makes. Kinds are those of step rows."""

from __future__ import annotations

import numpy as np

from gpubeton._batch import step_rows as kinds
from tests.reference.color import ONE
from tests.reference.levels import equalized, stretched


def step(image: np.ndarray, kind: int, *parameters: int) -> np.ndarray:
    """One step on an image, (H, W, C) uint8 with 1, 3 or 4 channels; the fourth is opacity, and stays."""
    levels = image[..., :3].astype(np.int64)
    changed = CHANGES[kind](levels, *parameters)
    return np.concatenate([changed.clip(0, 255).astype(np.uint8), image[..., 3:]], axis=-1)


def brightness(levels: np.ndarray, factor: int) -> np.ndarray:
    return (factor * levels) >> 15


def contrast(levels: np.ndarray, factor: int) -> np.ndarray:
    gray = gray_of(levels)
    return (factor * levels + (ONE - factor) * gray.sum() // gray.size) >> 15


def saturation(levels: np.ndarray, factor: int) -> np.ndarray:
    return (factor * levels + (ONE - factor) * gray_of(levels)[..., None]) >> 15


def hue(levels: np.ndarray, factor: int) -> np.ndarray:
    """A position on a hexagon with sides as long as the largest channel is away from the least."""
    if levels.shape[2] == 1 or factor == 0:
        return levels
    red, green, blue = np.moveaxis(levels, 2, 0)
    most, least = levels.max(axis=2), levels.min(axis=2)
    chroma = most - least
    corner = np.where(most == green, 2 * chroma + blue - red, 4 * chroma + red - green)
    corner = np.where(most == red, green - blue, corner)
    side = chroma * ONE
    place = (corner * ONE + 6 * factor * chroma) % np.maximum(6 * side, 1)
    heights = abs(place - 3 * side) - side, 2 * side - abs(place - 2 * side), 2 * side - abs(place - 4 * side)
    exact = np.stack([least * ONE + height.clip(0, side) for height in heights], axis=2)
    return (exact + (((exact >> 7) * 32864) >> 16)) >> 15


def gray_of(levels: np.ndarray) -> np.ndarray:
    return levels[..., 0] if levels.shape[2] == 1 else levels @ [2989, 5870, 1140] // 10_000


def solarized(levels: np.ndarray, threshold: int) -> np.ndarray:
    return np.where(levels >= threshold, 255 - levels, levels)


def brightened_below_the_middle(levels: np.ndarray, added: int) -> np.ndarray:
    return np.where(levels < 128, levels + added, levels)


def posterized(levels: np.ndarray, bits: int) -> np.ndarray:
    return levels >> (8 - bits) << (8 - bits)


def inverted(levels: np.ndarray) -> np.ndarray:
    return 255 - levels


def by_channels(change):
    """A change of each channel by itself, rounded down."""
    return lambda levels: np.floor(np.stack([change(channel) for channel in np.moveaxis(levels, 2, 0)], 2)).astype(int)


def sharpened(levels: np.ndarray, factor: int) -> np.ndarray:
    """The border stays."""
    changed = levels.copy()
    if min(levels.shape[:2]) > 2:
        middle = levels[1:-1, 1:-1]
        around = np.lib.stride_tricks.sliding_window_view(levels, (3, 3), axis=(0, 1)).sum((3, 4)) + 4 * middle
        mean = (2 * around + 13) // 26
        changed[1:-1, 1:-1] = (middle * ONE + (ONE - factor) * (mean - middle)) >> 15
    return changed


def blurred(levels: np.ndarray, reach: int, *weights: int) -> np.ndarray:
    """Rows to units of 2**-7, then columns."""
    both_sides = np.array([*weights[:0:-1], *weights])
    for axis, shift in ((1, 8), (0, 22)):
        pad = [(reach * (a == axis),) * 2 for a in range(3)]
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(levels, pad, "reflect"), 2 * reach + 1, axis)
        levels = (windows @ both_sides + (1 << (shift - 1))) >> shift
    return levels


CHANGES = {
    kinds.BRIGHTNESS: brightness,
    kinds.CONTRAST: contrast,
    kinds.SATURATION: saturation,
    kinds.HUE: hue,
    kinds.SOLARIZE: solarized,
    kinds.SOLARIZE_ADD: brightened_below_the_middle,
    kinds.POSTERIZE: posterized,
    kinds.INVERT: inverted,
    kinds.AUTOCONTRAST: by_channels(stretched),
    kinds.EQUALIZE: by_channels(equalized),
    kinds.SHARPNESS: sharpened,
    kinds.BLUR: blurred,
}
