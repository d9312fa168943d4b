"""MosaicML Streaming (MDS) in PyTorch's DataLoader."""

from __future__ import annotations

from typing import Any

from streaming import StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.streamed import Augment, collate, ready
from benchmarks.contenders.work import Work


class Images(StreamingDataset):  # type: ignore[misc]  # published without types
    """Augmented images of a dataset of MDS."""

    def __init__(self, side: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.augment = Augment(side)

    def __getitem__(self, index: int) -> Any:
        """Return an image and its label."""
        sample = super().__getitem__(index)
        return self.augment(sample["jpeg"], sample["label"])


def prepare(work: Work) -> Ready:
    """Make the loader."""

    def epoch(folder: str) -> DataLoader[Any]:
        clean_stale_shared_memory()
        dataset = Images(work.side, remote=f"{work.folder}/mds", local=folder, shuffle=True, batch_size=work.batch_size)
        return DataLoader(dataset, work.batch_size, num_workers=work.cores, drop_last=True, collate_fn=collate)

    return ready("mosaicml-streaming", epoch)


if __name__ == "__main__":
    serve(prepare)
