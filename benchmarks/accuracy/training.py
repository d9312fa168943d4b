"""A small network and its training: the same for every way of making batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn

from benchmarks.accuracy.batches import Batch
from benchmarks.accuracy.glyphs import CLASSES

__all__ = ["Run", "count_correct", "make_network", "predict", "train"]

_PEAK_RATE = 4e-3


@dataclass(frozen=True)
class Run:
    """What a training gave."""

    losses: list[float]  # of each step
    accuracy: float  # percent of the test images


def make_network(seed: int) -> nn.Module:
    """Make a network for images of 48 x 48 pixels, with the same weights for the same seed."""
    torch.manual_seed(seed)

    def block(channels: int, features: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv2d(channels, features, 3, stride, 1, bias=False)
        return [convolution, nn.BatchNorm2d(features), nn.ReLU(inplace=True)]

    layers = block(3, 16, 2) + block(16, 32, 2) + block(32, 64, 1) + block(64, 128, 2) + block(128, 128, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, CLASSES))


def train(
    network: nn.Module, batches: Iterable[Batch], steps: int, on_step: Callable[[int], object] = lambda _: None
) -> list[float]:
    """Train for a number of steps; return the loss of each."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=_PEAK_RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _PEAK_RATE, total_steps=steps)
    network.train()
    losses = []
    for step, batch in enumerate(batches):
        loss = nn.functional.cross_entropy(network(batch.images), batch.labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch gives it no types
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        on_step(step)
    return losses


@torch.inference_mode()
def predict(network: nn.Module, batches: Iterable[Batch]) -> torch.Tensor:  # (N,) int64
    """Give the class that the network chooses for each image."""
    network.eval()
    return torch.cat([network(batch.images).argmax(1) for batch in batches])


def count_correct(predictions: torch.Tensor, batches: Iterable[Batch]) -> float:
    """Give the percentage of images whose class is the predicted one."""
    labels = torch.cat([batch.labels for batch in batches])
    return float((predictions == labels).double().mean() * 100)
