"""Pipelines that the benchmarks and tests of the GPU share: what FFCV's users write, and what is new beside it."""

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
    """Give the pipeline of ImageNet's training: random resized crop, flip, normalise, channels last.

    Parameters
    ----------
    side : int
        Height and width of the result.
    dtype : dtype
        Of the result.

    Returns
    -------
    list of Operation
        The pipeline.
    """
    normalize = [] if dtype == np.uint8 else [NormalizeImage(MEAN, STD, dtype)]
    return [
        RandomResizedCropRGBImageDecoder((side, side)),
        RandomHorizontalFlip(),
        *normalize,
        ToTensor(),
        ToTorchImage(),
    ]


def image_pipelines(side: int = 224) -> dict[str, list[Any]]:
    """Give pipelines that together use every kernel.

    Parameters
    ----------
    side : int
        Height and width of the result.

    Returns
    -------
    dict of str to list of Operation
        By name.
    """
    crop, flip, normalize = (
        RandomResizedCropRGBImageDecoder((side, side)),
        RandomHorizontalFlip(),
        NormalizeImage(MEAN, STD, np.float16),
    )
    views = [ToTensor(), ToTorchImage()]
    paints = [Cutout(max(side // 8, 1), (120, 110, 100)), RandomTranslate(max(side // 16, 1), (1, 2, 3))]
    bilinear = RandomResizedCropRGBImageDecoder((side, side), interpolation="bilinear")
    antialias = RandomResizedCropRGBImageDecoder((side, side), interpolation="antialias")
    jitter = ColorJitter(0.4, 0.4, 0.4, 0.1)
    return {
        "float16": usual_pipeline(side),
        "float32": usual_pipeline(side, np.float32),
        "uint8": usual_pipeline(side, np.uint8),
        "bilinear": [bilinear, flip, normalize, *views],
        "antialias": [antialias, flip, normalize, *views],
        "paints": [crop, flip, *paints, normalize, *views],
        "colours": [crop, flip, jitter, RandomGrayscale(0.2), normalize, *views],
        "colours, erasing": [crop, flip, jitter, RandomErasing(0.5), normalize, *views],
        "mixup": [crop, flip, ImageMixup(0.2, same_lambda=False), normalize, *views],
    }
