"""Check whether nvJPEG reports success for images that it has not written, or only in part."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.contenders.work import MEAN, STD
from benchmarks.gpu.hazards.finding import Finding
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder
from gpubeton.format.index import Index
from gpubeton.gpu.batch_state import BatchState
from gpubeton.gpu.gpu_executor import GpuExecutor
from gpubeton.loader import Loader
from gpubeton.transforms import NormalizeImage, ToTensor, ToTorchImage

__all__ = ["is_every_image_written"]


def is_every_image_written(
    beton: str, *, images: int = 1_000_000, seconds: float = 60, batch_size: int = 256
) -> Finding:
    """Decode with the engines repeatedly, and count images whose sentinel is still there, and batches that differ.

    The same epoch is loaded each time: every batch must equal the first one, bit by bit.
    """
    counts: dict[str, Any] = {"images": 0, "repaired": 0, "batches": 0, "batches_not_the_same": 0}
    image = [
        CenterCropRGBImageDecoder((64, 64), 0.9),
        NormalizeImage(MEAN, STD, np.float16),
        ToTensor(),
        ToTorchImage(),
    ]
    decode_again = GpuExecutor.decode_again

    def counting(own: GpuExecutor, batch: BatchState) -> None:
        counts["repaired"] += len(batch.left_out)
        decode_again(own, batch)

    start = time.perf_counter()
    batch_size = min(batch_size, Index.open(beton).num_samples)
    with mock.patch.object(GpuExecutor, "decode_again", counting):
        loader = Loader(
            beton,
            batch_size,
            num_workers=1,
            seed=0,
            pipelines={"image": image, "label": None},
            device="cuda:0",
        )
        with closing(loader):
            first: list[int] = []
            while counts["images"] < images and not _is_over(start + seconds, loader, counts):
                loader.set_epoch(0)
                sums = _sums(loader, counts, partial(_is_over, start + seconds, loader, counts))
                first = first or sums
                counts["batches_not_the_same"] += sum(a != b for a, b in zip(first, sums, strict=False))
    counts["seconds"] = time.perf_counter() - start
    repeated = counts["images"] - len(first) * batch_size
    verdict = (
        f"{counts['images']:,} images decoded: {counts['repaired']} were not written although nvJPEG reported success, "
        f"{counts['batches_not_the_same']} of {counts['batches']:,} batches differ from the first time"
    )
    question = "Does success mean that an image was written, each time the same?"
    # The design expects and repairs images with a sentinel, but not pixels that differ without one.
    return Finding("sentinels", question, verdict, counts, repeated > 0 and not counts["batches_not_the_same"])


def _is_over(end: float, loader: Loader, counts: dict[str, Any]) -> bool:
    """Whether the time is up and there are batches to compare."""
    return counts["batches"] > len(loader) and time.perf_counter() > end


def _sums(loader: Loader, counts: dict[str, Any], is_over: Callable[[], bool]) -> list[int]:
    """Sum the bits of each batch of an epoch on the GPU; stop early when the time is up."""
    import torch

    sums = []
    iterator = iter(loader)
    with closing(iterator):
        for (batch,) in iterator:
            bits = batch.permute(0, 2, 3, 1).reshape(-1).view(torch.int16)
            sums.append((bits.long() * torch.arange(1, len(bits) + 1, device=bits.device)).sum())
            counts["images"] += len(batch)
            counts["batches"] += 1
            if is_over():
                break
    return torch.stack(sums).cpu().tolist() if sums else []
