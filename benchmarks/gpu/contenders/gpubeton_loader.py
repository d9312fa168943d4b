"""gpubeton's Loader on the GPU, by each of its decoders, and on the CPU; with and without entry points."""

from __future__ import annotations

from contextlib import ExitStack, closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.service import count_images
from benchmarks.contenders.work import MEAN, STD
from benchmarks.gpu.contenders.service import Ready, serve, wait_for_current_stream
from benchmarks.gpu.contenders.work import GpuWork
from benchmarks.gpu.photos import indexed_name
from benchmarks.gpu.simulation import is_simulated, simulated_gpu
from gpubeton._gpu.options import GpuOptions
from gpubeton.fields.decoders import IntDecoder
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToDevice, ToTensor, ToTorchImage

# Images of an epoch: more than a lap needs, because a new epoch would start with an empty pipeline.
_EPOCH = 1 << 20

# Options, and whether the file has entry points.
_VARIANTS: dict[str, tuple[GpuOptions | None, bool]] = {
    "engines": (GpuOptions(routes=("hardware",)), False),
    "own kernels": (GpuOptions(routes=("entries",), resident=False), True),
    "own kernels, resident": (GpuOptions(routes=("entries",), resident=True), True),
    "decoded by the CPU": (GpuOptions(routes=()), False),
    "decoded by the CPU, indexed": (GpuOptions(routes=()), True),
    "CPU": (None, False),
    "CPU, indexed": (None, True),
}


def prepare(work: GpuWork, stack: ExitStack) -> Ready:
    """Make the loader of a variant."""
    if is_simulated():
        stack.enter_context(simulated_gpu())
    options, is_indexed = _VARIANTS[work.variant]
    arguments: dict[str, Any] = {"device": "cuda:0", "gpu_options": options}
    moves = []
    if options is None:
        arguments = {"device": "cpu"}
        moves = [ToDevice("cuda:0")]
    loader = stack.enter_context(closing(Loader(
        indexed_name(Path(work.beton)) if is_indexed else work.beton,
        work.batch_size,
        num_workers=work.cores or -1,
        order=OrderOption.RANDOM,
        seed=0,
        indices=np.arange(_EPOCH) % work.images,
        pipelines={
            "image": [
                RandomResizedCropRGBImageDecoder((work.side, work.side)),
                RandomHorizontalFlip(),
                NormalizeImage(MEAN, STD, np.float16),
                ToTensor(),
                ToTorchImage(),
                *moves,
            ],
            "label": [IntDecoder(), ToTensor(), Squeeze(), *moves],
        },
        drop_last=True,
        **arguments,
    )))  # fmt: skip

    versions = {name: version(name) for name in ("numba", "numpy", "torch")}
    return Ready(lambda: count_images(loader), wait_for_current_stream, loader.batches_ahead + 3, versions)


if __name__ == "__main__":
    serve(prepare)
