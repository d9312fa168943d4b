"""torchvision on the GPU: ``decode_jpeg`` for a batch of files at once, then its transforms v2."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import ExitStack
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from benchmarks.contenders.work import MEAN, STD
from benchmarks.gpu.contenders.service import Ready, serve, wait_for_current_stream
from benchmarks.gpu.contenders.work import GpuWork
from benchmarks.gpu.simulation import is_simulated
from gpubeton.format.index import Index


def prepare(work: GpuWork, _: ExitStack) -> Ready:
    """Load the files into memory as tensors for `decode_jpeg`."""
    torch.set_num_threads(work.cores or torch.get_num_threads())
    # Without a GPU, torchvision's CPU decoder takes its place.
    device = "cpu" if is_simulated() else "cuda:0"
    io: Any = import_module("torchvision.io")
    v2: Any = import_module("torchvision.transforms.v2")
    vary = v2.Compose([v2.RandomResizedCrop(work.side, antialias=True), v2.RandomHorizontalFlip()])
    finish = v2.Compose([v2.ToDtype(torch.float32), v2.Normalize(MEAN, STD), v2.ToDtype(torch.float16)])
    files = _files(work.beton)

    def batches() -> Generator[int, None, None]:
        while True:
            chosen = random.sample(files, work.batch_size) if len(files) >= work.batch_size else files
            images = io.decode_jpeg(chosen, mode=io.ImageReadMode.RGB, device=device)
            batch = finish(torch.stack([vary(image) for image in images]))
            batch = batch.to(memory_format=torch.channels_last)
            yield len(batch)

    return Ready(batches, wait_for_current_stream, 3, {name: version(name) for name in ("torch", "torchvision")})


def _files(beton: str) -> list[torch.Tensor]:
    regions = Index.open(beton).regions("image")
    content = np.memmap(beton, np.uint8, "r")
    places = zip(regions.offset.tolist(), regions.size.tolist(), strict=True)
    return [torch.from_numpy(np.array(content[start : start + size])) for start, size in places]


if __name__ == "__main__":
    serve(prepare)
