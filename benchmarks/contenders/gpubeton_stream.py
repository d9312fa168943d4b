"""gpubeton's Loader over an object store, without a cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.contenders.gpubeton_loader import make_loader
from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.streamed import ready
from benchmarks.contenders.work import Work


def prepare(work: Work) -> Ready:
    """Make the loader, in each lap a new one: the index is read again, too."""
    streamed = replace(work, beton=f"{work.folder}/train.beton")

    def epoch(_: str) -> Any:
        return make_loader(streamed, order="window", indices=None)

    return ready("numba", epoch)


if __name__ == "__main__":
    serve(prepare)
