"""Train on images without labels: two views of each, drawn independently, with SimCLR or VICReg.

    python -m examples.cifar.write cifar-10-python.tar.gz .
    python -m examples.two_views --config examples/two_views/configs/simclr_cifar10.yaml --val test.beton

Labels, if there are any, train a linear classifier beside the network, which does not learn from them. The same command
resumes a stopped run in the middle of an epoch.
SimCLR: Chen et al. 2020 (arXiv 2002.05709). VICReg: Bardes et al. 2022 (arXiv 2105.04906), with its views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from examples import recipe
from examples.imagenet.resnet import make_encoder
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline.pipeline_spec import PipelineSpec
from gpubeton.reader import Reader
from gpubeton.transforms import (
    ColorJitter,
    RandomGaussianBlur,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomSolarization,
)


@dataclass(frozen=True)
class Settings(recipe.Settings):
    """The settings of a run."""

    folder: str = "runs/two_views"
    method: str = "simclr"  # or vicreg
    network: str = "resnet50"
    small: bool = False  # images: the first convolution has no stride, and no pooling follows
    hidden: int = 2048  # channels of the head
    outputs: int = 128  # of the head
    num_classes: int = 1000  # of the labels; 0 for a file without labels

    epochs: int = 100
    batch_size: int = 256  # for each process
    warmup: float = 10.0
    weight_decay: float = 1e-4
    side: int = 224  # of a view, in pixels
    min_area: float = 0.2  # of a view, as a share of the image's
    blur: bool = True
    temperature: float = 0.2  # of SimCLR

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in ("simclr", "vicreg"):
            raise ValueError(f"method is {self.method!r}, expected simclr or vicreg")


class Run(recipe.Run[Settings]):
    """A network that sees two views of each image."""

    def make_network(self) -> nn.Module:
        return TwoViews(self.settings)

    def make_loader(self) -> Loader:
        """Make a loader of two views: the first is always blurred; the second rarely, but sometimes solarized."""
        second = PipelineSpec("image", transforms=self.view(blur=0.1, solarize=0.2))
        others = dict.fromkeys(Reader(self.settings.train).field_names)  # fields that are not read
        pipelines = {**others, "image": self.view(blur=1.0, solarize=0.0), "second": second}
        if self.settings.num_classes:
            pipelines["label"] = self.labels()
        return self.open_training(pipelines)

    def view(self, blur: float, solarize: float) -> list[Any]:
        """Return the pipeline of a view."""
        settings, side = self.settings, self.settings.side
        blurred = RandomGaussianBlur(side // 20 * 2 + 1, sigma=(0.1, 2.0), p=blur)
        return self.images(
            RandomResizedCropRGBImageDecoder((side, side), scale=(settings.min_area, 1.0)),
            RandomHorizontalFlip(),
            ColorJitter(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1, p=0.8),
            RandomGrayscale(0.2),
            RandomSolarization(128, solarize),
            *([blurred] if settings.blur else []),
        )

    def loss(self, first: Tensor, *others: Tensor) -> Tensor:
        *labels, second = others
        with self.precision():
            outputs, logits = self.replica(torch.cat([first, second]))
        one, other = outputs.float().chunk(2)
        is_vicreg = self.settings.method == "vicreg"
        loss = vicreg(one, other) if is_vicreg else simclr(one, other, self.settings.temperature)
        for label in labels:  # the features are detached: only the classifier learns from this
            loss = loss + nn.functional.cross_entropy(logits.float(), label.repeat(2))
        return loss

    def test(self, network: nn.Module) -> dict[str, float]:
        if not self.settings.num_classes:
            return {}
        side, ratio = self.settings.side, 1.0 if self.settings.small else 224 / 256
        decoder = CenterCropRGBImageDecoder((side, side), ratio=ratio)
        loader = self.open_validation({"image": self.images(decoder), "label": self.labels()})
        return self.test_classes(lambda images: network(images)[1], loader)

    def finish(self) -> None:
        network = self.tested()
        assert isinstance(network, TwoViews)
        torch.save(network.encoder.state_dict(), self.folder / "encoder.pt")


class TwoViews(nn.Module):
    """A ResNet with a head for the loss, and a linear classifier of its features."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.encoder, width = make_encoder(settings.network)
        if settings.small:
            self.encoder.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
            self.encoder.maxpool = nn.Identity()
        norm = nn.BatchNorm1d(settings.hidden)
        first, last = nn.Linear(width, settings.hidden, bias=False), nn.Linear(settings.hidden, settings.outputs)
        self.head = nn.Sequential(first, norm, nn.ReLU(inplace=True), last)
        self.classifier = nn.Linear(width, settings.num_classes) if settings.num_classes else nn.Identity()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of the head and of the classifier."""
        features = self.encoder(images)
        return self.head(features), self.classifier(features.detach())


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
        centered = views - views.mean(0)
        deviation = (centered.square().sum(0) / (len(views) - 1) + 1e-4).sqrt()
        covariance = centered.T @ centered / (len(views) - 1)
        apart = covariance.square().sum() - covariance.diagonal().square().sum()
        loss = loss + 25 * torch.relu(1 - deviation).mean() / 2 + apart / views.shape[1]
    return loss


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Train, and return the classifier's last results: ``top_1``, ``top_5`` and ``val_loss``."""
    return recipe.launch(Run, recipe.settings_of(Settings, arguments))


if __name__ == "__main__":
    main()
