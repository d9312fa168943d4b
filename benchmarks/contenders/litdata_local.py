"""LitData's StreamingDataset and StreamingDataLoader over files of this machine, which LitData wrote."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from litdata import StreamingDataLoader, StreamingDataset, optimize

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.streamed import Augment, collate
from benchmarks.contenders.work import Work
from benchmarks.harness.photos import list_photos

_CHUNK = 64 << 20  # bytes; LitData's default


class Images(StreamingDataset):  # type: ignore[misc]  # published without types
    """Augmented images of an optimized dataset."""

    def __init__(self, augment: Augment, folder: str) -> None:
        super().__init__(folder, shuffle=True, drop_last=True)
        self.augment = augment

    def __getitem__(self, index: Any) -> Any:
        """Return an image and its label."""
        return self.augment(super().__getitem__(index), 0)


def write(photos: Path) -> Path:
    """Write the files, or use existing ones."""
    folder, unfinished = (photos.with_name(f"{photos.name}-{name}") for name in ("litdata", "litdata-unfinished"))
    if not folder.exists():
        shutil.rmtree(unfinished, ignore_errors=True)
        files = [os.fspath(path) for path, _ in list_photos(photos)]
        optimize(read, files, str(unfinished), chunk_bytes=_CHUNK, num_workers=1)
        unfinished.rename(folder)
    return folder


def read(path: str) -> bytes:
    """Read a photo."""
    return Path(path).read_bytes()


def prepare(work: Work) -> Ready:
    """Make the loader."""
    dataset = Images(Augment(work.side, work.crop), str(write(Path(work.folder).resolve())))
    loader = StreamingDataLoader(
        dataset, batch_size=work.batch_size, num_workers=work.cores, collate_fn=collate, persistent_workers=True
    )

    def lap() -> Iterator[int]:
        return (len(images) for _ in range(work.passes) for images, _ in loader)

    return Ready(lap, {name: version(name) for name in ("litdata", "pillow", "torch")})


if __name__ == "__main__":
    serve(prepare)
