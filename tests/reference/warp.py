"""Blurred, sharpened and warped images in float64 before rounding, by the definitions.

From ``torchvision/transforms/v2/functional``: gaussian_blur_image, adjust_sharpness_image, and affine_image, whose
matrix is made here as the product that its comment names.
"""

from __future__ import annotations

import numpy as np


def blurred(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Each pixel the weighted mean of those around it, mirrored at the border; weights (K,) sum to 1."""
    reach = len(weights) // 2
    padded = np.pad(image.astype(np.float64), ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (len(weights), len(weights)), axis=(0, 1))
    return np.einsum("hwcyx,y,x->hwc", windows, weights, weights)


def bell(size: int, sigma: float) -> np.ndarray:
    """A Gaussian at whole distances from the middle, of sum 1."""
    height = np.exp(-((np.arange(size) - size // 2) ** 2) / (2 * sigma**2))
    return height / height.sum()


def sharpened(image: np.ndarray, factor: float) -> np.ndarray:
    """``factor * level + (1 - factor) * mean``, the mean rounded; the border stays. To be rounded down."""
    levels = image.astype(np.float64)
    result = levels.copy()
    kernel = np.ones((3, 3))
    kernel[1, 1] = 5
    for y in range(1, len(image) - 1):
        for x in range(1, image.shape[1] - 1):
            mean = np.rint(np.tensordot(kernel, levels[y - 1 : y + 2, x - 1 : x + 2], 2) / 13)
            result[y, x] = np.clip(factor * levels[y, x] + (1 - factor) * mean, 0, 255)
    return result


def matrix(size, angle=0.0, translate=(0.0, 0.0), scale=1.0, shear=(0.0, 0.0), center=(0.0, 0.0)) -> np.ndarray:
    """Where a pixel of the result is read, (3, 3): the inverse of shift, turn, scale and shear around the center."""
    turn, shear_x, shear_y = np.radians([angle, *shear])
    around = _shift((size[1] - 1) / 2 + center[0], (size[0] - 1) / 2 + center[1])
    turned = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
    along_y = np.array([[1, 0, 0], [-np.tan(shear_y), 1, 0], [0, 0, 1]])
    along_x = np.array([[1, -np.tan(shear_x), 0], [0, 1, 0], [0, 0, 1]])
    forward = _shift(*translate) @ around @ turned @ np.diag([scale, scale, 1]) @ along_y @ along_x
    return np.linalg.inv(forward @ np.linalg.inv(around))


def warped(image: np.ndarray, place: np.ndarray, interpolation: str, fill) -> np.ndarray:
    """The image read at ``place @ (x, y, 1)``."""
    height, width = image.shape[:2]

    def at(column: int, row: int) -> np.ndarray:
        inside = 0 <= column < width and 0 <= row < height
        return (image[row, column] if inside else np.array(fill)).astype(np.float64)

    result = np.empty(image.shape)
    for y, x in np.ndindex(height, width):
        u, v, _ = place @ [x, y, 1]
        if interpolation == "nearest":
            result[y, x] = at(int(np.floor(u + 0.5)), int(np.floor(v + 0.5)))
            continue
        left, top = int(np.floor(u)), int(np.floor(v))
        upper = (left + 1 - u) * at(left, top) + (u - left) * at(left + 1, top)
        lower = (left + 1 - u) * at(left, top + 1) + (u - left) * at(left + 1, top + 1)
        result[y, x] = (top + 1 - v) * upper + (v - top) * lower
    return result


def _shift(right: float, down: float) -> np.ndarray:
    return np.array([[1, 0, right], [0, 1, down], [0, 0, 1.0]])
