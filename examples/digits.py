"""Classify handwritten digits: 1797 real images from scikit-learn, more than 97 % correct after seconds on a CPU.

    pip install './gpubeton[demo]'     # scikit-learn comes with it
    python examples/digits.py

Images: 8 x 8 pixels of E. Alpaydin and C. Kaynak's Optical Recognition of Handwritten Digits (UCI, 1998).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import IntDecoder, SimpleRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import NormalizeImage, RandomTranslate, Squeeze, ToTensor, ToTorchImage
from gpubeton.writer import DatasetWriter

MEAN, STD = (77.8,) * 3, (95.9,) * 3
NUM_TEST = 360


class Digits:
    """scikit-learn's digits, their 17 levels scaled to 0..255."""

    def __init__(self) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        self.images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
        self.labels = digits.target

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        """Return one image, gray as RGB, and its digit."""
        return np.repeat(self.images[index][:, :, None], 3, axis=2), int(self.labels[index])


def main(arguments: list[str] | None = None) -> float:
    """Train and test.

    Returns
    -------
    float
        The accuracy on the test images.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01, help="peak of the one-cycle schedule")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # several threads slow down such a small network
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.beton"
        fields = {"image": RGBImageField(write_mode="raw"), "label": IntField()}
        dataset = Digits()
        DatasetWriter(path, fields, num_workers=1, progress=False).from_indexed_dataset(dataset)

        # The split does not depend on the seed.
        shuffled = np.random.default_rng(0).permutation(len(dataset))
        train = make_loader(path, options, shuffled[NUM_TEST:], [RandomTranslate(1)], OrderOption.RANDOM)
        test = make_loader(path, options, shuffled[:NUM_TEST], [], OrderOption.SEQUENTIAL)
        network = make_network()
        train_network(network, train, options)
        accuracy = share_right(network, test)
        train.close()
        test.close()
    print(f"{accuracy:.2%} of {NUM_TEST} test images right, after {time.perf_counter() - started:.1f} seconds")
    return accuracy


def make_loader(
    path: Path, options: argparse.Namespace, indices: NDArray[np.int64], changes: list[Any], order: OrderOption
) -> Loader:
    """Make a loader for some of the images."""
    image = [SimpleRGBImageDecoder(), *changes, NormalizeImage(MEAN, STD, np.float32), ToTensor(), ToTorchImage()]
    return Loader(
        path,
        options.batch_size,
        order=order,
        seed=options.seed,
        indices=indices,
        drop_last=order is OrderOption.RANDOM,
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze(1)]},
    )


def make_network() -> nn.Module:
    """Make three convolutions and a linear layer."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((3, 32, 1), (32, 64, 2), (64, 128, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def train_network(network: nn.Module, loader: Loader, options: argparse.Namespace) -> None:
    """Train, and print the loss and the speed of each epoch."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=options.lr)
    steps = options.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=options.lr, total_steps=steps)
    for epoch in range(options.epochs):
        losses = []
        for images, labels in loader:
            loss = nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        stats = loader.stats()
        speed = f"{stats.images_per_second:,.0f} images/s, {stats.waiting_share:.0%} of the time waiting for data"
        print(f"epoch {epoch}: loss {np.mean(losses):.3f}; {speed}")


@torch.no_grad()
def share_right(network: nn.Module, loader: Loader) -> float:
    """Return the accuracy on a loader's images."""
    network.eval()
    right = [network(images).argmax(1) == labels for images, labels in loader]
    return float(torch.cat(right).double().mean())


if __name__ == "__main__":
    main()
