"""LitData's StreamingDataset and StreamingDataLoader."""

from __future__ import annotations

import os
from typing import Any

from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming import downloader

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.streamed import Augment, collate, ready
from benchmarks.contenders.work import Work

# It has no option for a store without TLS. Its workers are forks, and so get this, too.
downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # noqa: SLF001


class Images(StreamingDataset):  # type: ignore[misc]  # published without types
    """Augmented images of an optimized dataset."""

    def __init__(self, side: int, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.augment = Augment(side)

    def __getitem__(self, index: Any) -> Any:
        """Return an image and its label."""
        sample = super().__getitem__(index)
        return self.augment(sample["jpeg"], sample["label"])


def prepare(work: Work) -> Ready:
    """Make the loader."""

    def epoch(folder: str) -> Any:
        options = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}
        dataset = Images(work.side, f"{work.folder}/litdata", cache_dir=folder, shuffle=True, storage_options=options)
        return StreamingDataLoader(
            dataset, batch_size=work.batch_size, num_workers=work.cores, drop_last=True, collate_fn=collate
        )

    return ready("litdata", epoch)


if __name__ == "__main__":
    serve(prepare)
