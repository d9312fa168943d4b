"""PyTorch's DataLoader, tuned: persistent workers, which normalize in place and send float16, channels last."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.work import Work
from benchmarks.harness.photos import list_photos
from benchmarks.harness.pillow_loader import PillowDataset, pillow_loader


def prepare(work: Work) -> Ready:
    """Make the loader."""
    photos = list_photos(Path(work.folder))
    classes = sorted({name for _, name in photos})
    files = [(path, classes.index(name)) for path, name in photos] * work.passes
    dataset = PillowDataset(files, work.side, crop=work.crop)
    loader = pillow_loader(dataset, work.batch_size, work.cores, drop_last=True)
    return Ready(lambda: (len(images) for images, _ in loader), {name: version(name) for name in ("pillow", "torch")})


if __name__ == "__main__":
    serve(prepare)
