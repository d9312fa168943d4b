"""ResNets (torchvision's if it is installed) and BlurPool."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

ARCHITECTURES = ("resnet18", "resnet50")


def make_resnet(name: str, num_classes: int, *, blurpool: bool) -> Any:
    """Make an untrained ResNet; its parameters always have torchvision's names."""
    if find_spec("torchvision") is not None:
        from torchvision import models

        network: nn.Module = models.get_model(name, num_classes=num_classes)
    elif name in ARCHITECTURES:
        network = ResNet(name, num_classes)
    else:
        raise ValueError(f"network {name!r}: without torchvision there are {', '.join(ARCHITECTURES)}. Install it.")
    if blurpool:
        blur_before_strides(network)
    return network


def make_encoder(name: str) -> tuple[Any, int]:
    """Make a ResNet without its head, and return it with its number of features."""
    network = make_resnet(name, 1, blurpool=False)
    width, network.fc = network.fc.in_features, nn.Identity()
    return network, width


class ResNet(nn.Module):
    """He et al., Deep Residual Learning (2016), tables 1 and 7; the 3 x 3 convolutions have the strides."""

    def __init__(self, name: str, num_classes: int) -> None:
        super().__init__()
        is_deep = name == "resnet50"
        expansion = 4 if is_deep else 1
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = self._stage(64, 64, 3 if is_deep else 2, 1, expansion)
        self.layer2 = self._stage(64 * expansion, 128, 4 if is_deep else 2, 2, expansion)
        self.layer3 = self._stage(128 * expansion, 256, 6 if is_deep else 2, 2, expansion)
        self.layer4 = self._stage(256 * expansion, 512, 3 if is_deep else 2, 2, expansion)
        self.fc = nn.Linear(512 * expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _stage(inputs: int, width: int, blocks: int, stride: int, expansion: int) -> nn.Sequential:
        outputs = width * expansion
        first = Block(inputs, width, outputs, stride)
        return nn.Sequential(first, *(Block(outputs, width, outputs, 1) for _ in range(blocks - 1)))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of each image."""
        features = self.maxpool(torch.relu(self.bn1(self.conv1(images))))
        features = self.layer4(self.layer3(self.layer2(self.layer1(features))))
        logits: Tensor = self.fc(features.mean((2, 3)))
        return logits


class Block(nn.Module):
    """Two 3 x 3 convolutions, or a bottleneck of three if there are more outputs than `width`."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int) -> None:
        super().__init__()
        if outputs == width:
            sizes = [(inputs, width, 3, stride), (width, outputs, 3, 1)]
        else:
            sizes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        self.depth = len(sizes)
        for number, (before, after, kernel, step) in enumerate(sizes, start=1):
            convolution = nn.Conv2d(before, after, kernel, stride=step, padding=kernel // 2, bias=False)
            setattr(self, f"conv{number}", convolution)
            setattr(self, f"bn{number}", nn.BatchNorm2d(after))
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, features: Tensor) -> Tensor:
        """Add the result of the convolutions to the features."""
        shortcut = features if self.downsample is None else self.downsample(features)
        for number in range(1, self.depth + 1):
            features = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(features))
            if number < self.depth:
                features = torch.relu(features)
        return torch.relu(features + shortcut)


class BlurredConvolution(nn.Module):
    """Blur with the binomial filter (1, 2, 1), then convolve (Zhang 2019, without moving the stride)."""

    blur: Tensor

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.conv = convolution
        line = torch.tensor([1.0, 2.0, 1.0]) / 4
        self.register_buffer("blur", torch.outer(line, line).expand(convolution.in_channels, 1, 3, 3).clone())

    def forward(self, features: Tensor) -> Tensor:
        """Blur and convolve."""
        blurred = nn.functional.conv2d(features, self.blur.to(features.dtype), padding=1, groups=features.shape[1])
        result: Tensor = self.conv(blurred)
        return result


def blur_before_strides(network: nn.Module) -> None:
    """Put a blur before every strided convolution of 16 channels or more, as FFCV's recipe does."""
    for name, child in list(network.named_children()):
        if isinstance(child, nn.Conv2d):
            if max(child.stride) > 1 and child.in_channels >= 16:
                setattr(network, name, BlurredConvolution(child))
        else:
            blur_before_strides(child)
