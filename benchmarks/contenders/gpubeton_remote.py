"""gpubeton's Loader over a file of this machine, of a web server, or of the cache of the node.

The first line on stdin is the work; each further line starts an epoch, and is answered with its figures.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.contenders.work import MEAN, STD
from benchmarks.harness.timing import time_lap
from gpubeton._plan.page_plan import PagePlan
from gpubeton.fields.basics import IntDecoder
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

__all__ = ["RemoteWork", "make_loader", "pages_in_use"]


@dataclass(frozen=True)
class RemoteWork:
    """Random resized crop, flip and normalize to float16, channels last, in window order."""

    beton: str  # path or URL
    workers: int
    streams: int  # of the window order
    width: int
    cache_dir: str = ""
    batch_size: int = 256


def make_loader(work: RemoteWork) -> Loader:
    """Make the loader."""
    image = [
        RandomResizedCropRGBImageDecoder((224, 224), interpolation="bilinear"),
        RandomHorizontalFlip(),
        NormalizeImage(MEAN, STD, np.float16),
        ToTensor(),
        ToTorchImage(),
    ]
    return Loader(
        work.beton,
        work.batch_size,
        num_workers=work.workers,
        order="window",
        order_kwargs={"streams": work.streams, "width": work.width},
        seed=0,
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
        device="cpu",
        cache_dir=work.cache_dir or None,
        cache_limit="20 GB" if work.cache_dir else None,
    )


def pages_in_use(loader: Loader) -> int:
    """Bytes of the pages that an epoch has in memory at a time, those asked for ahead not included."""
    plan = loader.plan(0)
    regions = [region for source in plan.sources for region in source.regions]
    return PagePlan(plan.batches, regions, loader.reader.index.files, in_work=5).in_use[1]


def _serve() -> None:
    # stdout is for the answers: libraries that print get stderr instead.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    loader = make_loader(RemoteWork(**json.loads(sys.stdin.readline())))
    answers.write(json.dumps({"pages_in_use": pages_in_use(loader)}) + "\n")
    while sys.stdin.readline():
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # reset the recorded peak
        lap = time_lap(lambda: sum(len(images) for images, _ in loader))
        stats = loader.stats()
        figures = {
            "images": lap.images,
            "wall_seconds": lap.wall_seconds,
            "cpu_seconds": lap.cpu_seconds,
            "peak_bytes": _peak_memory(),
            "used_bytes": stats.stored_bytes,
            # By the loader's count: a server cannot see which epoch the parts asked for ahead belong to.
            "requests": stats.requests,
            "sent_bytes": stats.fetched_bytes,
            "first_wait_seconds": stats.first_wait_seconds,
        }
        answers.write(json.dumps(figures) + "\n")


def _peak_memory() -> int:
    """Largest memory of this process, files that are mapped not included."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return 1024 * (int(lines["VmHWM"].split()[0]) - int(lines["RssFile"].split()[0]))


if __name__ == "__main__":
    _serve()
