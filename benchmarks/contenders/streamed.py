"""What the streaming loaders share: samples of JPEG bytes, decoded and augmented with Pillow, as batches."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Any

import torch
from PIL import Image

from benchmarks.contenders.service import Ready
from benchmarks.harness.pillow_loader import PillowDataset, collate


class Augment(PillowDataset):
    """Make an image and its label of the bytes of a JPEG file and a label."""

    def __init__(self, side: int, crop: str = "random") -> None:
        super().__init__([], side, crop=crop)

    def __call__(self, jpeg: bytes, label: int) -> tuple[torch.Tensor, int]:
        """Decode and augment: float32, (3, side, side)."""
        with Image.open(io.BytesIO(jpeg)) as opened:
            return self.augment(opened.convert("RGB")), int(label)


def ready(package: str, open_epoch: Callable[[str], Iterable[Any]]) -> Ready:
    """Make a contender whose laps are epochs with an empty cache; `open_epoch` gets the folder of the cache."""

    def lap() -> Iterator[int]:
        folder = tempfile.mkdtemp(prefix="streamed-")
        try:
            yield from (len(images) for images, _ in open_epoch(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    os.environ.setdefault("S3_ENDPOINT_URL", os.environ["AWS_ENDPOINT_URL"])
    return Ready(lap, {name: version(name) for name in (package, "pillow", "torch")})


__all__ = ["Augment", "collate", "ready"]
