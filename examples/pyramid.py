"""A feature pyramid on a ResNet, for segmentation and detection."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from examples.imagenet.resnet import blur_before_strides, make_encoder


class Pyramid(nn.Module):
    """Features of strides 4, 8, 16 and 32 with the same number of channels (Lin et al. 2017, arXiv 1612.03144).

    A `finest` of 1 leaves out those of stride 4.
    """

    def __init__(self, network: str, width: int, weights: str = "", finest: int = 0) -> None:
        super().__init__()
        self.resnet, features = make_encoder(network)
        if weights:
            load_weights(self.resnet, Path(weights))
        channels = [features // part for part in (8, 4, 2, 1)][finest:]
        self.across = nn.ModuleList(nn.Conv2d(inputs, width, 1) for inputs in channels)
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in channels)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return the features, the finest first."""
        resnet = self.resnet
        features, stages = resnet.maxpool(torch.relu(resnet.bn1(resnet.conv1(images)))), list[Tensor]()
        for stage in (resnet.layer1, resnet.layer2, resnet.layer3, resnet.layer4):
            features = stage(features)
            stages.append(features)
        coarser, result = None, list[Tensor]()
        levels = zip(reversed(self.across), reversed(self.smooth), reversed(stages), strict=False)
        for across, smooth, stage in levels:  # the coarsest first
            coarser = across(stage) if coarser is None else across(stage) + resized(coarser, stage)
            result.insert(0, smooth(coarser))
        return result


def resized(features: Tensor, like: Tensor) -> Tensor:
    """Resize features linearly to the size of others."""
    return nn.functional.interpolate(features, size=like.shape[-2:], mode="bilinear", align_corners=False)


def load_weights(resnet: nn.Module, path: Path) -> None:
    """Load torchvision's weights, ``encoder.pt`` of two_views, or ``checkpoint.pt`` of imagenet, without the head."""
    parts = torch.load(path, map_location="cpu", weights_only=True)
    state = {name: value for name, value in parts.get("network", parts).items() if not name.startswith("fc.")}
    if any(name.endswith(".blur") for name in state):
        blur_before_strides(resnet)
    resnet.load_state_dict(state)
