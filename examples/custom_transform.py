"""A custom transform: keep a random quarter of each image. Compiled, and run by several threads.

python examples/custom_transform.py
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import SimpleRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.state import State
from gpubeton.transforms import RandomHorizontalFlip, ToTensor
from gpubeton.writer import DatasetWriter


class RandomQuarter(Operation):
    """Keep one of the four quarters of each image."""

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, AllocationQuery]:
        """Declare the result for the next operation, and request memory for it.

        Both are for one image; a loader adds the batch.
        """
        height, width, channels = previous_state.shape
        quarter = (height // 2, width // 2, channels)
        return replace(previous_state, shape=quarter), AllocationQuery(quarter, previous_state.dtype)

    def generate_code(self) -> Callable[..., Any]:
        """Return the function: it gets the batch and the requested memory.

        Numba compiles it, because images before ``ToTensor`` are arrays (``previous_state.jit_mode``). It may use
        numpy and plain loops; the attributes that it needs are copied into local names here.
        """
        rows = Compiler.get_iterator()  # a range whose iterations are shared among threads

        def random_quarter(images: NDArray[Any], quarters: NDArray[Any]) -> NDArray[Any]:
            height, width = quarters.shape[1], quarters.shape[2]
            corner = np.random.randint(0, 4, len(images))
            for row in rows(len(images)):
                top, left = height * (corner[row] // 2), width * (corner[row] % 2)
                quarters[row] = images[row, top : top + height, left : left + width]
            return quarters

        random_quarter.is_parallel = True  # type: ignore[attr-defined]  # several threads share its loop
        return random_quarter


class Squares:
    """Images whose four quarters have different levels, and the level of the first as label."""

    def __init__(self, length: int, side: int) -> None:
        self.length, self.side = length, side

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        """Return an image and its label."""
        level = index % 60
        quarters = np.array([[level, level + 60], [level + 120, level + 180]], np.uint8)
        plane = quarters.repeat(self.side // 2, axis=0).repeat(self.side // 2, axis=1)
        return plane[:, :, None].repeat(3, axis=2), level


def main() -> None:
    """Write images, and load them with and without the transform."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--workers", type=int, default=-1, help="threads; by default one for each core")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "squares.beton"
        fields = {"image": RGBImageField(write_mode="raw"), "label": IntField()}
        writer = DatasetWriter(path, fields, num_workers=1, progress=False)
        writer.from_indexed_dataset(Squares(options.images, options.side))

        pipelines = {
            "without": [SimpleRGBImageDecoder(), RandomHorizontalFlip(), ToTensor()],
            "with": [SimpleRGBImageDecoder(), RandomHorizontalFlip(), RandomQuarter(), ToTensor()],
        }
        for name, pipeline in pipelines.items():
            loader = Loader(
                path,
                batch_size=options.batch_size,
                num_workers=options.workers,
                order=OrderOption.RANDOM,
                pipelines={"image": pipeline},
            )
            for images, _ in loader:
                print(f"{name}: {tuple(images.shape)}, {images[0].unique().numel()} levels in the first image")


if __name__ == "__main__":
    main()
