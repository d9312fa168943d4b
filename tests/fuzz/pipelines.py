"""Random pipelines: each sample has the same bits with 1, 2 and 7 workers, in batches of any size, mapped and read."""

from __future__ import annotations

import numpy as np
import torch

from gpubeton.errors import PipelineError
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import (
    AugMix,
    AutoAugment,
    ColorJitter,
    Cutout,
    NormalizeImage,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomApply,
    RandomAutocontrast,
    RandomBrightness,
    RandomChoice,
    RandomContrast,
    RandomEqualize,
    RandomErasing,
    RandomGaussianBlur,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomHSV,
    RandomInvert,
    RandomOrder,
    RandomPerspective,
    RandomPosterize,
    RandomRotation,
    RandomSaturation,
    RandomSolarization,
    RandomTranslate,
    RandomVerticalFlip,
    ToTensor,
    ToTorchImage,
    TrivialAugmentWide,
)
from tests.fuzz.campaign import Outcome, rng_of, workers
from tests.small_files import picture, write

_SAMPLES = 40
_STEPS = (
    RandomHorizontalFlip,
    lambda: Cutout(5),
    lambda: Cutout(3, (1, 2, 3)),
    lambda: RandomTranslate(3),
    lambda: RandomErasing(0.7),
    lambda: RandomBrightness(0.5, 0.7),
    lambda: RandomContrast(0.5, 0.7),
    lambda: RandomSaturation(0.5, 0.7),
    lambda: RandomSolarization(100, 0.5),
    lambda: RandomPosterize(3),
    RandomInvert,
    RandomEqualize,
    RandomAutocontrast,
    lambda: RandomGrayscale(0.5),
    lambda: ColorJitter(0.4, 0.4, 0.4, 0.1),
    lambda: RandomGaussianBlur(5),
    lambda: RandomAdjustSharpness(2),
    lambda: RandomRotation(30),
    lambda: RandomAffine(10, (0.1, 0.1)),
    RandAugment,
    TrivialAugmentWide,
    RandomVerticalFlip,
    RandomPerspective,
    RandomHSV,
    lambda: AutoAugment("cifar10"),
    AugMix,
    lambda: RandomChoice([RandomOrder([Cutout(2), RandomRotation(9)]), RandomApply([ColorJitter(0.4)])]),
)


class Campaign:
    def __init__(self, seed, folder):
        self.seed, self.paths = seed, []
        for mode in ("jpg", "raw"):
            path = folder / f"{mode}.beton"
            samples = [(picture(i, 20 + i % 13, 35 - i % 9), i) for i in range(_SAMPLES)]
            self.paths.append(write(path, {"image": RGBImageField(mode), "label": IntField()}, samples))

    def close(self):
        return []

    def case(self, number):
        rng = rng_of(self.seed, number)
        path, pipeline = self.paths[int(rng.integers(2))], _pipeline(rng)
        names = ", ".join(type(step).__name__ for step in pipeline)
        ways = [
            {"batch_size": int(rng.integers(1, 20)), "num_workers": workers(count), "os_cache": bool(rng.integers(2))}
            for count in (1, 2, 7)
        ]
        try:
            rows = [_rows(path, pipeline, self.seed, **way) for way in ways]
        except PipelineError:
            return [Outcome("cannot be planned")]
        for way, other in zip(ways[1:], rows[1:], strict=True):
            differ = [i for i in range(_SAMPLES) if not torch.equal(rows[0][i], other[i])]
            if differ:
                return [Outcome("other bits", f"samples {differ[:5]}; {ways[0]} and {way}; {names}")]
        return [Outcome("the same bits in three ways")]


def _pipeline(rng):
    size = int(rng.integers(6, 40)), int(rng.integers(6, 40))
    decoder = (RandomResizedCropRGBImageDecoder(size), CenterCropRGBImageDecoder(size, 0.9))[int(rng.integers(2))]
    chosen = rng.choice(len(_STEPS), int(rng.integers(0, 5)), replace=False).tolist()
    steps = [_STEPS[i]() for i in chosen]
    if rng.random() < 0.4:
        element = (np.float16, np.float32)[int(rng.integers(2))]
        steps.append(NormalizeImage([120, 110, 100], [60, 50, 70], element))
    return [decoder, *steps, ToTensor(), *([ToTorchImage()] if rng.random() < 0.5 else [])]


def _rows(path, pipeline, seed, **way):
    """What each sample becomes in epoch 1."""
    loader = Loader(path, order="random", seed=seed, drop_last=False, pipelines={"image": pipeline}, **way)
    try:
        loader.set_epoch(1)
        return {int(label): row.clone() for images, labels in loader for row, label in zip(images, labels, strict=True)}
    finally:
        loader.close()
