"""New levels, one at a time, by the definitions, in float64 and before the last rounding down.

From ``torchvision/transforms/v2/functional/_color.py`` (solarize, posterize, invert, autocontrast) and
``PIL/ImageOps.py`` (equalize).
"""

from __future__ import annotations

import numpy as np

KEEP, SOLARIZE, POSTERIZE, INVERT, AUTOCONTRAST, EQUALIZE = range(6)


def changed(image: np.ndarray, kind: int, parameter: int) -> np.ndarray:
    """One image of shape (H, W, 3), float64; a level is this, rounded down."""
    levels = image.astype(np.float64)
    if kind == KEEP:
        return levels
    if kind == SOLARIZE:
        return np.where(levels >= parameter, 255 - levels, levels)
    if kind == POSTERIZE:
        step = 2.0 ** (8 - parameter)
        return np.floor(levels / step) * step
    if kind == INVERT:
        return 255 - levels
    results = [stretched(levels[..., c]) if kind == AUTOCONTRAST else equalized(levels[..., c]) for c in range(3)]
    assert kind in {AUTOCONTRAST, EQUALIZE}
    return np.stack(results, axis=-1)


def stretched(channel: np.ndarray) -> np.ndarray:
    """From 0 to 255."""
    least, most = channel.min(), channel.max()
    return channel if least == most else (channel - least) * 255 / (most - least)


def equalized(channel: np.ndarray) -> np.ndarray:
    """A level becomes the number of steps in all pixels below it, half a step more; all but the lightest have 255."""
    step = (channel != channel.max()).sum() // 255
    if step == 0:
        return channel
    below = np.array([(channel < level).sum() for level in range(256)])
    return np.minimum((below + step // 2) // step, 255)[channel.astype(int)].astype(np.float64)
