"""What torchvision made of an image; see make_augment.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np

with np.load(Path(__file__).with_name("augment.npz")) as archive:
    GOLDEN = dict(archive)

#: The image, uint8 of shape (24, 32, 3).
IMAGE = GOLDEN.pop("image")


def nearly_a_tie(warp: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Which pixels of a warped image lie so near the middle of two others that float32 may choose the other one.

    torchvision's places are sums of three products below 2, good to 2**-22, times half the image's side.
    """
    places = np.stack(np.meshgrid(np.arange(size[1]), np.arange(size[0]), [1.0]), axis=-1)[:, :, 0]
    from_a_tie = np.abs((places @ (warp.reshape(2, 3).T / 2**32)) % 1 - 0.5)
    return (from_a_tie < max(size) / 2 * 2**-22 + 2**-32).any(axis=-1)
