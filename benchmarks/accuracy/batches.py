"""The same batches twice: made by gpubeton, and by Pillow and NumPy from the draws of gpubeton's plan.

Order, crops and flips of both are those of the plan, so that only pixels can differ. `FAULTS` are mistakes of the kind
that loaders have had: batches with one of them have to be told from the reference.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import simplejpeg
import torch
from numpy.typing import NDArray
from PIL import Image

from gpubeton.dataset import Contents
from gpubeton.fields.decoders import IntDecoder
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.pipeline.pipeline_spec import DrawnParameters
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
from tests.reference.weights import resize

__all__ = [
    "EXACT",
    "FAULTS",
    "GPUBETON",
    "MEAN",
    "NUDGED",
    "REFERENCE",
    "STD",
    "Arm",
    "Batch",
    "batches",
    "decoded",
    "open_loader",
]

CROP = 40  # pixels of a side that the network gets
MEAN, STD = np.array([118.0, 96.0, 82.0]), np.array([75.0, 62.0, 58.0])  # of the images, in levels
_SCALE, _RATIO = (0.5, 1.0), (0.8, 1.25)
_CENTER = 0.875


class Batch(NamedTuple):
    """Images and labels for the network."""

    images: torch.Tensor  # (N, 3, CROP, CROP) float32, normalized
    labels: torch.Tensor  # (N,) int64


@dataclass(frozen=True)
class Arm:
    """A way to make batches."""

    name: str
    maker: Literal["gpubeton", "pillow", "float64"] = "gpubeton"  # float64 is not rounded to levels
    is_nudged: bool = False  # train from weights that differ in their last bits
    interpolation: Literal["antialias", "bilinear"] = "antialias"
    is_fast: bool = False  # decode with libjpeg-turbo's fast DCT
    shift: int = 0  # pixels that each crop is moved to the right and down, as far as the image goes
    flips_all: bool = False  # of the images to train with
    scale: float = 1.0  # of mean and standard deviation
    change: Callable[[Batch, NDArray[np.int64]], Batch] = field(default=lambda batch, _: batch)


def _shift_labels(batch: Batch, numbers: NDArray[np.int64]) -> Batch:
    """Give the label of the next class to one image in a hundred, always the same ones."""
    shifted = torch.from_numpy(numbers % 100 == 17)
    return batch._replace(labels=torch.where(shifted, (batch.labels + 1) % 200, batch.labels))


REFERENCE, GPUBETON = Arm("Pillow and NumPy", "pillow"), Arm("gpubeton")
EXACT = Arm("float64", "float64")

#: The reference once more: how far do two trainings drift apart that differ in rounding alone?
NUDGED = replace(REFERENCE, name="Pillow and NumPy, nudged", is_nudged=True)

#: Mistakes, each of which the comparison has to notice.
FAULTS = (
    Arm("1 % of the labels shifted", change=_shift_labels),
    Arm("bilinear in place of antialias", interpolation="bilinear"),
    Arm("blue, green, red", change=lambda batch, _: batch._replace(images=batch.images.flip(1))),
    replace(REFERENCE, name="crops 8 pixels off", shift=8),
    Arm("mean and std not times 255", scale=1 / 255),
    replace(REFERENCE, name="fast DCT", is_fast=True),
    replace(REFERENCE, name="every image flipped", flips_all=True),
)


def decoded(path: Path, *, is_fast: bool = False) -> NDArray[np.uint8]:  # (samples, height, width, 3)
    """Decode all images of a file with Pillow, or with libjpeg-turbo's fast DCT; the pixels stay in a file beside."""
    pixels_file = path.with_suffix(".fast.npy" if is_fast else ".npy")
    if not pixels_file.is_file():
        contents = Contents(path)
        files = (contents.stored(number, "image") for number in range(contents.index.num_samples))
        if is_fast:
            pixels = [simplejpeg.decode_jpeg(file, fastdct=True) for file in files]
        else:
            pixels = [np.asarray(Image.open(io.BytesIO(file))) for file in files]
        new = pixels_file.with_suffix(".new.npy")
        np.save(new, np.stack(pixels))
        new.replace(pixels_file)
    mapped: NDArray[np.uint8] = np.load(pixels_file, mmap_mode="r")
    return mapped


def batches(path: Path, arm: Arm, *, seed: int, epochs: int, batch_size: int) -> Iterator[Batch]:
    """Give the batches of some epochs of training; with no epoch, those of a test, in the order of the file."""
    pixels = None if arm.maker == "gpubeton" else decoded(path, is_fast=arm.is_fast)
    with open_loader(path, arm, seed=seed, batch_size=batch_size, is_training=epochs > 0) as loader:
        for _ in range(max(epochs, 1)):
            for images, labels, numbers, drawn in loader:
                batch = Batch(images, labels.to(torch.int64))
                if pixels is not None:
                    crops = drawn["crop"].numpy()
                    flips = drawn["RandomHorizontalFlip"].numpy() | (arm.flips_all and epochs > 0)
                    batch = batch._replace(images=_reference(pixels, arm, numbers.numpy(), crops, flips))
                yield arm.change(batch, numbers.numpy())


def open_loader(
    path: Path, arm: Arm, *, seed: int, batch_size: int, is_training: bool, on_error: Any = "raise"
) -> Loader:
    """Open a loader of images, labels, numbers and draws: with random crops and flips, or of the test's images."""
    crop = (
        RandomResizedCropRGBImageDecoder((CROP, CROP), _SCALE, _RATIO, interpolation=arm.interpolation)
        if is_training
        else CenterCropRGBImageDecoder((CROP, CROP), _CENTER, interpolation=arm.interpolation)
    )
    image: list[Any] = [crop, RandomHorizontalFlip(0.5 if is_training else 0.0)]
    with warnings.catch_warnings():
        if arm.scale != 1:  # a planted mistake, which the library notices
            warnings.simplefilter("ignore", UserWarning)
        normalize = NormalizeImage(MEAN * arm.scale, STD * arm.scale, np.float32)
    image += [normalize, ToTensor(), ToTorchImage()]
    label = [IntDecoder(), ToTensor(), Squeeze(1)]
    return Loader(
        path,
        batch_size,
        num_workers=1,
        order=OrderOption.RANDOM if is_training else OrderOption.SEQUENTIAL,
        seed=seed,
        drop_last=is_training,
        pipelines={"image": image, "label": label, "number": label, "drawn": DrawnParameters("image")},
        on_error=on_error,
        device="cpu",
    )


def _reference(
    decoded: NDArray[np.uint8], arm: Arm, numbers: NDArray[Any], crops: NDArray[Any], flips: NDArray[np.bool_]
) -> torch.Tensor:  # (N, 3, CROP, CROP)
    """Make the images of a batch: crop and resize with Pillow or in float64, flip and normalize in float64."""
    images = np.empty((len(numbers), CROP, CROP, 3))
    for row, (number, (top, left, height, width)) in enumerate(zip(numbers, crops, strict=True)):
        pixels = decoded[number]
        row_from = min(top + arm.shift, pixels.shape[0] - height)
        column_from = min(left + arm.shift, pixels.shape[1] - width)
        part = pixels[row_from : row_from + height, column_from : column_from + width]
        if arm.maker == "float64":
            resized = resize(part, (CROP, CROP), arm.interpolation)
        else:
            resized = np.asarray(Image.fromarray(part).resize((CROP, CROP), Image.Resampling.BILINEAR))
        images[row] = resized[:, ::-1] if flips[row] else resized
    normalized = ((images - MEAN) / STD).astype(np.float32)
    return torch.from_numpy(normalized).permute(0, 3, 1, 2)
