"""A small network and its training: the same for every way of making batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from benchmarks.accuracy.batches import Batch

__all__ = ["Training", "make_network", "predict"]

_PEAK_RATE = 3e-3


def make_network(seed: int, classes: int, *, is_nudged: bool = False) -> nn.Module:
    """Make a network for images of 40 x 40 pixels, with the same weights for the same seed."""
    torch.manual_seed(seed)

    def block(channels: int, features: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv2d(channels, features, 3, stride, 1, bias=False)
        return [convolution, nn.BatchNorm2d(features), nn.ReLU(inplace=True)]

    layers = block(3, 16, 2) + block(16, 32, 2) + block(32, 64, 2) + block(64, 96, 1)
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(9 * 96, classes))
    if is_nudged:
        with torch.no_grad():
            network[0].weight.mul_(1 + 2**-22)  # type: ignore[operator]  # torch types it Tensor | Module
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]  # as above


class Training:
    """A network and its optimizer, which can be saved between any two steps."""

    def __init__(self, network: nn.Module, steps: int) -> None:
        self.network = network
        self.optimizer = torch.optim.AdamW(network.parameters(), lr=_PEAK_RATE, weight_decay=0.05)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, _PEAK_RATE, steps, pct_start=0.15)

    def run(self, batches: Iterable[Batch], on_step: Callable[[int], object] = lambda _: None) -> list[float]:
        """Train on some batches; return the loss of each."""
        self.network.train()
        losses = []
        for step, batch in enumerate(batches):
            loss = nn.functional.cross_entropy(self.network(batch.images), batch.labels)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]  # torch gives it no types
            self.optimizer.step()
            self.schedule.step()
            losses.append(loss.item())
            on_step(step)
        return losses

    def state(self) -> dict[str, object]:
        """Return what a checkpoint needs."""
        return {name: part.state_dict() for name, part in vars(self).items()}

    def load(self, state: dict[str, object]) -> None:
        """Go on from a checkpoint."""
        for name, part in vars(self).items():
            part.load_state_dict(state[name])


@torch.inference_mode()
def predict(network: nn.Module, batches: Iterable[Batch]) -> tuple[torch.Tensor, torch.Tensor]:  # (N,) int64 each
    """Give the class that the network chooses for each image, and its label."""
    network.eval()
    pairs = [(network(batch.images).argmax(1), batch.labels) for batch in batches]
    chosen, labels = zip(*pairs, strict=True)
    return torch.cat(chosen), torch.cat(labels)
