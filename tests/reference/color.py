"""What torchvision's uint8 arithmetic makes of colors, in float64 and before the last rounding down.

From ``torchvision/transforms/v2/functional/_color.py``: adjust_brightness, adjust_contrast, adjust_saturation and
adjust_hue. FFCV's RandomBrightness, RandomContrast and RandomSaturation compute the same.
"""

from __future__ import annotations

import colorsys

import numpy as np

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
#: The factor 1.
ONE = 1 << 15
MAX_FACTOR = 256
#: The factor of each kind that leaves every level as it is.
NEUTRAL = {BRIGHTNESS: ONE, CONTRAST: ONE, SATURATION: ONE, HUE: 0}
#: float64 cannot hold 0.2989, 0.587 and 0.114; their sums over levels, multiples of 0.0001, come out this close.
NEARLY = 1e-9


def gray(image: np.ndarray) -> np.ndarray:
    """Gray values, rounded down, of an image of shape (H, W, 3)."""
    return np.floor(image.astype(np.float64) @ [0.2989, 0.587, 0.114] + NEARLY)


def step(image: np.ndarray, kind: int, factor: float) -> np.ndarray:
    """One step on an image.

    Parameters
    ----------
    image : ndarray of uint8, shape (H, W, 3)
        Levels.
    kind : int
        BRIGHTNESS, CONTRAST, SATURATION or HUE.
    factor : float
        1 (for HUE: 0) changes nothing.

    Returns
    -------
    ndarray of float64, shape (H, W, 3)
        From 0 to 255; a level is this, rounded down.
    """
    levels = image.astype(np.float64)
    if kind == BRIGHTNESS:
        changed = factor * levels
    elif kind == CONTRAST:
        changed = factor * levels + (1 - factor) * gray(image).mean()
    elif kind == SATURATION:
        changed = factor * levels + (1 - factor) * gray(image)[..., None]
    else:
        assert kind == HUE
        pixels, back = np.unique(image.reshape(-1, 3), axis=0, return_inverse=True)
        turned = np.array([_turned(pixel, factor) for pixel in pixels.tolist()])
        changed = (turned * 255.999)[back.reshape(-1)].reshape(image.shape)
    return np.clip(changed, 0, 255.999)


def steps(image: np.ndarray, row: np.ndarray) -> np.ndarray:
    """All steps of a row, kinds and factors in units of 2**-15, on one image; each result rounded down."""
    for kind, factor in row.reshape(-1, 2).tolist():
        image = np.floor(np.minimum(step(image, kind, factor / ONE) + NEARLY, 255)).astype(np.uint8)
    return image


def _turned(pixel: list[int], factor: float) -> tuple[float, float, float]:
    hue, saturation, value = colorsys.rgb_to_hsv(*(level / 255 for level in pixel))
    return colorsys.hsv_to_rgb((hue + factor) % 1.0, saturation, value)
