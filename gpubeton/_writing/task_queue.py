"""TaskQueue: the rows of a file in chunks, in sequences of which one worker carries out all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Samples of a chunk at most, so that two messages about chunks always fit in a pipe: the calling process never waits
#: for a writing process to read, while that one waits for it.
MAX_CHUNKSIZE = 256


@dataclass(frozen=True)
class Task:
    """The rows of one chunk: from `start` up to `stop`, exclusive."""

    start: int
    stop: int


class TaskQueue:
    """Sequences of tasks; one worker carries out all tasks of a sequence, in their order."""

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


def split_rows(start: int, stop: int, chunksize: int) -> Iterator[Task]:
    """Split rows into tasks of at most `chunksize` rows, one after the other: a dataset may have millions."""
    return (Task(row, min(row + chunksize, stop)) for row in range(start, stop, chunksize))
