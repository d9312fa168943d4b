"""What torchvision made of an image; see make_augment.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np

with np.load(Path(__file__).with_name("augment.npz")) as archive:
    GOLDEN = dict(archive)

#: The image, uint8 of shape (24, 32, 3).
IMAGE = GOLDEN.pop("image")
