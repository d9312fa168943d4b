"""Train a small network on a folder of photos: progressive resizing, and a checkpoint in the middle of an epoch.

    python examples/train.py .demo/photos          # make demo makes this folder
    python examples/train.py .demo/photos          # resumes where the first run stopped

The folder has one sub-folder of images per class.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.basics import IntDecoder
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import Cutout, NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
from gpubeton.writer import DatasetWriter

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


def main() -> None:
    """Train, or resume training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--sides", type=int, nargs=2, default=(96, 160), help="image size of the first and last epoch")
    parser.add_argument("--stop-after", type=int, default=0, help="end after so many batches, to try the checkpoint")
    options = parser.parse_args()

    beton, checkpoint = options.photos.with_suffix(".beton"), options.photos.with_suffix(".checkpoint")
    if not beton.exists():
        fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
        DatasetWriter(beton, fields).from_image_folder(options.photos)
    num_classes = sum(path.is_dir() for path in options.photos.iterdir())

    decoder = RandomResizedCropRGBImageDecoder((options.sides[0], options.sides[0]))
    image = [decoder, RandomHorizontalFlip(), Cutout(24), NormalizeImage(MEAN, STD, np.float32)]
    loader = Loader(
        beton,
        options.batch_size,
        order=OrderOption.RANDOM,
        seed=0,
        pipelines={"image": [*image, ToTensor(), ToTorchImage()], "label": [IntDecoder(), ToTensor(), Squeeze(1)]},
    )
    torch.manual_seed(0)
    network = make_network(num_classes)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9)
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])

    done = 0
    while (epoch := loader.next_epoch) < options.epochs:
        side = side_of(epoch, options.epochs, options.sides)
        decoder.output_size = (side, side)
        losses = []
        for images, labels in loader:
            loss = nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            done += 1
            if done == options.stop_after:
                saved = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**saved, "loader": loader.state_dict()}, checkpoint)
                print(f"stopped after {done} batches; {checkpoint} has everything to go on")
                return
        stats = loader.stats()
        print(f"epoch {epoch}, {side} pixels: loss {np.mean(losses):.3f} over {len(losses)} batches; ", end="")
        print(f"{stats.images_per_second:,.0f} images/s, {stats.waiting_share:.0%} of the time waiting for data")
    checkpoint.unlink(missing_ok=True)  # training is complete


def make_network(num_classes: int) -> nn.Module:
    """Make a network that a CPU can train."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, num_classes)]
    return nn.Sequential(*layers)


def side_of(epoch: int, epochs: int, sides: tuple[int, int]) -> int:
    """Return the image size of an epoch: a ramp, in steps of 32."""
    return round((sides[0] + (sides[1] - sides[0]) * epoch / max(1, epochs - 1)) / 32) * 32


if __name__ == "__main__":
    main()
