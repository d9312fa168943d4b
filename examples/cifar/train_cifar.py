"""Train a ResNet-9 on CIFAR-10, with a recipe whose published accuracy is 94 % in 24 epochs.

    python examples/cifar/write_cifar.py cifar-10-python.tar.gz .
    python examples/cifar/train_cifar.py --train train.beton --test test.beton

D. Page, How to Train Your ResNet 4: Architecture (https://myrtle.ai/learn/how-to-train-your-resnet/), trained it to
94 % in 79 seconds on a V100; this project has not measured it again. Differences here: the border of a shifted image is
filled with the mean color instead of its mirror image, and testing adds the mirror image's logits (``--no-flip`` does
not).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpubeton.fields.decoders import IntDecoder, SimpleRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import (
    Cutout,
    NormalizeImage,
    RandomHorizontalFlip,
    RandomTranslate,
    Squeeze,
    ToDevice,
    ToTensor,
    ToTorchImage,
)

MEAN, STD = (125.31, 122.95, 113.87), (62.99, 62.09, 66.70)


def main(arguments: Sequence[str] | None = None) -> float:
    """Train and test.

    Returns
    -------
    float
        The accuracy on the test images.
    """
    options = options_of(arguments)
    torch.manual_seed(options.seed)
    device = torch.device("cuda:0" if torch.cuda.is_available() and options.device != "cpu" else "cpu")
    torch.backends.cudnn.benchmark = True
    color = tuple(map(int, MEAN))
    changes = [RandomHorizontalFlip(), RandomTranslate(4, fill=color), Cutout(8, fill=color)]
    train = make_loader(options.train, options, device, changes, OrderOption.RANDOM)
    test = make_loader(options.test, options, device, [], OrderOption.SEQUENTIAL)
    network: nn.Module = make_resnet9(options.width).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    train_network(network, train, options)
    accuracy = test_network(network, test, flip=options.flip)
    print(f"{accuracy:.2%} of {len(test.indices)} test images right")
    train.close()
    test.close()
    return accuracy


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, default=Path("train.beton"))
    parser.add_argument("--test", type=Path, default=Path("test.beton"))
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--lr", type=float, default=0.4, help="peak of the triangle")
    parser.add_argument("--peak-epoch", type=float, default=5)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--label-smoothing", type=float, default=0.0)
    parser.add_argument("--flip", action=argparse.BooleanOptionalAction, default=True, help="test mirror images too")
    parser.add_argument("--width", type=int, default=64, help="channels of the first layer")
    parser.add_argument("--workers", type=int, default=-1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto")
    return parser.parse_args(arguments)


def make_loader(
    path: Path, options: argparse.Namespace, device: torch.device, changes: list[Any], order: OrderOption
) -> Loader:
    """Make a loader; with a GPU the images are augmented and normalized there."""
    normalize = NormalizeImage(MEAN, STD, np.float16 if device.type == "cuda" else np.float32)
    image = [SimpleRGBImageDecoder(), *changes, ToTensor(), ToDevice(device), ToTorchImage(), normalize]
    return Loader(
        path,
        options.batch_size,
        num_workers=options.workers,
        order=order,
        seed=options.seed,
        drop_last=order is OrderOption.RANDOM,
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze(1), ToDevice(device)]},
    )


class Residual(nn.Module):
    """Adds the result of two layers to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(make_layer(channels, channels), make_layer(channels, channels))

    def forward(self, features: Tensor) -> Tensor:
        """Add."""
        found: Tensor = self.layers(features)
        return features + found


class Scale(nn.Module):
    """Scales logits down, so that training starts gently."""

    def forward(self, logits: Tensor) -> Tensor:
        """Multiply."""
        return logits / 8


def make_layer(inputs: int, outputs: int) -> nn.Sequential:
    """Make a convolution, its batch normalization and activation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


def make_resnet9(width: int, num_classes: int = 10) -> nn.Module:
    """Make Page's network; Page uses a `width` of 64."""
    return nn.Sequential(
        make_layer(3, width),
        make_layer(width, 2 * width),
        nn.MaxPool2d(2),
        Residual(2 * width),
        make_layer(2 * width, 4 * width),
        nn.MaxPool2d(2),
        make_layer(4 * width, 8 * width),
        nn.MaxPool2d(2),
        Residual(8 * width),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(8 * width, num_classes, bias=False),
        Scale(),
    )


def train_network(network: nn.Module, loader: Loader, options: argparse.Namespace) -> None:
    """Train, and print the loss and the speed of each epoch."""
    optimizer = torch.optim.SGD(
        network.parameters(),
        lr=options.lr,
        momentum=options.momentum,
        weight_decay=options.weight_decay,
        nesterov=options.momentum > 0,
    )
    peak = min(options.peak_epoch, options.epochs)
    knots = [0, peak * len(loader), options.epochs * len(loader)]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(np.interp(step + 1, knots, [0, 1, 0])))
    on_gpu = str(next(network.parameters()).device.type) == "cuda"
    scaler = torch.amp.GradScaler("cuda", enabled=on_gpu)
    for epoch in range(options.epochs):
        network.train()
        losses = []
        for images, labels in loader:
            with torch.autocast("cuda", enabled=on_gpu):
                logits = network(images)
                loss = nn.functional.cross_entropy(logits, labels, label_smoothing=options.label_smoothing)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            losses.append(loss.detach())
        stats = loader.stats()
        speed = f"{stats.images_per_second:,.0f} images/s, {stats.waiting_share:.0%} of the time waiting for data"
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}; {speed}", flush=True)


@torch.no_grad()
def test_network(network: nn.Module, loader: Loader, *, flip: bool) -> float:
    """Return the accuracy on a loader's images."""
    network.eval()
    right = []
    for images, labels in loader:
        with torch.autocast("cuda", enabled=images.is_cuda):
            logits = network(images) + (network(images.flip(3)) if flip else 0)
        right.append(logits.argmax(1) == labels)
    return float(torch.cat(right).double().mean())


if __name__ == "__main__":
    main()
