"""PyTorch's DataLoader as in its ImageNet example, with torchvision's transforms on Pillow images."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import torch

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.work import Work
from benchmarks.harness.photos import list_photos
from benchmarks.harness.pillow_loader import PillowDataset, example_loader


def prepare(work: Work) -> Ready:
    """Make the loader."""
    photos = list_photos(Path(work.folder))
    classes = sorted({name for _, name in photos})
    files = [(path, classes.index(name)) for path, name in photos] * work.passes
    loader = example_loader(
        PillowDataset(files, work.side, is_tuned=False, crop=work.crop), work.batch_size, work.cores
    )

    def lap() -> Iterator[int]:
        # The other contenders return float16, channels last; here the training loop converts.
        batches = (images.to(torch.float16, memory_format=torch.channels_last) for images, _ in loader)
        return map(len, batches)

    return Ready(lap, {name: version(name) for name in ("pillow", "torch")})


if __name__ == "__main__":
    serve(prepare)
