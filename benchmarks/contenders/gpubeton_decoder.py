"""gpubeton's BatchDecoder: called with lists of files, or as `collate_fn` of PyTorch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.work import Work
from benchmarks.harness.photos import list_photos
from benchmarks.recipe_cases import pipelines_of
from gpubeton import BatchDecoder


class Files(Dataset[bytes]):
    """JPEG files as bytes."""

    def __init__(self, work: Work) -> None:
        self.files = [Path(path) for path, _ in list_photos(Path(work.folder))] * work.passes

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> bytes:
        """Read a file."""
        return self.files[number].read_bytes()


def prepare(work: Work) -> Ready:
    """Make the decoder; `work.own_operation` "instead" for the one without a DataLoader."""
    (image,) = pipelines_of(work.recipe, work.side).values()
    files = Files(work)
    if work.own_operation == "instead":
        decoder = BatchDecoder(image, num_workers=work.cores, seed=0)

        def batches() -> Iterator[Any]:
            order = np.random.default_rng(0).permutation(len(files))
            for batch in order[: len(order) // work.batch_size * work.batch_size].reshape(-1, work.batch_size):
                yield decoder([files[number] for number in batch.tolist()])

        run = batches
    else:
        loader: DataLoader[Any] = DataLoader(
            files, work.batch_size, shuffle=True, num_workers=work.cores, drop_last=True, persistent_workers=True,
            collate_fn=BatchDecoder(image, num_workers=1, seed=0),
        )  # fmt: skip
        run = lambda: iter(loader)  # noqa: E731
    return Ready(lambda: map(len, run()), {name: version(name) for name in ("numba", "numpy", "torch")})


if __name__ == "__main__":
    serve(prepare)
