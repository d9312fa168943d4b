"""WebDataset over HTTP in PyTorch's DataLoader."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import webdataset
from torch.utils.data import DataLoader

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.streamed import Augment, collate, ready
from benchmarks.contenders.work import Work


def prepare(work: Work) -> Ready:
    """Make the loader."""
    augment = Augment(work.side)
    server = f"{os.environ['AWS_ENDPOINT_URL']}/{work.folder.removeprefix('s3://')}/wds"
    shards = [f"{server}/{name}" for name in Path(work.beton).read_text().split()]

    def epoch(_: str) -> DataLoader[Any]:
        dataset = (
            webdataset.WebDataset(shards, shardshuffle=len(shards), empty_check=False)
            .shuffle(1000)
            .to_tuple("jpg", "cls")
            .map(lambda pair: augment(pair[0], int(pair[1])))
        )
        return DataLoader(dataset, work.batch_size, num_workers=work.cores, drop_last=True, collate_fn=collate)

    return ready("webdataset", epoch)


if __name__ == "__main__":
    serve(prepare)
