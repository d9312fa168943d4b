"""Write the images of Pascal VOC and their boxes as a .beton file.

    python -m examples.detection.write train.beton VOCdevkit/VOC2007 VOCdevkit/VOC2012 --set trainval
    python -m examples.detection.write val.beton VOCdevkit/VOC2007 --set test
    python -m examples.detection.write train.beton --shapes 512     # made-up images, to try the recipe

A box has two corners in pixels, the number of its class, and a 1 if it is difficult. The names of the classes are in
the file's notes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
from numpy.typing import NDArray

from gpubeton.fields import RaggedField, RGBImageField
from gpubeton.writer import DatasetWriter

VOC = [
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
]
BORDERS = ("xmin", "ymin", "xmax", "ymax")


class PascalVOC:
    """The images of a list of each folder, and their boxes."""

    class_names = VOC

    def __init__(self, folders: Sequence[Path], part: str) -> None:
        self.samples = [
            (folder, name)
            for folder in folders
            for name in (folder / "ImageSets" / "Main" / f"{part}.txt").read_text().split()
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Path, NDArray[np.float32]]:
        """Return an image's file and its boxes."""
        folder, name = self.samples[index]
        boxes = []
        for thing in ET.parse(folder / "Annotations" / f"{name}.xml").iter("object"):
            left, top, right, bottom = (float(thing.findtext(f"bndbox/{side}", "")) for side in BORDERS)
            kind = VOC.index(thing.findtext("name", ""))
            # The pixels of VOC are counted from 1, and the last one belongs to the box.
            boxes.append([left - 1, top - 1, right, bottom, kind, float(thing.findtext("difficult", "0"))])
        return folder / "JPEGImages" / f"{name}.jpg", np.array(boxes, np.float32).reshape(-1, 6)


class Shapes:
    """Bright discs (class 0) and squares (class 1) on noise, none to three."""

    class_names = ("disc", "square")

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Draw an image of 96 x 128 pixels and its boxes."""
        rng = np.random.default_rng(index)
        image, boxes = rng.integers(0, 60, (96, 128, 3)), np.zeros((index % 4, 6), np.float32)
        y, x = np.mgrid[:96, :128]
        for place, box in enumerate(boxes):
            size, kind = rng.integers(8, 18), rng.integers(2)
            # Each has a third of the width, so that none hides another.
            center_x, center_y = 42 * place + rng.integers(size, 42 - size), rng.integers(size, 96 - size)
            across, down = x + 0.5 - center_x, y + 0.5 - center_y
            distance = np.hypot(across, down) if kind == 0 else np.maximum(abs(across), abs(down))
            image[distance < size] = rng.integers(140, 256, 3)
            box[:5] = center_x - size, center_y - size, center_x + size, center_y + size, kind
        return image.astype(np.uint8), boxes


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("beton", type=Path)
    parser.add_argument("folders", type=Path, nargs="*", help="such as VOCdevkit/VOC2007")
    parser.add_argument("--set", default="trainval", help="a list of ImageSets/Main: trainval, train, val or test")
    parser.add_argument("--shapes", type=int, default=0, help="number of made-up images instead")
    parser.add_argument("--workers", type=int, default=-1)
    options = parser.parse_args(arguments)
    if bool(options.shapes) == bool(options.folders):
        parser.error("expected folders of VOC, or --shapes")
    dataset: Any = Shapes(options.shapes) if options.shapes else PascalVOC(options.folders, options.set)
    fields = {"image": RGBImageField(write_mode="jpg"), "boxes": RaggedField("<f4", (-1, 6))}
    notes = {"classes": list(dataset.class_names)}
    DatasetWriter(options.beton, fields, num_workers=options.workers, notes=notes).from_indexed_dataset(dataset)


if __name__ == "__main__":
    main()
