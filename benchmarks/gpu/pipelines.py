"""Pipelines that the GPU benchmarks and tests share."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.contenders.work import MEAN, STD
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
from gpubeton.transforms import (
    ColorJitter,
    Cutout,
    ImageMixup,
    NormalizeImage,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomTranslate,
    ToTensor,
    ToTorchImage,
)

__all__ = ["image_pipelines", "usual_pipeline"]


def usual_pipeline(side: int = 224, dtype: Any = np.float16) -> list[Any]:
    """Return the pipeline for ImageNet: random resized crop, flip, normalize, channels last."""
    normalize = [] if dtype == np.uint8 else [NormalizeImage(MEAN, STD, dtype)]
    return [
        RandomResizedCropRGBImageDecoder((side, side)),
        RandomHorizontalFlip(),
        *normalize,
        ToTensor(),
        ToTorchImage(),
    ]


def image_pipelines(side: int = 224) -> dict[str, list[Any]]:
    """Return pipelines that together use every kernel."""
    crop, flip, normalize = (
        RandomResizedCropRGBImageDecoder((side, side)),
        RandomHorizontalFlip(),
        NormalizeImage(MEAN, STD, np.float16),
    )
    views = [ToTensor(), ToTorchImage()]
    paints = [Cutout(max(side // 8, 1), (120, 110, 100)), RandomTranslate(max(side // 16, 1), (1, 2, 3))]
    bilinear = RandomResizedCropRGBImageDecoder((side, side), interpolation="bilinear")
    antialias = RandomResizedCropRGBImageDecoder((side, side), interpolation="antialias")
    bicubic = RandomResizedCropRGBImageDecoder((side, side), interpolation="bicubic")
    jitter = ColorJitter(0.4, 0.4, 0.4, 0.1)
    return {
        "float16": usual_pipeline(side),
        "float32": usual_pipeline(side, np.float32),
        "uint8": usual_pipeline(side, np.uint8),
        "bilinear": [bilinear, flip, normalize, *views],
        "antialias": [antialias, flip, normalize, *views],
        "bicubic": [bicubic, flip, normalize, *views],
        "paints": [crop, flip, *paints, normalize, *views],
        "colors": [crop, flip, jitter, RandomGrayscale(0.2), normalize, *views],
        "colors, erasing": [crop, flip, jitter, RandomErasing(0.5), normalize, *views],
        "mixup": [crop, flip, ImageMixup(0.2, same_lambda=False), normalize, *views],
    }
