"""gpubeton's Loader on the CPU."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, cast

import numpy as np

from benchmarks.contenders.own_operation import make_operation
from benchmarks.contenders.service import Ready, count_images, serve
from benchmarks.contenders.work import MEAN, STD, Work
from benchmarks.recipe_cases import pipelines_of
from gpubeton.fields.basics import IntDecoder
from gpubeton.fields.rgb_image import (
    CenterCropRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.loader import Loader, OrderOption
from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.interpolation import Interpolation
from gpubeton.pipeline.operation import Operation
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage


def make_loader(work: Work, **changes: Any) -> Loader:
    """Make the loader, with `changes` of its arguments; one epoch is a lap."""
    image = [
        *_crop(work),
        *_operations(work.own_operation),
        ToTensor(),
        ToTorchImage(),
    ]
    images = pipelines_of(work.recipe, work.side) if work.recipe else {"image": image}
    arguments = {
        "batch_size": work.batch_size,
        "num_workers": work.cores,
        "order": OrderOption.RANDOM,
        "seed": 0,
        "indices": np.tile(np.arange(work.images), work.passes),
        "pipelines": {**images, "label": [IntDecoder(), ToTensor(), Squeeze()]},
        "device": "cpu",
    }
    return Loader(work.beton, **{**arguments, **changes})


def prepare(work: Work) -> Ready:
    """Make the loader."""
    loader = make_loader(work)
    return Ready(lambda: count_images(loader), {name: version(name) for name in ("numba", "numpy", "torch")})


def _crop(work: Work) -> list[Operation]:
    """Return the decoder, and the flip of a training."""
    size, interpolation = (work.side, work.side), cast("Interpolation", work.interpolation)
    if work.crop == "center":
        return [CenterCropRGBImageDecoder(size, work.side / work.shorter, interpolation)]
    if work.crop == "whole":
        return [SimpleRGBImageDecoder(), RandomHorizontalFlip()]
    return [RandomResizedCropRGBImageDecoder(size, interpolation=interpolation), RandomHorizontalFlip()]


def _operations(name: str) -> list[Operation]:
    """Return the operations between flip and tensor."""
    operation = [make_operation(Operation, Compiler, AllocationQuery)()] if name in ("with", "instead") else []
    return operation + ([] if name in ("bare", "instead") else [NormalizeImage(MEAN, STD, np.float16)])


if __name__ == "__main__":
    serve(prepare)
