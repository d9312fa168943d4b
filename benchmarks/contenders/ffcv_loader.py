"""FFCV's Loader; runs in the environment that ``benchmarks/ffcv_environment.sh`` makes."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
from ffcv.fields.basics import IntDecoder
from ffcv.fields.rgb_image import (
    CenterCropRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from ffcv.loader import Loader, OrderOption
from ffcv.pipeline.allocation_query import AllocationQuery
from ffcv.pipeline.compiler import Compiler
from ffcv.pipeline.operation import Operation
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

from benchmarks.contenders.own_operation import make_operation
from benchmarks.contenders.service import Ready, count_images, serve
from benchmarks.contenders.work import MEAN, STD, Work


def prepare(work: Work) -> Ready:
    """Make the loader."""
    image = [
        *_crop(work),
        *_operations(work.own_operation),
        ToTensor(),
        ToTorchImage(),
    ]
    loader = Loader(
        work.beton,
        batch_size=work.batch_size,
        num_workers=work.cores,
        order=OrderOption.RANDOM,
        seed=0,
        indices=np.tile(np.arange(work.images), work.passes),
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
        drop_last=True,
    )
    return Ready(
        lambda: count_images(loader),
        {name: version(name) for name in ("ffcv", "numba", "numpy", "opencv-python-headless", "torch")},
    )


def _crop(work: Work) -> list[Operation]:
    """Return the decoder, and the flip of a training."""
    if work.crop == "center":
        return [CenterCropRGBImageDecoder((work.side, work.side), ratio=work.side / work.shorter)]
    whole = SimpleRGBImageDecoder() if work.crop == "whole" else None
    return [whole or RandomResizedCropRGBImageDecoder((work.side, work.side)), RandomHorizontalFlip()]


def _operations(name: str) -> list[Operation]:
    """Return the operations between flip and tensor."""
    operation = [make_operation(Operation, Compiler, AllocationQuery)()] if name in ("with", "instead") else []
    return operation + (
        [] if name in ("bare", "instead") else [NormalizeImage(np.array(MEAN), np.array(STD), np.float16)]
    )


if __name__ == "__main__":
    serve(prepare)
