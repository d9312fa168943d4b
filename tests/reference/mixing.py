"""What mixup and cutmix make of images and labels, in float64 and before levels are rounded down.

Partners and formulas of FFCV's ``mixup.py`` and of torchvision's ``transforms/v2/_augment.py``: ``roll(1)`` of the
batch, ``lam * own + (1 - lam) * other``, and for cutmix a box of the other.
"""

from __future__ import annotations

import math

import numpy as np

#: Columns of the draw of a mix.
PARTNER, WEIGHT, TOP, LEFT, BOTTOM, RIGHT = range(6)


def mixup(images: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Images (N, H, W, 3) with the share of each one's own, (N,)."""
    share = share[:, None, None, None]
    return share * images + (1 - share) * np.roll(images, 1, axis=0)


def cutmix(images: np.ndarray, boxes: list[tuple[int, int, int, int]]) -> np.ndarray:
    """Images (N, H, W, 3) with boxes (top, left, bottom, right) of the one before."""
    mixed, other = images.copy(), np.roll(images, 1, axis=0)
    for image, pasted, (top, left, bottom, right) in zip(mixed, other, boxes, strict=True):
        image[top:bottom, left:right] = pasted[top:bottom, left:right]
    return mixed


def cutmix_box(lam: float, row: int, column: int, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The box around a pixel, before the image's own share is corrected for what the border cuts off."""
    height, width = size
    half = 0.5 * math.sqrt(1 - lam)
    down, across = int(half * height), int(half * width)
    return max(row - down, 0), max(column - across, 0), min(row + down, height), min(column + across, width)


def one_hot(labels: np.ndarray, share: np.ndarray, num_classes: int) -> np.ndarray:
    """Labels (N,) and shares (N,) as vectors (N, num_classes)."""
    encoded = np.eye(num_classes)[labels]
    return share[:, None] * encoded + (1 - share[:, None]) * np.roll(encoded, 1, axis=0)
