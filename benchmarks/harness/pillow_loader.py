"""The usual loader: a PyTorch DataLoader whose worker processes decode and augment with Pillow.

It makes the same Pillow calls as torchvision's transforms, so it represents `torchvision.transforms` without needing
torchvision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate

__all__ = ["MEAN", "STD", "PillowDataset", "center", "collate", "example_loader", "pillow_loader", "random_crop"]

#: Of ImageNet, for pixels from 0 to 1.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class PillowDataset(Dataset[tuple[torch.Tensor, int]]):
    """Image files, each decoded, cropped, mirrored and normalized.

    `cutout` is the side of a square painted with the mean color, or 0. `crop` is "random", "center" (resized to 256 for
    224, not mirrored) or "whole". With `is_tuned`, normalization works in place;
    otherwise it copies the image first, as torchvision does.
    """

    def __init__(
        self,
        files: Sequence[tuple[Path, int]],
        size: int = 224,
        cutout: int = 0,
        *,
        is_tuned: bool = True,
        crop: str = "random",
    ) -> None:
        self.files = [(str(path), label) for path, label in files]
        self.size = size
        self.cutout = cutout
        self.is_tuned = is_tuned
        self.crop = crop
        self.mean = torch.tensor(MEAN)[:, None, None]
        self.std = torch.tensor(STD)[:, None, None]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """Decode and augment one image: float32, (3, size, size)."""
        path, label = self.files[index]
        with open(path, "rb") as file, Image.open(file) as opened:
            return self.augment(opened.convert("RGB")), label

    def augment(self, image: Image.Image) -> torch.Tensor:
        """Augment one image: float32, (3, size, size)."""
        if self.crop == "center":
            image = center(image, self.size)
        elif self.crop == "random":
            left, top, width, height = random_crop(*image.size)
            image = image.crop((left, top, left + width, top + height))
            image = image.resize((self.size, self.size), Image.Resampling.BILINEAR)
        if self.crop != "center" and torch.rand(1) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image, copy=True)).permute(2, 0, 1).contiguous()
        pixels = pixels.to(torch.float32).div(255)
        pixels = pixels.sub_(self.mean).div_(self.std) if self.is_tuned else _normalize(pixels)
        if self.cutout:
            y, x = (int(torch.randint(self.size - self.cutout + 1, (1,))) for _ in range(2))
            pixels[:, y : y + self.cutout, x : x + self.cutout] = 0
        return pixels


def pillow_loader(
    dataset: PillowDataset, batch_size: int, num_workers: int, *, drop_last: bool, start_method: str | None = None
) -> DataLoader[tuple[torch.Tensor, int]]:
    """Make a shuffling DataLoader with persistent workers: float16 channels_last (N, 3, H, W), int64 labels (N,)."""
    return DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=True,
        num_workers=num_workers,
        drop_last=drop_last,
        collate_fn=collate,
        persistent_workers=True,
        multiprocessing_context=start_method,
    )


def example_loader(dataset: PillowDataset, batch_size: int, num_workers: int) -> DataLoader[tuple[torch.Tensor, int]]:
    """Make the DataLoader of PyTorch's ImageNet example: float32 (N, 3, H, W), int64 labels (N,).

    It starts new worker processes in each epoch and drops a smaller last batch.
    """
    return DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=num_workers, drop_last=True)


def _normalize(pixels: torch.Tensor) -> torch.Tensor:
    """Normalize as `torchvision.transforms.functional.normalize` does."""
    mean, std = torch.as_tensor(MEAN), torch.as_tensor(STD)
    if (std == 0).any():
        raise ValueError("a standard deviation is 0")
    return pixels.clone().sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))


def collate(samples: list[tuple[torch.Tensor, int]]) -> list[torch.Tensor]:
    """Stack samples into images, float16 in channels_last, and labels."""
    images, labels = default_collate(samples)
    # Convert in the worker: in parallel, and the main process receives half the bytes.
    return [images.to(torch.float16, memory_format=torch.channels_last), labels]


def center(image: Image.Image, side: int) -> Image.Image:
    """Resize and crop as torchvision's Resize and CenterCrop do: 256 and 224, in this proportion."""
    shorter = side * 256 // 224
    width, height = (shorter * length // min(image.size) for length in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - side) / 2), round((height - side) / 2)
    return image.crop((left, top, left + side, top + side))


def random_crop(width: int, height: int) -> tuple[int, int, int, int]:
    """Draw a crop box as torchvision's RandomResizedCrop does: left, top, width, height."""
    area = width * height
    low, high = math.log(3 / 4), math.log(4 / 3)
    for _ in range(10):
        target = area * torch.empty(1).uniform_(0.08, 1.0).item()
        aspect = math.exp(torch.empty(1).uniform_(low, high).item())
        crop_width, crop_height = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            top = int(torch.randint(0, height - crop_height + 1, size=(1,)).item())
            left = int(torch.randint(0, width - crop_width + 1, size=(1,)).item())
            return left, top, crop_width, crop_height
    crop_width, crop_height = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - crop_width) // 2, (height - crop_height) // 2, crop_width, crop_height
