"""Lines: who carries out which tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpubeton.writing.encoder import Task

__all__ = ["Lines"]


class Lines:
    """Tasks in lines: those of one line are for one process, in their order.

    Parameters
    ----------
    lines : iterable of iterables of Task
        The lines. A process begins with the next one when it is through with its own.

    Examples
    --------
    >>> lines = Lines([[Task(0, 2), Task(2, 3)], [Task(3, 5)], [Task(5, 6)]])
    >>> [lines.take(process).start for process in (0, 1, 1, 0)], lines.take(0), lines.take(1)
    ([0, 3, 5, 2], None, None)
    """

    def __init__(self, lines: Iterable[Iterable[Task]]) -> None:
        self._waiting = iter(lines)
        self._begun: dict[int, Iterator[Task]] = {}

    @classmethod
    def of_single(cls, tasks: Iterable[Task]) -> Lines:
        """Make a line of each task, so that any process may carry it out.

        Parameters
        ----------
        tasks : iterable of Task
            The tasks.

        Returns
        -------
        Lines
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
