"""Train a ResNet with batches from a loader, beside training with one constant batch.

    python -m benchmarks.gpu.training

The constant batch shows the maximum speed of the network. The share of it that a loader reaches shows how long the
network waits, and how much decoding on the same GPU slows it down.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from torch import nn

from benchmarks.gpu.engines import EngineWatch
from benchmarks.gpu.photos import IMAGENET_LIKE, QUALITIES, make_photos
from benchmarks.gpu.pipelines import usual_pipeline
from benchmarks.gpu.record import Record, exit_on_sigterm
from benchmarks.gpu.resnet import resnet
from benchmarks.gpu.target import Target, open_target
from benchmarks.results import DATA
from gpubeton._gpu.options import GpuOptions
from gpubeton.fields.decoders import IntDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import Squeeze, ToDevice, ToTensor

__all__ = ["LOADERS", "Trainer", "measure_network"]


#: Arguments of the loaders.
LOADERS: dict[str, dict[str, Any]] = {
    "engines": {"device": "cuda:0", "gpu_options": GpuOptions()},
    "decoded by the CPU": {"device": "cuda:0", "gpu_options": GpuOptions(routes=())},
    "CPU": {"device": "cpu"},
}

_EPOCH = 1 << 20
_WARM_UP = 8


def main(
    images: Annotated[int, typer.Option(help="Number of images.")] = 2000,
    seconds: Annotated[float, typer.Option(help="Length of a lap.")] = 4,
    rounds: Annotated[int, typer.Option(help="Laps with each loader.")] = 2,
    networks: Annotated[str, typer.Option(help="Which, as in resnet50,resnet18.")] = "resnet50,resnet18",
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 256,
    side: Annotated[int, typer.Option(help="Height and width of the images.")] = 224,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    out: Annotated[Path | None, typer.Option(help="File or folder for the result.")] = None,
) -> None:
    """Train a ResNet with batches from a loader, beside training with one constant batch."""
    exit_on_sigterm()
    console = Console()
    photos = make_photos(data, images, QUALITIES[IMAGENET_LIKE])
    record = Record(out, corpus=photos.facts, batch_size=batch_size, side=side)
    with open_target() as target:
        for name in networks.split(","):
            trainer = Trainer(target, name, batch_size, side)
            result: dict[str, Any] = {}
            for _ in range(rounds):
                for who, lap in measure_network(trainer, photos.beton, seconds).items():
                    result.setdefault(who, []).append(lap)
                    record.add(name, result)
                    rate, share = lap["images_per_second"], lap["share_of_synthetic"]
                    console.print(f"{name}, {who}: {rate:,.0f} images/s, {100 * share:.1f} % of its maximum")
    record.complete()


class Trainer:
    """A network on the GPU, trained with bfloat16, channels last, and stochastic gradient descent."""

    def __init__(self, target: Target, name: str, batch_size: int, side: int) -> None:
        self.target, self.batch_size, self.side = target, batch_size, side
        self.device = torch.device("cpu" if target.is_simulated else "cuda:0")
        torch.backends.cudnn.benchmark = True
        network: Any = resnet(name, width=8 if target.is_simulated else 64)
        self._network = network.to(self.device, memory_format=torch.channels_last).train()
        self._optimizer = torch.optim.SGD(self._network.parameters(), lr=0.01, momentum=0.9)
        self._loss = nn.CrossEntropyLoss()

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Train with one batch."""
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, torch.bfloat16):
            loss = self._loss(self._network(images), labels)
        loss.backward()
        self._optimizer.step()

    def synthetic(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the same batch forever."""
        images = torch.randn(self.batch_size, 3, self.side, self.side, device=self.device, dtype=torch.float16)
        images = images.to(memory_format=torch.channels_last)
        labels = torch.zeros(self.batch_size, dtype=torch.int64, device=self.device)
        while True:
            yield images, labels

    def lap(self, batches: Iterator[Any], seconds: float) -> dict[str, Any]:
        """Train for some seconds; returns images, seconds, and the time in ``next``."""
        for _ in range(_WARM_UP):
            self.step(*next(batches))
        self._settle()
        images, waited = 0, 0.0
        with EngineWatch() as watch:
            start, cpu = time.perf_counter(), time.process_time()
            while time.perf_counter() - start < seconds or images == 0:
                asked = time.perf_counter()
                batch = next(batches)
                waited += time.perf_counter() - asked
                self.step(*batch)
                images += len(batch[0])
            self._settle()
            wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        return {
            "images": images,
            "wall_seconds": wall,
            "cpu_seconds": cpu,
            "images_per_second": images / wall,
            # The loop runs ahead of the GPU, so the GPU need not wait when the loop does.
            "seconds_in_next": waited,
            "engines": watch.found,
        }

    def _settle(self) -> None:
        if not self.target.is_simulated:
            torch.cuda.synchronize()


def measure_network(trainer: Trainer, beton: str, seconds: float) -> dict[str, dict[str, Any]]:
    """Train with each loader, and with the constant batch before and after; returns a lap for each.

    ``share_of_synthetic`` is relative to the mean of both laps with the constant batch.
    """
    laps = {"synthetic": trainer.lap(trainer.synthetic(), seconds)}
    for name, arguments in LOADERS.items():
        loader = _loader(trainer, beton, arguments)
        with closing(loader):
            iterator = iter(loader)
            with closing(iterator):
                laps[name] = trainer.lap(iterator, seconds)
    laps["synthetic again"] = trainer.lap(trainer.synthetic(), seconds)
    most = (laps["synthetic"]["images_per_second"] + laps["synthetic again"]["images_per_second"]) / 2
    for lap in laps.values():
        lap["share_of_synthetic"] = lap["images_per_second"] / most
    return laps


def _loader(trainer: Trainer, beton: str, arguments: dict[str, Any]) -> Loader:
    from gpubeton.format.dataset import open_dataset

    moves: list[Any] = [ToDevice("cuda:0")] if arguments["device"] == "cpu" else []
    return Loader(
        beton,
        trainer.batch_size,
        num_workers=-1,
        order=OrderOption.RANDOM,
        seed=0,
        indices=np.arange(_EPOCH) % open_dataset(beton).num_samples,
        pipelines={
            "image": [*usual_pipeline(trainer.side), *moves],
            "label": [IntDecoder(), ToTensor(), Squeeze(), *moves],
        },
        **arguments,
    )


if __name__ == "__main__":
    typer.run(main)
