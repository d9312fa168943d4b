"""What each kind of step makes of an image, in float64 before it is rounded, in the units of who writes a pipeline.

Images are uint8, (H, W, 3). Angles are degrees, clockwise; lengths are pixels; a turn of the hue is a part of a circle.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.reference import color, levels, warp

Fill = tuple[int, int, int]


def brightness(image: np.ndarray, factor: float) -> np.ndarray:
    return color.step(image, color.BRIGHTNESS, factor)


def contrast(image: np.ndarray, factor: float) -> np.ndarray:
    return color.step(image, color.CONTRAST, factor)


def saturation(image: np.ndarray, factor: float) -> np.ndarray:
    return color.step(image, color.SATURATION, factor)


def hue(image: np.ndarray, turn: float) -> np.ndarray:
    return color.step(image, color.HUE, turn)


def solarize(image: np.ndarray, threshold: int) -> np.ndarray:
    return levels.changed(image, levels.SOLARIZE, threshold)


def solarize_add(image: np.ndarray, added: int) -> np.ndarray:
    """Levels below 128 rise, as in timm."""
    return np.where(image < 128, np.minimum(image.astype(np.float64) + added, 255), image)


def posterize(image: np.ndarray, bits: int) -> np.ndarray:
    return levels.changed(image, levels.POSTERIZE, bits)


def invert(image: np.ndarray) -> np.ndarray:
    return levels.changed(image, levels.INVERT, 0)


def autocontrast(image: np.ndarray) -> np.ndarray:
    return levels.changed(image, levels.AUTOCONTRAST, 0)


def equalize(image: np.ndarray) -> np.ndarray:
    return levels.changed(image, levels.EQUALIZE, 0)


def sharpness(image: np.ndarray, factor: float) -> np.ndarray:
    return warp.sharpened(image, factor)


def blur(image: np.ndarray, kernel_size: int, sigma: float) -> np.ndarray:
    return warp.blurred(image, warp.bell(kernel_size, sigma))


def affine(image: np.ndarray, interpolation: str, angle: float, translate: warp.Point, scale: float, shear: warp.Point,
           fill: Fill) -> np.ndarray:  # fmt: skip
    place = warp.matrix(image.shape[:2], angle, translate, scale, shear)
    return warp.warped(image, place, interpolation, fill)


def perspective(image: np.ndarray, interpolation: str, start: warp.Corners, end: warp.Corners,
                fill: Fill) -> np.ndarray:  # fmt: skip
    return warp.warped(image, warp.at_centers(warp.corner_matrix(start, end)), interpolation, fill)


def paint(image: np.ndarray, top: int, left: int, bottom: int, right: int, fill: Fill) -> np.ndarray:
    result = image.astype(np.float64)
    result[top:bottom, left:right] = fill
    return result


def turn(image: np.ndarray, across: bool, down: bool, diagonal: bool) -> np.ndarray:
    result = image.astype(np.float64)[:: -1 if down else 1, :: -1 if across else 1]
    return result.swapaxes(0, 1) if diagonal else result


def shift(image: np.ndarray, down: int, right: int, fill: Fill) -> np.ndarray:
    return warp.warped(image, np.array([[1, 0, -right], [0, 1, -down], [0, 0, 1]]), "nearest", fill)


def hsv(image: np.ndarray, saturation: float, value: float, turn: float) -> np.ndarray:
    """Factors of saturation and value, which end at 1, in HSV's hexagon."""
    red, green, blue = np.moveaxis(image / 255, 2, 0)
    most, least = np.maximum(np.maximum(red, green), blue), np.minimum(np.minimum(red, green), blue)
    chroma = np.where(most > least, most - least, 1)
    place = np.where(most == green, 2 + (blue - red) / chroma, 4 + (red - green) / chroma)
    place = np.where(most == red, (green - blue) / chroma, place) + 6 * turn
    of_value = np.minimum(value * most, 1)
    of_chroma = of_value * np.minimum(saturation * (most - least) / np.where(most > 0, most, 1), 1)
    # Each channel is the value less a share of the chroma: a trapezium over the hexagon.
    parts = [(at + place) % 6 for at in (5, 3, 1)]
    lost = np.stack([np.clip(np.minimum(part, 4 - part), 0, 1) for part in parts], axis=-1)
    return 255 * (of_value[..., None] - of_chroma[..., None] * lost)


def mixture(image: np.ndarray, weight: float) -> np.ndarray:
    """The image and its mirror image, whose share is the weight."""
    return (1 - weight) * image + weight * image[:, ::-1]


#: Whose levels are rounded down; those of the others, to the nearest.
ROUNDED_DOWN = brightness, contrast, saturation, hue, autocontrast, sharpness


def whole(change: Callable[..., np.ndarray], exact: np.ndarray) -> np.ndarray:
    """Round the levels of a change as its step does."""
    return np.floor(exact + (color.NEARLY if change in ROUNDED_DOWN else 0.5)).clip(0, 255).astype(np.uint8)
