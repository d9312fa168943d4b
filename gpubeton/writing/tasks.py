"""Tasks: the chunks of samples that encoders write, and the queue from which they take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpubeton.fields.base import Field

__all__ = ["MAX_CHUNKSIZE", "Job", "Task", "TaskQueue", "split_rows"]

#: Samples of a chunk at most, so that two messages about chunks always fit in a pipe: the calling process never waits
#: for a writing process to read, while that one waits for it.
MAX_CHUNKSIZE = 256


@dataclass(frozen=True)
class Job:
    """Everything that encoders need to know of a file."""

    dataset: Any  # gives a sample for an index
    indices: Sequence[Any]  # the samples, in the order of the file's rows
    fields: Mapping[str, Field]
    page_size: int  # bytes
    metadata_offset: int  # first byte of the metadata
    file: str  # path of an existing file
    skip: bool = False  # leave out samples that cannot be read or encoded
    checksums: bool = False  # compute the checksum of each region
    count_changes: bool = False  # ask the dataset what its images have lost, by its method `take_changes`


@dataclass(frozen=True)
class Task:
    """The rows of one chunk: from `start` up to `stop`, exclusive."""

    start: int
    stop: int


class TaskQueue:
    """Sequences of tasks; one worker carries out all tasks of a sequence, in their order.

    >>> queue = TaskQueue([[Task(0, 2), Task(2, 3)], [Task(3, 5)], [Task(5, 6)]])
    >>> [queue.take(worker).start for worker in (0, 1, 1, 0)], queue.take(0), queue.take(1)
    ([0, 3, 5, 2], None, None)
    """

    def __init__(self, sequences: Iterable[Iterable[Task]]) -> None:
        self._waiting = iter(sequences)
        self._begun: dict[int, Iterator[Task]] = {}

    @classmethod
    def of_rows(cls, start: int, stop: int, chunksize: int) -> TaskQueue:
        """Split rows into chunks that any worker may take."""
        return cls([task] for task in split_rows(start, stop, chunksize))

    def take(self, worker: int) -> Task | None:
        """Take the next task of a worker: of its sequence, or the first one of the next; None if none is left."""
        while True:
            for task in self._begun.get(worker, ()):
                return task
            sequence = next(self._waiting, None)
            if sequence is None:
                return None
            self._begun[worker] = iter(sequence)


def split_rows(start: int, stop: int, chunksize: int) -> list[Task]:
    """Split rows into tasks of at most `chunksize` rows."""
    return [Task(row, min(row + chunksize, stop)) for row in range(start, stop, chunksize)]
