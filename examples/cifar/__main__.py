"""Train a ResNet-9 on CIFAR-10, with a recipe whose published accuracy is 94 % in 24 epochs.

    python -m examples.cifar.write cifar-10-python.tar.gz .
    python -m examples.cifar --config examples/cifar/configs/resnet9.yaml

The same command resumes a stopped run in the middle of an epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from examples import recipe
from gpubeton.fields.decoders import SimpleRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import Cutout, RandomHorizontalFlip, RandomTranslate

MEAN, STD = (125.31, 122.95, 113.87), (62.99, 62.09, 66.70)  # CIFAR-10's, levels from 0 to 255


@dataclass(frozen=True)
class Settings(recipe.Settings):
    """The settings of a run."""

    val: str = "test.beton"
    folder: str = "runs/cifar"
    width: int = 64  # channels of the first layer

    epochs: int = 24
    batch_size: int = 512  # for each process
    lr: float = 0.4
    schedule: str = "triangle"
    warmup: float = 5.0
    momentum: float = 0.9
    weight_decay: float = 5e-4
    label_smoothing: float = 0.0
    amp: str = "float16"
    flip: bool = True  # test-time augmentation: the mean of an image and its mirror image


class Run(recipe.Run[Settings]):
    """Page's network and augmentations."""

    def make_network(self) -> nn.Module:
        return make_resnet9(self.settings.width)

    def make_optimizer(self) -> torch.optim.Optimizer:
        settings = self.settings
        return torch.optim.SGD(
            self.network.parameters(), settings.lr, settings.momentum, weight_decay=settings.weight_decay, nesterov=True
        )

    def make_loader(self) -> Loader:
        color = tuple(map(int, MEAN))
        changes = [RandomHorizontalFlip(), RandomTranslate(4, fill=color), Cutout(8, fill=color)]
        return self.open_training(self.pipelines(*changes))

    def pipelines(self, *changes: Any) -> dict[str, Any]:
        """Return the pipelines of images and labels."""
        return {"image": self.images(SimpleRGBImageDecoder(), *changes, mean=MEAN, std=STD), "label": self.labels()}

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        with self.precision():
            logits = self.replica(images)
        return nn.functional.cross_entropy(logits.float(), labels, label_smoothing=self.settings.label_smoothing)

    def test(self, network: nn.Module) -> dict[str, float]:
        return self.test_classes(network, self.open_validation(self.pipelines()), flip=self.settings.flip)


class Residual(nn.Module):
    """Adds the result of two layers to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(make_layer(channels, channels), make_layer(channels, channels))

    def forward(self, features: Tensor) -> Tensor:
        """Add."""
        result: Tensor = self.layers(features)
        return features + result


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


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Train, and return the results of the last test: ``top_1``, ``top_5`` and ``val_loss``."""
    return recipe.launch(Run, recipe.settings_of(Settings, arguments))


if __name__ == "__main__":
    main()
