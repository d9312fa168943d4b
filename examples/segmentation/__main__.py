"""Train a segmentation network: masks follow their images through crop, flip and shift.

    python -m examples.segmentation.write train.beton --shapes 512
    python -m examples.segmentation.write val.beton --shapes 64
    python -m examples.segmentation --num-classes 3 --side 64
    python -m examples.segmentation --config examples/segmentation/configs/voc_r50.yaml --weights resnet50.pth

`FollowImage` gives a mask the crop of its image. It picks the nearest pixel, so no new classes appear. The same command
resumes a stopped run in the middle of an epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from examples import recipe
from examples.pyramid import Pyramid, resized
from examples.segmentation.write import NO_CLASS
from gpubeton.fields.decoders import FollowImage, PadRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import ColorJitter, RandomHorizontalFlip, RandomTranslate, ToDevice, ToTensor


@dataclass(frozen=True)
class Settings(recipe.Settings):
    """The settings of a run."""

    folder: str = "runs/segmentation"
    network: str = "resnet18"
    weights: str = ""  # a file: torchvision's, encoder.pt of two_views, or checkpoint.pt of imagenet
    width: int = 128  # channels of the pyramid
    num_classes: int = 21

    batch_size: int = 16  # for each process
    side: int = 512  # of a crop, in pixels
    min_area: float = 0.25  # of a random crop, as a share of the image's
    ema: float = 0.999


class Run(recipe.Run[Settings]):
    """A pyramid network, and pairs of images and masks."""

    def make_network(self) -> nn.Module:
        return Segmenter(self.settings)

    def make_loader(self) -> Loader:
        settings, side = self.settings, (self.settings.side,) * 2
        crop = RandomResizedCropRGBImageDecoder(side, scale=(settings.min_area, 1.0))
        colors = ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2)  # masks do not follow these
        return self.open_training(
            self.pipelines(crop, RandomHorizontalFlip(), RandomTranslate(settings.side // 16), colors)
        )

    def pipelines(self, *image: Any) -> dict[str, Any]:
        """Return the pipelines of images and masks. The mask's has no crop: it uses the image's."""
        # Pixels that come from outside the image have no class.
        mask = [FollowImage("image", interpolation="nearest", fill=NO_CLASS), ToTensor(), ToDevice(self.device)]
        return {"image": self.images(*image), "mask": mask}

    def loss(self, images: Tensor, masks: Tensor) -> Tensor:
        with self.precision():
            logits = self.replica(images)
        return nn.functional.cross_entropy(logits.float(), masks[..., 0].long(), ignore_index=NO_CLASS)

    def test(self, network: nn.Module) -> dict[str, float]:
        """Measure the intersection over union of whole images, which are resized to fit and filled with no class."""
        kinds = self.settings.num_classes
        loader = self.open_validation(self.pipelines(PadRGBImageDecoder((self.settings.side,) * 2)))
        counts = torch.zeros(kinds, kinds, dtype=torch.int64, device=self.device)  # pixels by true and predicted class
        for images, masks in loader:
            with self.precision():
                predicted = network(images).argmax(1)
            counts += confusion(predicted, masks[..., 0].long(), kinds)
        loader.close()
        if self.world > 1:
            torch.distributed.all_reduce(counts)
        return {"mean_iou": mean_overlap(counts), "pixel_accuracy": float(counts.diagonal().sum() / counts.sum())}


class Segmenter(nn.Module):
    """The sum of a pyramid's levels, and a class for each pixel (after Kirillov et al. 2019, arXiv 1901.02446)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.pyramid = Pyramid(settings.network, width, settings.weights)
        self.last = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, settings.num_classes, 1),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of each pixel."""
        levels = self.pyramid(images)
        total = torch.stack([resized(level, levels[0]) for level in levels]).sum(0)
        return resized(self.last(total), images)


def confusion(predicted: Tensor, classes: Tensor, num_classes: int) -> Tensor:
    """Count the pixels of each true and each predicted class."""
    is_labelled = classes != NO_CLASS
    pairs = classes[is_labelled] * num_classes + predicted[is_labelled]
    return torch.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)


def mean_overlap(counts: Tensor) -> float:
    """Return the mean intersection over union of the classes that occur."""
    both, either = counts.diagonal(), counts.sum(0) + counts.sum(1) - counts.diagonal()
    return float((both[either > 0] / either[either > 0]).mean())


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Train, and return the results of the last test: ``mean_iou`` and ``pixel_accuracy``."""
    return recipe.launch(Run, recipe.settings_of(Settings, arguments))


if __name__ == "__main__":
    main()
