"""Shards: the samples of tar files of webdataset, read one after another."""

from __future__ import annotations

import inspect
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from gpubeton._machine import install
from gpubeton._sources.source import Source
from gpubeton._writing.encoder import Task, split_rows
from gpubeton.errors import NoSamplesError, WriteError

Pipeline = Callable[[Any], Iterable[Any]]
"""Called with the ``webdataset.WebDataset`` of one shard, gives its samples."""

_ALL_IN_ORDER = {"shardshuffle": False, "nodesplitter": None, "workersplitter": None, "empty_check": False}
"""Arguments of WebDataset: every sample of the shard once, in every process."""

_SAME_NUMBER = "The pipeline has to give the same number of samples each time."


class Shards(Source):
    """The samples of several tar files of webdataset, one file after the other."""

    # Reading is sequential, with one process per shard: a sample in the middle is found by reading the shard up to it.

    def __init__(self, shards: Sequence[str | os.PathLike[str]] | str, pipeline: Pipeline) -> None:
        self.names: list[str]
        if isinstance(shards, str):
            self.names = _webdataset().shardlists.expand_urls(shards)
        else:
            self.names = [os.fspath(shard) for shard in shards]
        if not self.names:
            raise NoSamplesError("0 shards, at least 1 is needed")
        self._pipeline = pipeline
        self._starts: list[int] = [0]
        # The place of this process: the shard, the next of its samples, and the iterator that gives it.
        self._shard, self._position = -1, 0
        self._samples: Iterator[Any] = iter(())
        _open_dataset(self.names[0])  # so that a missing package is reported at once

    def __len__(self) -> int:
        return self._starts[-1]

    def count(self, shard: int) -> int:
        """Count the samples of a shard, by making them."""
        return sum(1 for _ in self._open(shard))

    def accept_counts(self, counts: Sequence[int]) -> None:
        """Set the number of samples of each shard."""
        self._starts = [0, *accumulate(counts)]

    def task_sequences(self, chunksize: int) -> list[list[Task]]:
        """Divide the rows of the file among processes: the tasks of each shard."""
        bounds = zip(self._starts[:-1], self._starts[1:], strict=True)
        return [list(split_rows(start, stop, chunksize)) for start, stop in bounds]

    def name(self, row: int) -> str:
        shard = bisect_right(self._starts, row) - 1
        return self._place(shard, row - self._starts[shard])

    def __getitem__(self, row: int) -> Any:
        shard = bisect_right(self._starts, row) - 1
        position, count = row - self._starts[shard], self._starts[shard + 1] - self._starts[shard]
        if shard != self._shard or position < self._position:
            self._shard, self._position, self._samples = shard, 0, self._open(shard)
        sample: Any = None
        while self._position <= position:
            sample = next(self._samples, self)
            if sample is self:
                raise WriteError(
                    f"{self._place(shard, self._position)}: {count} samples were counted, and now there are only "
                    f"{self._position}. {_SAME_NUMBER}"
                )
            self._position += 1
        if self._position == count and next(self._samples, self) is not self:
            place = self._place(shard, position + 1)
            raise WriteError(f"{place}: there is one more sample than the {count} that were counted. {_SAME_NUMBER}")
        return sample

    def _place(self, shard: int, position: int) -> str:
        return f"{self.names[shard]}, sample {position} of the shard"

    def _open(self, shard: int) -> Iterator[Any]:
        number = 0
        try:
            for sample in self._pipeline(_open_dataset(self.names[shard])):
                yield sample
                number += 1
        except Exception as error:
            raise WriteError(f"{self._place(shard, number)}: {type(error).__name__}: {error}") from error

    def __getstate__(self) -> dict[str, Any]:
        # An open shard cannot be sent to another process.
        return {**self.__dict__, "_shard": -1, "_samples": None}


def _webdataset() -> Any:
    try:
        import webdataset
    except ImportError as error:
        raise WriteError(f"shards need {error.name}, which is not installed. Try: {install('webdataset')}") from error
    return webdataset


def _open_dataset(shard: str) -> Any:
    dataset = _webdataset().WebDataset
    parameters = inspect.signature(dataset.__init__).parameters
    return dataset(shard, **{name: value for name, value in _ALL_IN_ORDER.items() if name in parameters})
