"""WebDataset on tar files of this machine in PyTorch's DataLoader; with random access, wids."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import webdataset
from torch.utils.data import DataLoader

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.streamed import Augment, collate
from benchmarks.contenders.work import Work


def prepare(work: Work) -> Ready:
    """Make the loader; `work.beton` is a folder of tar files, and `work.recipe` "wids" for random access."""
    tars = sorted(map(str, Path(work.beton).glob("*.tar")))
    make = _random_access if work.recipe == "wids" else _in_order
    loader = DataLoader(
        make(tars, work), work.batch_size, num_workers=work.cores, drop_last=True, collate_fn=collate,
        persistent_workers=True,
    )  # fmt: skip
    packages = ("webdataset", "pillow", "torch")
    return Ready(lambda: (len(images) for images, _ in loader), {name: version(name) for name in packages})


def _in_order(tars: list[str], work: Work) -> Any:
    augment = Augment(work.side, work.crop)
    return (
        webdataset.WebDataset(tars * work.passes, shardshuffle=len(tars), empty_check=False)
        .shuffle(1000)
        .to_tuple("jpg", "cls")
        .map(lambda pair: augment(pair[0], int(pair[1])))
    )


class _Images(torch.utils.data.Dataset[Any]):
    """Samples of tar files by their numbers."""

    def __init__(self, samples: Any, work: Work) -> None:
        self._samples, self._augment, self._passes = samples, Augment(work.side), work.passes

    def __len__(self) -> int:
        return len(self._samples) * self._passes

    def __getitem__(self, number: int) -> Any:
        sample = self._samples[number % len(self._samples)]
        return self._augment(sample[".jpg"].read(), int(sample[".cls"].read()))


def _random_access(tars: list[str], work: Work) -> Any:
    import wids  # a part of webdataset before 1.0

    shards = [{"url": tar, "nsamples": work.images // len(tars)} for tar in tars]
    path = Path(work.beton) / "wids.json"
    path.write_text(json.dumps({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}))
    return _Images(wids.ShardListDataset(str(path), transformations=[]), work)


if __name__ == "__main__":
    serve(prepare)
