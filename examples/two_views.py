"""Train on images without labels: two views of each, drawn independently, with SimCLR or VICReg.

    python examples/two_views.py train.beton --epochs 100 --network resnet18     # a torchvision network
    python examples/two_views.py train.beton --loss vicreg                       # this script's small network

The file's labels, if it has any, are only used to measure at the end how well nearest neighbors agree. Both outputs
read one field; `PipelineSpec` gives the second one a different crop, colors and blur.
SimCLR: Chen et al. 2020 (arXiv 2002.05709). VICReg: Bardes et al. 2022 (arXiv 2105.04906), with its views.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpubeton.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.pipeline.pipeline_spec import PipelineSpec
from gpubeton.transforms import (
    ColorJitter,
    NormalizeImage,
    RandomGaussianBlur,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomSolarization,
    Squeeze,
    ToDevice,
    ToTensor,
    ToTorchImage,
)

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


def main(arguments: Sequence[str] | None = None) -> float:
    """Train.

    Returns
    -------
    float
        The loss of the last epoch.
    """
    options = options_of(arguments)
    torch.manual_seed(options.seed)
    device = torch.device("cuda:0" if torch.cuda.is_available() and options.device != "cpu" else "cpu")
    encoder, width = make_encoder(options.network)
    head = nn.Sequential(
        nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, options.projection)
    )
    network: nn.Module = nn.Sequential(encoder, head).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    loader = make_loader(options, device)
    loss = train_network(network, loader, options)
    loader.close()
    print_agreement(encoder, options, device)
    if options.save is not None:
        torch.save(encoder.state_dict(), options.save)
    return loss


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("beton", type=Path)
    parser.add_argument("--loss", choices=("simclr", "vicreg"), default="simclr")
    parser.add_argument("--network", default="small", help="small, or a classifier of torchvision's, such as resnet18")
    parser.add_argument("--projection", type=int, default=128, help="outputs of the head")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--side", type=int, default=96, help="of the views, in pixels")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--temperature", type=float, default=0.2, help="SimCLR's")
    parser.add_argument("--workers", type=int, default=-1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto")
    parser.add_argument("--save", type=Path, help="where the encoder's weights are put")
    return parser.parse_args(arguments)


def make_loader(options: argparse.Namespace, device: torch.device) -> Loader:
    """Make a loader of two views. The first is always blurred; the second rarely, but sometimes solarized."""
    side = options.side

    def view(blur: float, solarize: float) -> list[Any]:
        return [
            RandomResizedCropRGBImageDecoder((side, side), scale=(0.2, 1.0)),
            RandomHorizontalFlip(),
            ColorJitter(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1, p=0.8),
            RandomGrayscale(0.2),
            RandomSolarization(128, solarize),
            RandomGaussianBlur(side // 20 * 2 + 1, sigma=(0.1, 2.0), p=blur),
            NormalizeImage(MEAN, STD, np.float32),
            ToTensor(),
            ToDevice(device),
            ToTorchImage(),
        ]

    second = PipelineSpec("image", transforms=view(blur=0.1, solarize=0.2))
    pipelines = {"image": view(blur=1.0, solarize=0.0), "label": None, "second": second}
    return Loader(
        options.beton,
        options.batch_size,
        num_workers=options.workers,
        order=OrderOption.RANDOM,
        seed=options.seed,
        pipelines=pipelines,
    )


def make_encoder(name: str) -> tuple[nn.Module, int]:
    """Make a network, and return it with its number of features."""
    if name != "small":
        try:
            from torchvision import models
        except ModuleNotFoundError as error:
            raise SystemExit(
                f"--network {name} is torchvision's: pip install torchvision, or --network small"
            ) from error

        network: nn.Module = models.get_model(name, num_classes=1)
        last = next(child for child in reversed(list(network.children())) if isinstance(child, nn.Linear))
        network.fc = nn.Identity()
        return network, last.in_features
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128), (128, 256)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 256


def train_network(network: nn.Module, loader: Loader, options: argparse.Namespace) -> float:
    """Train, print the loss and the speed of each epoch, and return the last loss."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=options.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * len(loader))
    mean = float("nan")
    for epoch in range(options.epochs):
        losses = []
        for first, second in loader:
            with torch.autocast(first.device.type, torch.bfloat16, enabled=first.is_cuda):
                outputs = network(torch.cat([first, second]))
            ones, others = outputs.float().chunk(2)
            loss = simclr(ones, others, options.temperature) if options.loss == "simclr" else vicreg(ones, others)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
        mean, stats = float(torch.stack(losses).mean()), loader.stats()
        speed = f"{stats.images_per_second:,.0f} images/s, {stats.waiting_share:.0%} of the time waiting for data"
        print(f"epoch {epoch}: loss {mean:.3f}; {speed}", flush=True)
    return mean


def simclr(ones: Tensor, others: Tensor, temperature: float) -> Tensor:
    """Identify the other view of each image in the batch: the cross entropy of cosines (SimCLR, equation 1)."""
    views = nn.functional.normalize(torch.cat([ones, others]))
    likeness = views @ views.T / temperature
    likeness.fill_diagonal_(float("-inf"))
    partner = torch.arange(len(views), device=views.device).roll(len(ones))
    return nn.functional.cross_entropy(likeness, partner)


def vicreg(ones: Tensor, others: Tensor) -> Tensor:
    """Invariance, variance and covariance loss (VICReg, scaled as in the authors' code)."""
    loss = 25 * nn.functional.mse_loss(ones, others)
    for views in (ones, others):
        centred = views - views.mean(0)
        deviation = (centred.square().sum(0) / (len(views) - 1) + 1e-4).sqrt()
        covariance = centred.T @ centred / (len(views) - 1)
        apart = covariance.square().sum() - covariance.diagonal().square().sum()
        loss = loss + 25 * torch.relu(1 - deviation).mean() / 2 + apart / views.shape[1]
    return loss


@torch.no_grad()
def print_agreement(encoder: nn.Module, options: argparse.Namespace, device: torch.device) -> None:
    """Print the share of images whose nearest other image has the same label."""
    tail = [NormalizeImage(MEAN, STD, np.float32), ToTensor(), ToDevice(device), ToTorchImage()]
    image = [CenterCropRGBImageDecoder((options.side, options.side), ratio=1), *tail]
    label = [IntDecoder(), ToTensor(), Squeeze(1), ToDevice(device)]
    loader = Loader(
        options.beton,
        options.batch_size,
        drop_last=False,
        num_workers=options.workers,
        pipelines={"image": image, "label": label},
    )
    encoder.eval()
    batches = [(nn.functional.normalize(encoder(images)), labels) for images, labels in loader]
    features, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    loader.close()
    right = 0
    for start in range(0, len(features), 1024):
        likeness = features[start : start + 1024] @ features.T
        rows = torch.arange(len(likeness), device=device)
        likeness[rows, rows + start] = -1
        right += int((labels[likeness.argmax(1)] == labels[start : start + 1024]).sum())
    print(f"the nearest neighbour has the same label for {right / len(labels):.0%} of {len(labels)} images")


if __name__ == "__main__":
    main()
