"""LitData's StreamingRawDataset on a folder of JPEG files, in PyTorch's DataLoader."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from litdata import StreamingRawDataset
from torch.utils.data import DataLoader, Subset

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.streamed import Augment, collate
from benchmarks.contenders.work import Work


def prepare(work: Work) -> Ready:
    """Make the loader."""
    augment = Augment(work.side)
    dataset = StreamingRawDataset(work.folder, transform=lambda content: augment(content, 0))
    photos = Subset(dataset, [row for row, file in enumerate(dataset.files) if file.path.endswith(".jpg")])
    (Path(work.folder) / "index.json.zstd").unlink(missing_ok=True)  # other contenders read the folder, too
    loader: DataLoader[Any] = DataLoader(
        photos, work.batch_size, shuffle=True, num_workers=work.cores, drop_last=True, collate_fn=collate,
        persistent_workers=True,
    )  # fmt: skip

    return Ready(
        lambda: (len(images) for _ in range(work.passes) for images, _ in loader),
        {name: version(name) for name in ("litdata", "pillow", "torch")},
    )


if __name__ == "__main__":
    serve(prepare)
