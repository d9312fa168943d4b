"""Boxes that follow their images through crops and flips; samples with balanced classes.

python examples/detection.py
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gpubeton.fields import IntField, RaggedField, RGBImageField
from gpubeton.fields.decoders import RaggedDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import RandomHorizontalFlip, ToTensor, TransformBoxes
from gpubeton.traversal_order import Balanced
from gpubeton.writer import DatasetWriter


class Squares:
    """Dark images with white squares, none to three; every eighth image is of class 1."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Make one sample: the image, its boxes (x, y, x, y, color), and its class."""
        rng = np.random.default_rng(index)
        image = np.zeros((96, 128, 3), np.uint8)
        boxes = np.zeros((index % 4, 5), np.float32)
        for box in boxes:
            x, y = rng.integers(0, 80, 2)
            image[y : y + 16, x : x + 16] = 255
            box[:] = x, y, x + 16, min(y + 16, 96), 255
        return image, boxes, int(index % 8 == 0)


def main() -> None:
    """Write the images, and load them."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    fields = {"image": RGBImageField(), "boxes": RaggedField("<f4", (-1, 5)), "label": IntField()}
    pipelines = {
        "image": [RandomResizedCropRGBImageDecoder((64, 64)), RandomHorizontalFlip(), ToTensor()],
        # Keep a box if a fifth of it is in the crop; columns after the fourth do not change.
        "boxes": [RaggedDecoder(), TransformBoxes(image="image", min_visible=0.2), ToTensor()],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "squares.beton"
        DatasetWriter(path, fields, num_workers=1, progress=False).from_indexed_dataset(Squares())
        balanced = {"field": "label", "num_samples": 400}
        loader = Loader(path, 100, order=Balanced, order_kwargs=balanced, seed=0, pipelines=pipelines)
        loader.explain()
        for images, boxes, labels in loader:
            # boxes.values has all boxes of the batch, boxes[number] those of one image.
            print(f"{labels.sum()} of {len(images)} images are of class 1; {len(boxes.values)} boxes")
            centres = ((boxes.values[:, :2] + boxes.values[:, 2:4]) / 2).long()
            seen = images[boxes.rows, centres[:, 1], centres[:, 0], 0]
            print(f"  {(seen > 127).float().mean():.0%} of their centres are white")


if __name__ == "__main__":
    main()
