"""Blurred, sharpened and warped images in float64 before rounding, by the definitions.

From ``torchvision/transforms/v2/functional``: gaussian_blur_image, adjust_sharpness_image, and affine_image, whose
matrix is made here as the product that its comment names.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Point = tuple[float, float]
Corners = Sequence[Point]


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
    if min(levels.shape[:2]) < 3:
        return levels
    kernel = np.ones((3, 3))
    kernel[1, 1] = 5
    windows = np.lib.stride_tricks.sliding_window_view(levels, (3, 3), axis=(0, 1))
    means = np.rint(np.einsum("hwcyx,yx->hwc", windows, kernel) / 13)
    result = levels.copy()
    result[1:-1, 1:-1] = np.clip(factor * levels[1:-1, 1:-1] + (1 - factor) * means, 0, 255)
    return result


def matrix(
    size: tuple[int, int],
    angle: float = 0.0,
    translate: Point = (0.0, 0.0),
    scale: float = 1.0,
    shear: Point = (0.0, 0.0),
    center: Point = (0.0, 0.0),
) -> np.ndarray:
    """Where a pixel of the result is read, (3, 3): the inverse of shift, turn, scale and shear around the center."""
    turn, shear_x, shear_y = np.radians([angle, *shear])
    around = _shift((size[1] - 1) / 2 + center[0], (size[0] - 1) / 2 + center[1])
    turned = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
    along_y = np.array([[1, 0, 0], [-np.tan(shear_y), 1, 0], [0, 0, 1]])
    along_x = np.array([[1, -np.tan(shear_x), 0], [0, 1, 0], [0, 0, 1]])
    forward = _shift(*translate) @ around @ turned @ np.diag([scale, scale, 1]) @ along_y @ along_x
    return np.linalg.inv(forward @ np.linalg.inv(around))


def corner_matrix(start: Corners, end: Corners) -> np.ndarray:
    """Where a point is read, (3, 3): four points (x, y) at `end` come from `start`."""
    rows, values = [], []
    for (x, y), (u, v) in zip(end, start, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return np.append(np.linalg.solve(np.array(rows, np.float64), np.array(values, np.float64)), 1).reshape(3, 3)


def between_pixels(matrix: np.ndarray) -> np.ndarray:
    """The same map of points whose pixels have their corners, and not their centers, at whole numbers."""
    return _shift(0.5, 0.5) @ matrix @ _shift(-0.5, -0.5)


def at_centers(matrix: np.ndarray) -> np.ndarray:
    """And back."""
    return _shift(-0.5, -0.5) @ matrix @ _shift(0.5, 0.5)


def warped(image: np.ndarray, place: np.ndarray, interpolation: str, fill: Sequence[float]) -> np.ndarray:
    """The image read at ``place @ (x, y, 1)``, divided by the third; outside where that is not positive."""
    height, width = image.shape[:2]
    y, x = np.mgrid[:height, :width]
    u, v, divisor = np.moveaxis(np.stack([x, y, np.ones_like(x)], axis=-1) @ place.T, 2, 0)
    seen = divisor > 0
    # What lies in the middle of two pixels does so to some 2**-40 of a pixel; numbers of steps have 2**-32.
    u, v = (np.where(seen, place / np.where(seen, divisor, 1), -2).round(11) for place in (u, v))

    def at(column: np.ndarray, row: np.ndarray) -> np.ndarray:
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        row, column = (np.where(inside, place, 0).astype(int) for place in (row, column))
        return np.where(inside[..., None], image[row, column].astype(np.float64), fill)

    if interpolation == "nearest":
        return at(np.floor(u + 0.5), np.floor(v + 0.5))
    left, top = np.floor(u), np.floor(v)
    across, down = (u - left)[..., None], (v - top)[..., None]
    upper = (1 - across) * at(left, top) + across * at(left + 1, top)
    lower = (1 - across) * at(left, top + 1) + across * at(left + 1, top + 1)
    return (1 - down) * upper + down * lower


def _shift(right: float, down: float) -> np.ndarray:
    return np.array([[1, 0, right], [0, 1, down], [0, 0, 1.0]])
