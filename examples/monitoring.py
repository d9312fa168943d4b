"""Statistics of a loader for TensorBoard, for loggers of numbers such as Weights & Biases, and for Prometheus.

python examples/monitoring.py --folder runs
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter

from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage
from gpubeton.writer import DatasetWriter


class Noise:
    """Images of noise with a label."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        """Return an image and its label."""
        return np.random.default_rng(index).integers(0, 255, (64, 64, 3), np.uint8), index % 10


def main() -> None:
    """Loop over a file with a step of some milliseconds, and log the loader's statistics after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="for the file and the logs")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--step-ms", type=float, default=5.0, help="duration of a step in ms")
    options = parser.parse_args()

    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "noise.beton"
    fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
    DatasetWriter(path, fields, num_workers=1, progress=False).from_indexed_dataset(Noise())
    image = [RandomResizedCropRGBImageDecoder((32, 32)), RandomHorizontalFlip(), ToTensor(), ToTorchImage()]
    loader = Loader(path, 64, order=OrderOption.RANDOM, seed=0, pipelines={"image": image})

    writer = SummaryWriter(str(options.folder / "tensorboard"))
    for epoch in range(options.epochs):
        for _ in loader:
            time.sleep(options.step_ms / 1000)

        # TensorBoard
        for name, value in loader.stats().to_metrics("loader/").items():
            writer.add_scalar(name, value, epoch)

        # Weights & Biases: run.log(metrics). Here, a line of JSON.
        metrics = loader.stats().to_metrics("loader/")
        print(json.dumps(metrics))

        # Prometheus: node_exporter --collector.textfile.directory=runs. A renamed file is never read half written.
        new = options.folder / "train.prom.new"
        new.write_text(loader.stats(total=True).to_openmetrics({"loader": "train", "rank": 0}))
        new.replace(options.folder / "train.prom")
    writer.close()


if __name__ == "__main__":
    main()
