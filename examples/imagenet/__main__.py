r"""Train a ResNet on ImageNet with FFCV's published recipe: progressive resizing, BlurPool, label smoothing, AMP, DDP.

    python -m examples.imagenet.write /data/imagenet/train train.beton
    python -m examples.imagenet --config examples/imagenet/configs/rn18_16.yaml --folder runs/rn18_16
    torchrun --nproc-per-node 8 -m examples.imagenet --config examples/imagenet/configs/rn50_16.yaml ...

The same command resumes a stopped run in the middle of an epoch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from examples import recipe
from examples.imagenet.report import PUBLISHED, write_report
from examples.imagenet.resnet import make_resnet
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import RandomHorizontalFlip


@dataclass(frozen=True)
class Settings(recipe.Settings):
    """The settings of a run."""

    folder: str = "runs/imagenet"
    network: str = "resnet50"
    num_classes: int = 1000
    blurpool: bool = True

    epochs: int = 16
    batch_size: int = 512  # for each process
    lr: float = 1.7
    schedule: str = "triangle"
    warmup: float = 2.0
    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.1
    amp: str = "float16"

    min_side: int = 160
    max_side: int = 192
    ramp_start: int = 11  # the last epoch at min_side
    ramp_stop: int = 13  # the first epoch at max_side
    val_side: int = 256
    flip: bool = True  # test-time augmentation: the mean of an image and its mirror image

    order: str = "random"  # or quasi_random, for larger files
    on_error: str = "replace"
    report: str = ""  # a JSON file to write at the end: the result beside published ones


class Run(recipe.Run[Settings]):
    """A ResNet whose images grow."""

    def make_network(self) -> nn.Module:
        settings = self.settings
        network: nn.Module = make_resnet(settings.network, settings.num_classes, blurpool=settings.blurpool)
        return network

    def make_optimizer(self) -> torch.optim.Optimizer:
        norms = [module for module in self.network.modules() if isinstance(module, nn.BatchNorm2d)]
        free = {parameter for norm in norms for parameter in norm.parameters()}
        groups = self.parameter_groups(lambda parameter: parameter not in free)
        return torch.optim.SGD(groups, lr=self.settings.lr, momentum=self.settings.momentum)

    def make_loader(self) -> Loader:
        settings = self.settings
        self.decoder = RandomResizedCropRGBImageDecoder((settings.min_side,) * 2)
        pipelines = self.pipelines(self.decoder, RandomHorizontalFlip())
        return self.open_training(pipelines, order=settings.order, on_error=settings.on_error)

    def pipelines(self, *image: Any) -> dict[str, Any]:
        """Return the pipelines of images and labels."""
        return {"image": self.images(*image), "label": self.labels()}

    def begin_epoch(self, epoch: int) -> dict[str, Any]:
        side = side_of(self.settings, epoch)
        self.decoder.output_size = (side, side)
        return {"side": side}

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        with self.precision():
            logits = self.replica(images)
        return nn.functional.cross_entropy(logits.float(), labels, label_smoothing=self.settings.label_smoothing)

    def test(self, network: nn.Module) -> dict[str, float]:
        crop = CenterCropRGBImageDecoder((self.settings.val_side,) * 2, ratio=224 / 256)
        return self.test_classes(network, self.open_validation(self.pipelines(crop)), flip=self.settings.flip)


def side_of(settings: Settings, epoch: int) -> int:
    """Return the image size of an epoch in pixels: a multiple of 32 between the ends of the ramp."""
    if epoch <= settings.ramp_start:
        return settings.min_side
    if epoch >= settings.ramp_stop:
        return settings.max_side
    share = (epoch - settings.ramp_start) / (settings.ramp_stop - settings.ramp_start)
    return round((settings.min_side + share * (settings.max_side - settings.min_side)) / 32) * 32


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Train, and return the results of the last test: ``top_1``, ``top_5`` and ``val_loss``."""
    settings = recipe.settings_of(Settings, arguments)
    result = recipe.launch(Run, settings)
    if settings.report and result and os.environ.get("RANK", "0") == "0":
        print(f"A line for {PUBLISHED}: {json.dumps(write_report(settings, result))}")
    return result


if __name__ == "__main__":
    main()
