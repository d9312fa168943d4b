"""torchvision's transforms v2 on the GPU, of what its ``decode_jpeg`` or pynvjpeg has decoded."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from benchmarks.contenders.work import MEAN, STD
from benchmarks.gpu.contenders.service import Ready, serve, wait_for_current_stream
from benchmarks.gpu.contenders.work import GpuWork
from benchmarks.gpu.simulation import is_simulated
from gpubeton.format.dataset import open_dataset


def prepare(work: GpuWork, _: ExitStack) -> Ready:
    """Load the files into memory. Variants: "torchvision", "pynvjpeg"."""
    torch.set_num_threads(work.cores or torch.get_num_threads())
    decode = _pynvjpeg() if work.variant == "pynvjpeg" and not is_simulated() else _torchvision()
    v2: Any = import_module("torchvision.transforms.v2")
    vary = v2.Compose([v2.RandomResizedCrop(work.side, antialias=True), v2.RandomHorizontalFlip()])
    finish = v2.Compose([v2.ToDtype(torch.float32), v2.Normalize(MEAN, STD), v2.ToDtype(torch.float16)])
    files = _files(work.beton)

    def batches() -> Generator[int, None, None]:
        while True:
            chosen = random.sample(files, work.batch_size) if len(files) >= work.batch_size else files
            batch = finish(torch.stack([vary(image) for image in decode(chosen)]))
            batch = batch.to(memory_format=torch.channels_last)
            yield len(batch)

    packages = dict.fromkeys(["torch", "torchvision", work.variant])
    return Ready(batches, wait_for_current_stream, 3, {name: version(name) for name in packages})


def _torchvision() -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """Decode a batch of files at once; without a GPU, on the CPU."""
    io: Any = import_module("torchvision.io")
    device = "cpu" if is_simulated() else "cuda:0"
    return partial(io.decode_jpeg, mode=io.ImageReadMode.RGB, device=device)


def _pynvjpeg() -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """Decode one image at a time, into the memory of the host, blue first."""
    decoder: Any = import_module("nvjpeg").NvJpeg()

    def decode(files: list[torch.Tensor]) -> list[torch.Tensor]:
        images = (torch.from_numpy(decoder.decode(file.numpy().tobytes())) for file in files)
        return [image.to("cuda:0").flip(2).permute(2, 0, 1) for image in images]

    return decode


def _files(beton: str) -> list[torch.Tensor]:
    regions = open_dataset(beton).regions("image")
    content = np.memmap(beton, np.uint8, "r")
    places = zip(regions.offset.tolist(), regions.size.tolist(), strict=True)
    return [torch.from_numpy(np.array(content[start : start + size])) for start, size in places]


if __name__ == "__main__":
    serve(prepare)
