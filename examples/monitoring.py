"""Statistics of a loader for TensorBoard, for loggers of numbers such as Weights & Biases, and for Prometheus.

python examples/monitoring.py --folder runs
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Metric, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from torch.utils.tensorboard import SummaryWriter

from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, LoaderStats, OrderOption
from gpubeton.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage
from gpubeton.writer import DatasetWriter

SUMS = {field.name for field in fields(LoaderStats)} - {"epoch", "num_workers"}


class LoaderCollector(Collector):
    """The statistics of a loader, as they are when Prometheus asks: sums are counters, rates and shares are gauges."""

    def __init__(self, loader: Loader, name: str) -> None:
        self.loader, self.name = loader, name

    def collect(self) -> Iterator[Metric]:
        """Give each number."""
        for name, value in self.loader.stats(total=True).to_metrics("").items():
            family = CounterMetricFamily if name in SUMS else GaugeMetricFamily
            metric = family(f"gpubeton_loader_{name}", "see LoaderStats", labels=["loader"])
            metric.add_metric([self.name], value)
            yield metric


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

    registry = CollectorRegistry()
    registry.register(LoaderCollector(loader, "train"))
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

        # Prometheus: node_exporter --collector.textfile.directory=runs. Or let it ask this process, with
        # prometheus_client.start_http_server(9000, registry=registry) before the loop.
        write_to_textfile(str(options.folder / "train.prom"), registry)
    writer.close()


if __name__ == "__main__":
    main()
