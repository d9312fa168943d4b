"""Shards: a dataset from the tar files of webdataset."""

from __future__ import annotations

import inspect
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from gpubeton.errors import NoSamplesError, WriteError
from gpubeton.writing.tasks import Task

__all__ = ["Shards"]

Pipeline = Callable[[Any], Iterable[Any]]
"""Called with the ``webdataset.WebDataset`` of one shard, gives its samples."""

_ALL_IN_ORDER = {"shardshuffle": False, "nodesplitter": None, "workersplitter": None, "empty_check": False}
"""Arguments of WebDataset: every sample of the shard once, whoever reads it."""


class Shards:
    """The samples of several shards, one shard after the other.

    Made to be read in order, by one process each shard: a shard that is read from its middle is read from its beginning
    up to there.

    Parameters
    ----------
    shards : sequence of str, or str
        Tar files or URLs, as webdataset takes them; one string may have braces: ``"train-{000000..000146}.tar"``.
    pipeline : callable
        Called with the ``webdataset.WebDataset`` of a shard, gives its samples.

    Attributes
    ----------
    names : list of str
        The shards.

    Raises
    ------
    NoSamplesError
        If there is no shard.
    WriteError
        If webdataset is not installed.
    """

    def __init__(self, shards: Sequence[str | os.PathLike[str]] | str, pipeline: Pipeline) -> None:
        self.names = _expanded(shards) if isinstance(shards, str) else [os.fspath(shard) for shard in shards]
        if not self.names:
            raise NoSamplesError("0 shards, at least 1 is needed")
        self._pipeline = pipeline
        self._starts: list[int] = [0]
        # Where this process reads: the shard, the next of its samples, and where that comes from.
        self._shard, self._position = -1, 0
        self._samples: Iterator[Any] = iter(())
        _open_dataset(self.names[0])  # so that a missing package is told at once

    def __len__(self) -> int:
        """Number of samples, once they were counted."""
        return self._starts[-1]

    def count(self, shard: int) -> int:
        """Count the samples of a shard, by making them.

        Parameters
        ----------
        shard : int
            Its number.

        Returns
        -------
        int
            How many the pipeline gives.

        Raises
        ------
        WriteError
            If it raises an exception, which is the cause.
        """
        number = 0
        try:
            for _ in self._open(shard):
                number += 1
        except Exception as error:
            raise WriteError(
                f"{self.names[shard]}: sample {number} of the shard, while counting: {type(error).__name__}: {error}"
            ) from error
        return number

    def accept_counts(self, counts: Sequence[int]) -> None:
        """Learn how many samples each shard has.

        Parameters
        ----------
        counts : sequence of int
            What `count` returned for each.
        """
        self._starts = [0, *accumulate(counts)]

    def lines(self, chunksize: int) -> list[list[Task]]:
        """Divide the rows of the file among processes.

        Parameters
        ----------
        chunksize : int
            Samples of a task at most.

        Returns
        -------
        list of list of Task
            The tasks of each shard.
        """
        bounds = zip(self._starts[:-1], self._starts[1:], strict=True)
        return [
            [Task(row, min(row + chunksize, stop)) for row in range(start, stop, chunksize)] for start, stop in bounds
        ]

    def __getitem__(self, row: int) -> Any:
        """Give one sample.

        Parameters
        ----------
        row : int
            Its place among all.

        Returns
        -------
        tuple or mapping
            The values.

        Raises
        ------
        WriteError
            If the pipeline raises an exception, or gives another number of samples than when they were counted.
        """
        shard = bisect_right(self._starts, row) - 1
        position, count = row - self._starts[shard], self._starts[shard + 1] - self._starts[shard]
        if shard != self._shard or position < self._position:
            self._shard, self._position, self._samples = shard, 0, iter(self._open(shard))
        sample: Any = None
        while self._position <= position:
            sample = self._next(count)
            self._position += 1
        if self._position == count and next(self._samples, self) is not self:
            raise WriteError(f"{self._place()}: there is one more sample than the {count} that were counted. {_ADVICE}")
        return sample

    def _next(self, count: int) -> Any:
        try:
            return next(self._samples)
        except StopIteration:
            message = (
                f"{self._place()}: {count} samples were counted, and now there are only {self._position}. {_ADVICE}"
            )
            raise WriteError(message) from None
        except Exception as error:
            raise WriteError(f"{self._place()}: {type(error).__name__}: {error}") from error

    def _place(self) -> str:
        return f"{self.names[self._shard]}, sample {self._position} of the shard"

    def _open(self, shard: int) -> Iterable[Any]:
        return self._pipeline(_open_dataset(self.names[shard]))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what this process has open."""
        return {**self.__dict__, "_shard": -1, "_samples": None}


_ADVICE = "The pipeline has to give the same number of samples each time."


def _webdataset() -> Any:
    try:
        import webdataset
    except ImportError as error:
        raise WriteError(
            f"shards need {error.name}, which is not installed. Try: pip install 'gpubeton[webdataset]'"
        ) from error
    return webdataset


def _open_dataset(shard: str) -> Any:
    dataset = _webdataset().WebDataset
    known = inspect.signature(dataset.__init__).parameters
    return dataset(shard, **{name: value for name, value in _ALL_IN_ORDER.items() if name in known})


def _expanded(pattern: str) -> list[str]:
    expanded: list[str] = _webdataset().shardlists.expand_urls(pattern)
    return expanded
