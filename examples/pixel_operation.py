"""A custom pixel operation in Numba and CUDA: a vignette, fused into the pass over the pixels.

python examples/pixel_operation.py
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import PixelOperation, RandomHorizontalFlip, ToDevice, ToTensor
from gpubeton.writer import DatasetWriter

HALF, ONE, TWO = np.float32(0.5), np.float32(1), np.float32(2)


def vignette(r: Any, g: Any, b: Any, strength: Any, x: Any, y: Any, height: Any, width: Any) -> Any:
    """Darken a pixel by its distance from the center. Numbers are float32, as in the statements for the GPU."""
    across, down = (x + HALF) / width * TWO - ONE, (y + HALF) / height * TWO - ONE
    light = ONE - strength * HALF * (across * across + down * down)
    return r * light, g * light, b * light


VIGNETTE = """
    float across = (x + 0.5f) / width * 2.0f - 1.0f, down = (y + 0.5f) / height * 2.0f - 1.0f;
    float light = 1.0f - strength * 0.5f * (across * across + down * down);
    r *= light;
    g *= light;
    b *= light;
"""


class White:
    """White images with their index."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        """Return an image and its index."""
        return np.full((48, 64, 3), 255, np.uint8), index


def main() -> None:
    """Write images, and load them with the operation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--device", default="cpu", help='"cuda:0": the same on a GPU')
    options = parser.parse_args()

    # The strength differs for each image and epoch: it depends on the seed, the epoch and the sample.
    operation = PixelOperation(cuda=VIGNETTE, numba=vignette, parameters={"strength": (0.2, 0.8)}, p=0.5)
    pipeline = [
        RandomResizedCropRGBImageDecoder((options.side, options.side)),
        RandomHorizontalFlip(),
        operation,
        ToTensor(),
        ToDevice(options.device),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "white.beton"
        writer = DatasetWriter(path, {"image": RGBImageField(write_mode="raw"), "number": IntField()}, progress=False)
        writer.from_indexed_dataset(White(options.images))
        loader = Loader(path, batch_size=16, num_workers=1, seed=1, pipelines={"image": pipeline})
        loader.explain()
        for epoch in range(2):
            corners = [int(level) for images, _ in loader for level in images[:, 0, 0, 0]]
            dark = [level for level in corners if level < 255]
            print(f"epoch {epoch}: {len(dark)} of {len(corners)} have dark corners, {min(dark)} to {max(dark)}")


if __name__ == "__main__":
    main()
