"""torchvision v2 on uint8 tensors, image by image, in the workers of a DataLoader: its fast way."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.io import decode_jpeg, read_file
from torchvision.transforms import v2

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.work import MEAN, STD, Work
from benchmarks.harness.photos import list_photos

#: What each recipe does between flip and normalization; not those that torchvision does not have.
AUGMENTATIONS: dict[str, list[Any]] = {
    "": [],
    "plain": [],
    "jitter": [v2.ColorJitter(0.4, 0.4, 0.4)],
    "RandAugment": [v2.RandAugment(2, 9)],
    "torchvision": [v2.TrivialAugmentWide(interpolation=v2.InterpolationMode.BILINEAR)],
    "DeiT III": [
        v2.RandomChoice([v2.Grayscale(3), v2.RandomSolarize(128, 1.0), v2.GaussianBlur(13, (0.1, 2.0))]),
        v2.ColorJitter(0.3, 0.3, 0.3),
    ],
    "SimCLR, a view": [
        v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8),
        v2.RandomGrayscale(0.2),
        v2.RandomApply([v2.GaussianBlur(23, (0.1, 2.0))], 0.5),
    ],
}


def decode(path: str) -> torch.Tensor:
    """Decode a JPEG file: uint8, (3, H, W)."""
    pixels: torch.Tensor = decode_jpeg(read_file(path))
    return pixels


def normalization(recipe: str) -> list[Any]:
    """Return the operations that end a recipe."""
    mean, std = ([level / 255 for level in levels] for levels in (MEAN, STD))
    erasing = [v2.RandomErasing(0.1)] if recipe == "torchvision" else []
    return [v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std, inplace=True), *erasing]


class Photos(Dataset[torch.Tensor]):
    """JPEG files, decoded to uint8 tensors, cropped, mirrored and then changed further."""

    def __init__(self, work: Work, operations: list[Any], decoder: Callable[[str], torch.Tensor]) -> None:
        self.files = [str(path) for path, _ in list_photos(Path(work.folder))] * work.passes
        crop = [v2.RandomResizedCrop(work.side, antialias=True), v2.RandomHorizontalFlip()]
        if work.crop == "center":
            crop = [v2.Resize(work.shorter, antialias=True), v2.CenterCrop(work.side)]
        self.change = v2.Compose([*crop, *operations])
        self.decode = decoder

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> torch.Tensor:
        image: torch.Tensor = self.change(self.decode(self.files[number]))
        return image


def make_loader(
    work: Work, operations: list[Any], collate: Any, decoder: Callable[[str], torch.Tensor] = decode
) -> DataLoader[torch.Tensor]:
    """Make a shuffling DataLoader with persistent workers, one for each core."""
    return DataLoader(
        Photos(work, operations, decoder),
        work.batch_size,
        shuffle=True,
        num_workers=work.cores,
        drop_last=True,
        collate_fn=collate,
        persistent_workers=True,
    )


def finish(images: torch.Tensor) -> torch.Tensor:
    """Convert a batch as all contenders do."""
    return images.to(torch.float16, memory_format=torch.channels_last)


def collate(images: list[torch.Tensor]) -> torch.Tensor:
    """Make a batch of normalized images."""
    return finish(torch.stack(images))


def prepare(
    work: Work,
    decoder: Callable[[str], torch.Tensor] = decode,
    packages: tuple[str, ...] = ("torch", "torchvision"),
) -> Ready:
    """Make the loader."""
    loader = make_loader(work, [*AUGMENTATIONS[work.recipe], *normalization(work.recipe)], collate, decoder)
    return Ready(lambda: map(len, loader), {name: version(name) for name in packages})


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")  # workers warn, too
    serve(prepare)
