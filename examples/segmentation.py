"""Train a segmentation network: masks follow their images through crop, flip and shift, in one file.

    python examples/segmentation.py                          # on synthetic shapes
    python examples/segmentation.py --images VOC/JPEGImages --masks VOC/SegmentationClass --num-classes 21 --side 320

A mask is an image file of the same name, whose levels are the classes (as in Pascal VOC); 255 is ignored by
loss and score. `FollowImage` gives a mask the crop of its image. It picks the nearest pixel, so no new classes appear.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from gpubeton.fields import ImageField, RGBImageField
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, FollowImage, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import (
    ColorJitter,
    NormalizeImage,
    RandomHorizontalFlip,
    RandomTranslate,
    ToDevice,
    ToTensor,
    ToTorchImage,
)
from gpubeton.writer import DatasetWriter

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
NO_CLASS = 255


class Pairs:
    """Images and their masks, from two folders."""

    def __init__(self, images: Path, masks: Path) -> None:
        by_name = {path.stem: path for path in images.iterdir()}
        self.pairs = [(by_name[path.stem], path) for path in sorted(masks.iterdir()) if path.stem in by_name]
        if not self.pairs:
            raise FileNotFoundError(f"{masks}: no file has the name of one in {images}, but for the ending")

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[Path, NDArray[np.uint8]]:
        """Return an image's file, and the classes of its pixels."""
        image, mask = self.pairs[index]
        with Image.open(mask) as opened:  # the classes are the palette's indices, not its colors
            classes = np.asarray(opened if opened.mode in ("P", "L") else opened.convert("L"))
        return image, classes


class Shapes:
    """Discs (class 1) and rectangles (class 2) of similar colors on noise; a border of 2 pixels has no class."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Draw an image of 72 x 96 pixels and its mask."""
        rng = np.random.default_rng(index)
        image, classes = rng.normal(90, 20, (72, 96, 3)), np.zeros((72, 96), np.uint8)
        y, x = np.mgrid[:72, :96]
        for kind in rng.permutation([1, 2]):
            centre_y, centre_x, size = rng.integers(12, 60), rng.integers(12, 84), rng.integers(9, 16)
            across, down = abs(x - centre_x), abs(y - centre_y)
            distance = np.hypot(across, down) if kind == 1 else np.maximum(across, down * 1.5)
            image[distance < size] += rng.uniform(30, 90, 3) * ([1, 1, 0.2] if kind == 1 else [0.2, 1, 1])
            classes[distance < size + 1] = NO_CLASS
            classes[distance < size - 1] = kind
        return image.clip(0, 255).astype(np.uint8), classes


class UNet(nn.Module):
    """Ronneberger et al. 2015 (arXiv 1505.04597), with batch normalization, and padding that keeps sizes."""

    def __init__(self, width: int, depth: int, num_classes: int) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            pair_of_layers(3 if level == 0 else widths[level - 1], widths[level]) for level in range(depth + 1)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(widths[level + 1], widths[level], 2, 2) for level in range(depth))
        self.join = nn.ModuleList(pair_of_layers(2 * widths[level], widths[level]) for level in range(depth))
        self.last = nn.Conv2d(width, num_classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of each pixel; sides have to be multiples of 2 to the power of the depth."""
        kept: list[Tensor] = []
        features = images
        for level, layers in enumerate(self.down):
            features = layers(features if level == 0 else nn.functional.max_pool2d(features, 2))
            kept.append(features)
        for up, join, beside in zip(reversed(self.up), reversed(self.join), reversed(kept[:-1]), strict=True):
            features = join(torch.cat([up(features), beside], 1))
        logits: Tensor = self.last(features)
        return logits


def pair_of_layers(inputs: int, outputs: int) -> nn.Sequential:
    """Make two convolutions with their normalizations and activations."""
    layers: list[nn.Module] = []
    for before in (inputs, outputs):
        layers += [nn.Conv2d(before, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def main(arguments: Sequence[str] | None = None) -> float:
    """Write the file, train and test.

    Returns
    -------
    float
        The mean over classes of the intersection over union on the test images.
    """
    options = options_of(arguments)
    torch.manual_seed(options.seed)
    device = torch.device("cuda:0" if torch.cuda.is_available() and options.device != "cpu" else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        path = options.beton or Path(folder) / "pairs.beton"
        dataset = Pairs(options.images, options.masks) if options.images else Shapes(options.shapes)
        if not path.exists():
            fields = {"image": RGBImageField(write_mode="jpg"), "mask": ImageField("gray", write_mode="png")}
            writer = DatasetWriter(path, fields, num_workers=1 if options.images is None else -1, progress=False)
            writer.from_indexed_dataset(dataset)
        shuffled = np.random.default_rng(0).permutation(len(dataset))
        test, train = np.split(shuffled, [max(1, len(shuffled) // 8)])
        network: nn.Module = UNet(options.width, 3, options.num_classes).to(device)
        loaders = [make_loader(path, options, device, part, training=part is train) for part in (train, test)]
        train_network(network, loaders[0], options)
        score = mean_overlap(network, loaders[1], options.num_classes)
        for loader in loaders:
            loader.close()
    print(f"mean intersection over union on {len(test)} images: {score:.3f}")
    return score


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, help="folder of images")
    parser.add_argument("--masks", type=Path, help="folder of masks with the same names")
    parser.add_argument("--beton", type=Path, help="where the file is kept, or is already")
    parser.add_argument("--shapes", type=int, default=512, help="made-up images, where there is no folder")
    parser.add_argument("--num-classes", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--side", type=int, default=64, help="of a crop, a multiple of 8")
    parser.add_argument("--width", type=int, default=16, help="channels of the first level")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--workers", type=int, default=-1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto")
    options = parser.parse_args(arguments)
    if (options.images is None) != (options.masks is None):
        parser.error("--images and --masks belong together")
    return options


def make_loader(
    path: Path, options: argparse.Namespace, device: torch.device, indices: NDArray[np.int64], *, training: bool
) -> Loader:
    """Make a loader of images and masks. The mask's pipeline has no crop: it uses the image's."""
    side = (options.side, options.side)
    if training:
        colors = ColorJitter(brightness=0.2, contrast=0.2)  # masks do not follow these
        image: list[Any] = [RandomResizedCropRGBImageDecoder(side, scale=(0.4, 1)), RandomHorizontalFlip()]
        image += [RandomTranslate(options.side // 16), colors]
    else:
        image = [CenterCropRGBImageDecoder(side, ratio=1)]
    image += [NormalizeImage(MEAN, STD, np.float32), ToTensor(), ToDevice(device), ToTorchImage()]
    # Pixels that a shift brings in from outside have no class.
    mask = [FollowImage("image", interpolation="nearest", fill=NO_CLASS), ToTensor(), ToDevice(device)]
    return Loader(
        path,
        options.batch_size,
        num_workers=options.workers,
        order=OrderOption.RANDOM if training else OrderOption.SEQUENTIAL,
        seed=options.seed,
        indices=indices,
        drop_last=training,
        pipelines={"image": image, "mask": mask},
    )


def train_network(network: nn.Module, loader: Loader, options: argparse.Namespace) -> None:
    """Train, and print the loss and the speed of each epoch."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=options.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=options.epochs * len(loader))
    for epoch in range(options.epochs):
        losses = []
        for images, masks in loader:
            classes = masks[..., 0].long()
            loss = nn.functional.cross_entropy(network(images), classes, ignore_index=NO_CLASS)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
        stats = loader.stats()
        speed = f"{stats.images_per_second:,.0f} images/s, {stats.waiting_share:.0%} of the time waiting for data"
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}; {speed}", flush=True)


@torch.no_grad()
def mean_overlap(network: nn.Module, loader: Loader, num_classes: int) -> float:
    """Return the mean intersection over union of the classes that occur."""
    network.eval()
    counts = torch.zeros(num_classes, num_classes, dtype=torch.int64)  # pixels by true and by predicted class
    for images, masks in loader:
        classes = masks[..., 0].long()
        found, known = network(images).argmax(1), classes != NO_CLASS
        pairs = classes[known] * num_classes + found[known]
        counts += torch.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes).cpu()
    both, either = counts.diagonal(), counts.sum(0) + counts.sum(1) - counts.diagonal()
    return float((both[either > 0] / either[either > 0]).mean())


if __name__ == "__main__":
    main()
