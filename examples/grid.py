"""Train several networks at once on one device: one thread for each learning rate.

    python examples/grid.py train.beton --rates 0.3 0.1 0.03 0.01             # one loader for each thread
    python examples/grid.py train.beton --rates 0.3 0.1 0.03 0.01 --share     # all train on the same batches

With separate loaders, the networks may also differ in batch size, image size and augmentation. The file is in memory
only once for any number of loaders, but each image is decoded once for each network. Shared batches are decoded once
for all. On a GPU each thread has its own stream.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpubeton._machine import read_machine
from gpubeton.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToDevice, ToTensor, ToTorchImage

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


class Learner:
    """A network with its optimizer."""

    def __init__(self, rate: float, num_classes: int, device: torch.device) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 16), (16, 32), (32, 64), (64, 128)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, num_classes)]
        self.rate, self.losses = rate, list[Tensor]()
        self.network = nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=rate, momentum=0.9)

    def learn(self, images: Tensor, labels: Tensor) -> None:
        """Run one training step."""
        loss = nn.functional.cross_entropy(self.network(images), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.detach())

    def mean_loss(self) -> float:
        """Return the mean loss since the last call."""
        mean = float(torch.stack(self.losses).mean())
        self.losses.clear()
        return mean


def main(arguments: Sequence[str] | None = None) -> dict[float, float]:
    """Train all networks.

    Returns
    -------
    dict of float to float
        The loss of the last epoch by learning rate.
    """
    options = options_of(arguments)
    device = torch.device("cuda:0" if torch.cuda.is_available() and options.device != "cpu" else "cpu")
    learners = []
    for rate in options.rates:
        torch.manual_seed(options.seed)  # all start with the same weights
        learners.append(Learner(rate, options.num_classes, device))
    groups = [learners] if options.share else [[learner] for learner in learners]
    workers = max(1, cores() // len(groups))
    with ThreadPoolExecutor(len(groups)) as pool:
        runs = [pool.submit(train, group, options, device, workers) for group in groups]
        losses = {rate: loss for run in runs for rate, loss in run.result().items()}
    best = min(losses, key=lambda rate: losses[rate])
    print(f"the best of {len(losses)} rates is {best:g}, with a loss of {losses[best]:.3f}")
    return losses


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("beton", type=Path)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.3, 0.1, 0.03, 0.01])
    parser.add_argument("--share", action="store_true", help="one loader for all networks")
    parser.add_argument("--num-classes", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto")
    return parser.parse_args(arguments)


def cores() -> int:
    """Count the cores that this process may use, also by its container's quota."""
    return read_machine().usable_cores


def train(
    learners: Sequence[Learner], options: argparse.Namespace, device: torch.device, workers: int
) -> dict[float, float]:
    """Train some networks on the batches of one loader, and return the last losses by rate."""
    losses: dict[float, float] = {}
    with own_stream(device):
        loader = make_loader(options, device, workers)
        for epoch in range(options.epochs):
            for images, labels in loader:
                for learner in learners:
                    learner.learn(images, labels)
            losses = {learner.rate: learner.mean_loss() for learner in learners}
            print(line_of(epoch, losses.items(), loader), flush=True)
        loader.close()
    return losses


def own_stream(device: torch.device) -> AbstractContextManager[Any]:
    """Run this thread's GPU work in parallel to the other threads'."""
    if device.type != "cuda":
        return nullcontext()
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.default_stream(device))  # the networks were made on it
    return torch.cuda.stream(stream)


def make_loader(options: argparse.Namespace, device: torch.device, workers: int) -> Loader:
    """Make a loader. All loaders have the same seed, so they have the same batches."""
    decoder = RandomResizedCropRGBImageDecoder((options.side, options.side))
    tail = [NormalizeImage(MEAN, STD, np.float32), ToTensor(), ToDevice(device), ToTorchImage()]
    return Loader(
        options.beton,
        options.batch_size,
        num_workers=workers,
        order=OrderOption.RANDOM,
        seed=options.seed,
        pipelines={
            "image": [decoder, RandomHorizontalFlip(), *tail],
            "label": [IntDecoder(), ToTensor(), Squeeze(1), ToDevice(device)],
        },
    )


def line_of(epoch: int, losses: Iterable[tuple[float, float]], loader: Loader) -> str:
    """Format the results of an epoch."""
    stats, result = loader.stats(), ", ".join(f"{loss:.3f} at {rate:g}" for rate, loss in losses)
    speed = f"{stats.images_per_second:,.0f} images/s, {stats.waiting_share:.0%} of the time waiting for data"
    return f"epoch {epoch}: loss {result}; {speed}"


if __name__ == "__main__":
    main()
