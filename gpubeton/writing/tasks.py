"""Tasks: what an encoder writes, and the queue from which processes take it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpubeton.writing.extent import Extent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.fields.base import Field

__all__ = ["Job", "Place", "Placed", "Task", "TaskQueue"]


@dataclass(frozen=True)
class Job:
    """All that is to be written, and where.

    Parameters
    ----------
    dataset : indexable
        Gives the samples.
    indices : sequence
        Which samples, in the order of the rows of the file.
    fields : mapping of str to Field
        How their values are stored.
    page_size : int
        Bytes of a page.
    metadata_offset : int
        Where the metadata begins.
    file : str
        The file, which exists.
    skip : bool
        Whether a sample that cannot be taken or encoded is left out.
    checksums : bool
        Whether the checksum of each region is wanted.
    remarks : bool
        Whether the dataset is asked for remarks on its samples: by its method ``take_remarks``, which is told which
        ones were left out, and counts them.
    """

    dataset: Any
    indices: Sequence[Any]
    fields: Mapping[str, Field]
    page_size: int
    metadata_offset: int
    file: str
    skip: bool = False
    checksums: bool = False
    remarks: bool = False


@dataclass(frozen=True)
class Placed:
    """Where the samples of a chunk go.

    Parameters
    ----------
    first_row : int
        Row of the file of the first of them; less than the first row of its task if samples were left out.
    offset : ndarray of uint64, shape (N,)
        Where in the file each sample goes.
    """

    first_row: int
    offset: NDArray[np.uint64]


@dataclass(frozen=True)
class Task:
    """The rows of one chunk.

    Parameters
    ----------
    start, stop : int
        First row, and the one behind the last.
    """

    start: int
    stop: int


Place = Callable[[Task, Extent], Placed]
"""Called with each task and the extent of its chunk, in the order of the tasks; says where the samples go."""


class TaskQueue:
    """Tasks in lines: those of one line are for one process, in their order.

    Parameters
    ----------
    lines : iterable of iterables of Task
        The lines. A process begins with the next one when it is through with its own.

    Examples
    --------
    >>> lines = TaskQueue([[Task(0, 2), Task(2, 3)], [Task(3, 5)], [Task(5, 6)]])
    >>> [lines.take(process).start for process in (0, 1, 1, 0)], lines.take(0), lines.take(1)
    ([0, 3, 5, 2], None, None)
    """

    def __init__(self, lines: Iterable[Iterable[Task]]) -> None:
        self._waiting = iter(lines)
        self._begun: dict[int, Iterator[Task]] = {}

    @classmethod
    def of_single(cls, tasks: Iterable[Task]) -> TaskQueue:
        """Make a line of each task, so that any process may carry it out.

        Parameters
        ----------
        tasks : iterable of Task
            The tasks.

        Returns
        -------
        TaskQueue
            As many lines.
        """
        return cls([task] for task in tasks)

    def take(self, process: int) -> Task | None:
        """Take the next task of a process.

        Parameters
        ----------
        process : int
            Its number.

        Returns
        -------
        Task or None
            The task; None if there is none left for it.
        """
        while True:
            for task in self._begun.get(process, ()):
                return task
            line = next(self._waiting, None)
            if line is None:
                return None
            self._begun[process] = iter(line)
