"""ResNets as in torchvision, to train with batches of loaders."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["resnet"]

#: Blocks of each stage, and whether they are bottlenecks.
_STAGES = {"resnet8": ([1, 1, 1], False), "resnet18": ([2, 2, 2, 2], False), "resnet50": ([3, 4, 6, 3], True)}


def resnet(name: str, num_classes: int = 1000, width: int = 64) -> nn.Module:
    """Make a residual network with random weights; "resnet8" is for tests."""
    numbers, is_bottleneck = _STAGES[name]
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = width
    for stage, number in enumerate(numbers):
        for place in range(number):
            stride = 2 if stage > 0 and place == 0 else 1
            block = _Block(channels, width << stage, stride, is_bottleneck)
            layers.append(block)
            channels = block.channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))


class _Block(nn.Module):
    """Convolutions with a shortcut connection."""

    def __init__(self, before: int, width: int, stride: int, is_bottleneck: bool) -> None:
        super().__init__()
        self.channels = 4 * width if is_bottleneck else width
        if is_bottleneck:
            kernels = [(before, width, 1, 1), (width, width, 3, stride), (width, self.channels, 1, 1)]
        else:
            kernels = [(before, width, 3, stride), (width, width, 3, 1)]
        layers: list[nn.Module] = []
        for inputs, outputs, size, step in kernels:
            layers += [nn.Conv2d(inputs, outputs, size, step, size // 2, bias=False), nn.BatchNorm2d(outputs)]
            layers.append(nn.ReLU(inplace=True))
        self.main = nn.Sequential(*layers[:-1])
        self.short = nn.Sequential()
        if stride != 1 or before != self.channels:
            self.short = nn.Sequential(
                nn.Conv2d(before, self.channels, 1, stride, bias=False), nn.BatchNorm2d(self.channels)
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Add the result of the convolutions to the shortcut."""
        result: torch.Tensor = nn.functional.relu(self.main(images) + self.short(images), inplace=True)
        return result
