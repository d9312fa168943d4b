"""Facts about a process and its descendants, of ``/proc``. Needs only Python's own library."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["PROC", "descendants", "memory_of", "watched_memory"]

PROC = Path("/proc")
_SECONDS = 0.1  # between two looks at the memory


def descendants(process: int) -> Iterator[tuple[int, int]]:
    """List the descendants of a process: their numbers and their clock ticks, with those of their ended children."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            # The name is in parentheses and may contain anything; the numbers follow the last parenthesis.
            numbers = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        parents[int(folder.name)] = int(numbers[1])
        ticks[int(folder.name)] = sum(map(int, numbers[11:15]))  # user and system time, own and of ended children
    for candidate in parents:
        ancestor = parents.get(candidate)
        while ancestor is not None and ancestor != process:
            ancestor = parents.get(ancestor)
        if ancestor == process:
            yield candidate, ticks[candidate]


def memory_of(process: int) -> int:
    """Add up the memory of a process and of all its descendants, in bytes; what they share counts once.

    Pages of files do not count: the system keeps them for all processes, and drops them when it needs memory.
    """
    kibibytes = 0
    for number in [process, *(number for number, _ in descendants(process))]:
        try:
            lines = (PROC / str(number) / "smaps_rollup").read_text().splitlines()
        except OSError:  # the process has ended
            continue
        kibibytes += sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return 1024 * kibibytes


@contextmanager
def watched_memory(process: int) -> Iterator[list[int]]:
    """Look at the memory of a process and its descendants again and again; yield a list that gets what it was."""
    seen: list[int] = []
    ended = threading.Event()

    def watch() -> None:
        while True:
            seen.append(memory_of(process))
            if ended.wait(_SECONDS):
                return

    thread = threading.Thread(target=watch, name="memory watch")
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
