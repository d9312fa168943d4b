"""Train FCOS, a detector without anchors: boxes follow their images through crop and flip.

    python -m examples.detection.write train.beton --shapes 512
    python -m examples.detection.write val.beton --shapes 64
    python -m examples.detection --side 128 --min-area 0.6
    python -m examples.detection --config examples/detection/configs/voc_r50.yaml --weights resnet50.pth

The same command resumes a stopped run in the middle of an epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from examples import recipe
from examples.detection.fcos import FCOS, STRIDES, detect, loss_of, mean_average_precision
from gpubeton.fields.decoders import PadRGBImageDecoder, RaggedDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline.ragged import Ragged
from gpubeton.reader import Reader
from gpubeton.transforms import ColorJitter, RandomHorizontalFlip, ToDevice, ToTensor, TransformBoxes


@dataclass(frozen=True)
class Settings(recipe.Settings):
    """The settings of a run."""

    folder: str = "runs/detection"
    network: str = "resnet18"
    weights: str = ""  # a file: torchvision's, encoder.pt of two_views, or checkpoint.pt of imagenet
    width: int = 128  # channels of the pyramid

    batch_size: int = 16  # for each process
    clip: float = 1.0
    side: int = 512  # of a crop, in pixels: a multiple of 64
    min_area: float = 0.3  # of a random crop, as a share of the image's
    min_visible: float = 0.3  # a box is left out if less of its area is in the crop
    ema: float = 0.999

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.side % STRIDES[-1]:
            raise ValueError(f"side is {self.side}, expected a multiple of {STRIDES[-1]}")


class Run(recipe.Run[Settings]):
    """A detector, and images with boxes."""

    def make_network(self) -> nn.Module:
        settings = self.settings
        self.classes = Reader(settings.train).notes["classes"]
        return FCOS(settings.network, settings.width, len(self.classes), settings.weights)

    def make_loader(self) -> Loader:
        settings, side = self.settings, (self.settings.side,) * 2
        crop = RandomResizedCropRGBImageDecoder(side, scale=(settings.min_area, 1.0))
        colors = ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2)
        return self.open_training(self.pipelines(crop, RandomHorizontalFlip(), colors))

    def pipelines(self, *image: Any) -> dict[str, Any]:
        """Return the pipelines of images and boxes, which follow the images."""
        move = TransformBoxes(image="image", min_visible=self.settings.min_visible)
        return {"image": self.images(*image), "boxes": [RaggedDecoder(), move, ToTensor(), ToDevice(self.device)]}

    def loss(self, images: Tensor, boxes: Ragged) -> Tensor:
        with self.precision():
            outputs = self.replica(images)
        return loss_of(outputs, [box[box[:, 5] == 0] for box in boxes], self.settings.side)

    def test(self, network: nn.Module) -> dict[str, float]:
        """Measure the mean average precision on whole images, which are resized to fit. Each process tests all."""
        decoder = PadRGBImageDecoder((self.settings.side,) * 2)
        loader = self.open_validation(self.pipelines(decoder), shared=False)
        detections, true = list[Tensor](), list[Tensor]()
        for images, boxes in loader:
            with self.precision():
                outputs = network(images)
            detections += [image_detections.cpu() for image_detections in detect(outputs, self.settings.side)]
            true += [box.cpu() for box in boxes]
        loader.close()
        return {"map_50": mean_average_precision(detections, true, len(self.classes))}

    def facts(self) -> dict[str, Any]:
        return {"classes": self.classes}


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Train, and return the result of the last test: ``map_50``, the mean average precision at an overlap of 0.5."""
    return recipe.launch(Run, recipe.settings_of(Settings, arguments))


if __name__ == "__main__":
    main()
