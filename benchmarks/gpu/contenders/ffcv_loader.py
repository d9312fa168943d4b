"""FFCV's Loader, and the copy to the GPU; runs in the environment that ``benchmarks/ffcv_environment.sh`` makes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from importlib.metadata import version

import numpy as np
import torch
from ffcv.fields.basics import IntDecoder
from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToDevice, ToTensor, ToTorchImage

from benchmarks.contenders.work import MEAN, STD
from benchmarks.gpu.contenders.service import Ready, serve, wait_for_current_stream
from benchmarks.gpu.contenders.work import GpuWork
from benchmarks.gpu.simulation import is_simulated
from gpubeton._machine import count_cores

_BATCHES_AHEAD = 3


def prepare(work: GpuWork, _: ExitStack) -> Ready:
    """Make the loader."""
    device = torch.device("cpu" if is_simulated() else "cuda:0")
    loader = Loader(
        work.beton,
        batch_size=work.batch_size,
        num_workers=work.cores or count_cores(),
        order=OrderOption.RANDOM,
        seed=0,
        indices=np.tile(np.arange(work.images), 100),
        pipelines={
            "image": [
                RandomResizedCropRGBImageDecoder((work.side, work.side)),
                RandomHorizontalFlip(),
                NormalizeImage(np.array(MEAN), np.array(STD), np.float16),
                ToTensor(),
                ToTorchImage(),
                ToDevice(device, non_blocking=True),
            ],
            "label": [IntDecoder(), ToTensor(), Squeeze(), ToDevice(device, non_blocking=True)],
        },
        drop_last=True,
        batches_ahead=_BATCHES_AHEAD,
    )

    def batches() -> Generator[int, None, None]:
        # FFCV cannot stop in an epoch: the next lap continues it.
        while True:
            for images, _ in epochs[-1]:
                yield len(images)
            epochs[:] = [iter(loader)]

    epochs = [iter(loader)]
    names = ("ffcv", "numba", "numpy", "opencv-python-headless", "torch")
    return Ready(batches, wait_for_current_stream, _BATCHES_AHEAD + 3, {name: version(name) for name in names})


if __name__ == "__main__":
    serve(prepare)
