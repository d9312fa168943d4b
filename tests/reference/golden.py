"""Images of the golden files, read without the library's own reader."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def raw_images(name: str, field: str = "image") -> list[np.ndarray]:
    """The images of a golden file that are stored as they are, uint8 of shape (h, w, 3)."""
    file = lzma.decompress((GOLDEN / f"{name}.beton.xz").read_bytes())
    images = []
    for sample in json.loads((GOLDEN / f"{name}.json").read_text())["samples"]:
        image = sample[field]
        height, width = image["height"], image["width"]
        images.append(np.frombuffer(file, np.uint8, height * width * 3, image["ptr"]).reshape(height, width, 3))
    return images


def center_crops(name: str) -> tuple[np.ndarray, dict]:
    """What FFCV's CenterCropRGBImageDecoder made of them, uint8 (N, H, W, 3), and its parameters."""
    parameters = json.loads((GOLDEN / f"{name}.json").read_text())["center_crop"]
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        return arrays[parameters["npz_key"]], parameters
