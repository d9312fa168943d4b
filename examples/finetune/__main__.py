"""Fine-tune a pretrained network of timm or Hugging Face on a file with images, labels and class names.

    gpubeton convert flowers/train train.beton && gpubeton convert flowers/val val.beton
    python -m examples.finetune --config examples/finetune/configs/vit_b16.yaml --folder runs/flowers
    torchrun --nproc-per-node 8 -m examples.finetune --config ... --model timm:convnext_tiny.in12k

The same command resumes a stopped run in the middle of an epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from examples import recipe
from examples.finetune.pretrained import Logits, load_pretrained
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.reader import Reader
from gpubeton.transforms import RandomHorizontalFlip


@dataclass(frozen=True)
class Settings(recipe.Settings):
    """The settings of a run."""

    folder: str = "runs/finetune"
    model: str = "hf:google/vit-base-patch16-224-in21k"  # or timm:NAME
    weights: str = "pretrained"  # or random
    lr: float = 1e-4
    label_smoothing: float = 0.1
    clip: float = 1.0
    min_area: float = 0.25  # of a random crop, as a share of the image's
    ema: float = 0.999


class Run(recipe.Run[Settings]):
    """A network with a new head; its preprocessing is the one of its pretraining."""

    def make_network(self) -> nn.Module:
        self.class_names, pretrained = class_names_of(self.settings), self.settings.weights == "pretrained"
        network, self.preprocessing = load_pretrained(self.settings.model, self.class_names, weights=pretrained)
        return network

    def make_loader(self) -> Loader:
        expected, scale = self.preprocessing, (self.settings.min_area, 1.0)
        crop = RandomResizedCropRGBImageDecoder(expected.size, scale=scale, interpolation=expected.interpolation)
        return self.open_training(self.pipelines(crop, RandomHorizontalFlip()))

    def pipelines(self, *image: Any) -> dict[str, Any]:
        """Return the pipelines of images and labels."""
        image_pipeline = self.images(*image, mean=self.preprocessing.mean, std=self.preprocessing.std)
        return {"image": image_pipeline, "label": self.labels()}

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        with self.precision():
            logits = self.replica(images)
        return nn.functional.cross_entropy(logits.float(), labels, label_smoothing=self.settings.label_smoothing)

    def test(self, network: nn.Module) -> dict[str, float]:
        expected = self.preprocessing
        crop = CenterCropRGBImageDecoder(expected.size, expected.ratio, expected.interpolation)
        return self.test_classes(network, self.open_validation(self.pipelines(crop)))

    def finish(self) -> None:
        if isinstance(network := self.tested(), Logits):
            network.save_pretrained(self.folder / "model")

    def facts(self) -> dict[str, Any]:
        return {**asdict(self.preprocessing), "classes": len(self.class_names)}

    def state(self) -> dict[str, Any]:
        return {**super().state(), "class_names": list(self.class_names)}


def class_names_of(settings: Settings) -> tuple[str, ...]:
    """Return the class names of both files, which have to agree."""
    train, val = Reader(settings.train).class_names, Reader(settings.val).class_names
    if not train:
        raise ValueError(f"{settings.train} has no class names. Make it with `gpubeton convert` from a folder.")
    if val != train:
        raise ValueError(f"{settings.val} has the classes {val}, expected {settings.train}'s: {train}")
    return train


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Train, and return the results of the last test: ``top_1``, ``top_5`` and ``val_loss``."""
    return recipe.launch(Run, recipe.settings_of(Settings, arguments))


if __name__ == "__main__":
    main()
