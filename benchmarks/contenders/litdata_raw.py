"""LitData's StreamingRawDataset on a folder of JPEG files, in PyTorch's DataLoader."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from litdata import StreamingRawDataset
from litdata.raw.indexer import FileIndexer
from torch.utils.data import DataLoader

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.streamed import Augment, collate
from benchmarks.contenders.work import Work


def prepare(work: Work) -> Ready:
    """Make the loader."""
    augment = Augment(work.side)
    photos = FileIndexer(extensions=[".jpg"])  # it leaves an index among them
    dataset = StreamingRawDataset(work.folder, indexer=photos, transform=lambda content: augment(content, 0))
    loader: DataLoader[Any] = DataLoader(
        dataset, work.batch_size, shuffle=True, num_workers=work.cores, drop_last=True, collate_fn=collate,
        persistent_workers=True,
    )  # fmt: skip

    def lap() -> int:
        return sum(len(images) for _ in range(work.passes) for images, _ in loader)

    return Ready(lap, {name: version(name) for name in ("litdata", "pillow", "torch")})


if __name__ == "__main__":
    serve(prepare)
