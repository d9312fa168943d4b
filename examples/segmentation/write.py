"""Write images and their masks as a .beton file.

    python -m examples.segmentation.write train.beton --images VOC2012/JPEGImages --masks VOC2012/SegmentationClass \
        --names VOC2012/ImageSets/Segmentation/train.txt
    python -m examples.segmentation.write train.beton --shapes 512     # made-up images, to try the recipe

A mask is an image file of the same name, whose levels are the classes (as in Pascal VOC); 255 is ignored.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gpubeton.fields import ImageField, RGBImageField
from gpubeton.writer import DatasetWriter

NO_CLASS = 255


class Pairs:
    """Images and their masks, from two folders."""

    def __init__(self, images: Path, masks: Path, names: Path | None = None) -> None:
        by_name = {path.stem: path for path in images.iterdir()}
        expected = by_name.keys() if names is None else set(names.read_text().split())
        results = [path for path in sorted(masks.iterdir()) if path.stem in by_name and path.stem in expected]
        self.pairs = [(by_name[path.stem], path) for path in results]
        if not self.pairs:
            raise FileNotFoundError(f"{masks}: no file has the name of one in {images}, but for the ending")

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[Path, NDArray[np.uint8]]:
        """Return an image's file, and the classes of its pixels."""
        image, mask = self.pairs[index]
        with Image.open(mask) as opened:  # the classes are the palette's indices, not its colors
            classes = np.asarray(opened if opened.mode in ("P", "L") else opened.convert("L"))
        return image, classes


class Shapes:
    """Discs (class 1) and rectangles (class 2) of similar colors on noise; a border of 2 pixels has no class."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Draw an image of 72 x 96 pixels and its mask."""
        rng = np.random.default_rng(index)
        image, classes = rng.normal(90, 20, (72, 96, 3)), np.zeros((72, 96), np.uint8)
        y, x = np.mgrid[:72, :96]
        for kind in rng.permutation([1, 2]):
            center_y, center_x, size = rng.integers(12, 60), rng.integers(12, 84), rng.integers(9, 16)
            across, down = abs(x - center_x), abs(y - center_y)
            distance = np.hypot(across, down) if kind == 1 else np.maximum(across, down * 1.5)
            image[distance < size] += rng.uniform(30, 90, 3) * ([1, 1, 0.2] if kind == 1 else [0.2, 1, 1])
            classes[distance < size + 1] = NO_CLASS
            classes[distance < size - 1] = kind
        return image.clip(0, 255).astype(np.uint8), classes


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("beton", type=Path)
    parser.add_argument("--images", type=Path, help="folder of images")
    parser.add_argument("--masks", type=Path, help="folder of masks with the same names")
    parser.add_argument("--names", type=Path, help="a list of the names to take, by default all")
    parser.add_argument("--shapes", type=int, default=0, help="number of made-up images instead")
    parser.add_argument("--workers", type=int, default=-1)
    options = parser.parse_args(arguments)
    if not options.shapes and not (options.images and options.masks):
        parser.error("expected --images and --masks, or --shapes")
    dataset: Any = Shapes(options.shapes) if options.shapes else Pairs(options.images, options.masks, options.names)
    fields = {"image": RGBImageField(write_mode="jpg"), "mask": ImageField("gray", write_mode="png")}
    DatasetWriter(options.beton, fields, num_workers=options.workers).from_indexed_dataset(dataset)


if __name__ == "__main__":
    main()
