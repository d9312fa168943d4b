"""Train CLIP on pairs of images and texts: contrastive loss with the negatives of all processes, AMP, EMA, DDP.

    python -m examples.clip.write train.csv train.beton --tokenizer openai/clip-vit-base-patch32
    python -m examples.clip --config examples/clip/configs/vit_b32.yaml
    torchrun --nproc-per-node 8 -m examples.clip --config examples/clip/configs/vit_b32.yaml

The same command resumes a stopped run in the middle of an epoch. Radford et al. 2021 (arXiv 2103.00020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed.nn.functional import all_gather

from examples import recipe
from examples.clip.towers import ImageTower, PairNetwork, TextTower
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, NDArrayDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.reader import Reader
from gpubeton.transforms import ToDevice, ToTensor

MEAN, STD = (122.771, 116.746, 104.094), (68.501, 66.632, 70.323)  # CLIP's, levels from 0 to 255


@dataclass(frozen=True)
class Settings(recipe.Settings):
    """The settings of a run."""

    folder: str = "runs/clip"
    side: int = 224  # of the images, in pixels
    patch: int = 32
    image_width: int = 768  # channels, multiples of 64
    image_depth: int = 12  # layers
    text_width: int = 512
    text_depth: int = 12
    outputs: int = 512  # features of an image or a text

    epochs: int = 32
    batch_size: int = 256  # for each process
    lr: float = 5e-4
    warmup: float = 1.6
    weight_decay: float = 0.2
    clip: float = 1.0
    min_area: float = 0.9  # of a random crop, as a share of the image's
    ema: float = 0.9998


class Run(recipe.Run[Settings]):
    """Both towers, and pairs of images and tokens."""

    def make_network(self) -> nn.Module:
        settings, notes = self.settings, Reader(self.settings.train).notes
        if "vocabulary" not in notes:
            raise ValueError(
                f"{settings.train} does not have the number of tokens in its notes. Make it with examples.clip.write."
            )
        outputs = settings.outputs
        images = ImageTower(settings.side, settings.patch, settings.image_width, settings.image_depth, outputs)
        texts = TextTower(notes["vocabulary"], notes["length"], settings.text_width, settings.text_depth, outputs)
        return PairNetwork(images, texts)

    def make_loader(self) -> Loader:
        side, scale = (self.settings.side,) * 2, (self.settings.min_area, 1.0)
        return self.open_training(
            self.pipelines(RandomResizedCropRGBImageDecoder(side, scale=scale, interpolation="bicubic"))
        )

    def pipelines(self, decoder: Any) -> dict[str, Any]:
        """Return the pipelines of images and tokens."""
        tokens = [NDArrayDecoder(), ToTensor(), ToDevice(self.device)]
        return {"image": self.images(decoder, mean=MEAN, std=STD), "tokens": tokens}

    def loss(self, images: Tensor, tokens: Tensor) -> Tensor:
        with self.precision():
            ones, others, scale = self.replica(images, tokens)
        return contrastive_loss(ones, others, scale)

    def test(self, network: nn.Module) -> dict[str, float]:
        decoder = CenterCropRGBImageDecoder((self.settings.side,) * 2, ratio=1, interpolation="bicubic")
        loader = self.open_validation(self.pipelines(decoder), shared=False)
        with self.precision():
            results = [network(images, tokens)[:2] for images, tokens in loader]
        loader.close()
        ones, others = (torch.cat(parts) for parts in zip(*results, strict=True))
        likeness, targets = ones @ others.T, torch.arange(len(ones), device=self.device)
        shares = [float((likeness.argmax(axis) == targets).double().mean()) for axis in (1, 0)]
        return {"image_to_text": shares[0], "text_to_image": shares[1]}


def contrastive_loss(ones: Tensor, others: Tensor, scale: Tensor) -> Tensor:
    """Find the text of each of this process's images among those of all processes, and the image of each text.

    The gradient flows through the gathered features, so that the mean over processes is the loss of the whole batch.
    """
    first, all_ones, all_others = 0, ones, others
    if torch.distributed.is_initialized():
        all_ones, all_others = torch.cat(all_gather(ones)), torch.cat(all_gather(others))
        first = torch.distributed.get_rank() * len(ones)
    targets = torch.arange(first, first + len(ones), device=ones.device)
    rows = nn.functional.cross_entropy(scale * ones @ all_others.T, targets)
    columns = nn.functional.cross_entropy(scale * others @ all_ones.T, targets)
    return (rows + columns) / 2


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Train, and return the results of the last test: shares of the pairs, ``image_to_text`` and ``text_to_image``."""
    return recipe.launch(Run, recipe.settings_of(Settings, arguments))


if __name__ == "__main__":
    main()
