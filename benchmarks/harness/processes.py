"""Facts about a process and its descendants, of ``/proc``. Needs only Python's own library."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Memory", "descendants", "memory_of", "watched_memory"]

PROC = Path("/proc")
_SECONDS = 0.1  # between two looks at the memory


@dataclass(frozen=True)
class Memory:
    """Memory of processes. What several of them share counts once (PSS)."""

    bytes: int = 0  # private, and shared between processes
    file_bytes: int = 0  # pages of files, code too: the system may drop them


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


def memory_of(process: int) -> Memory:
    """Add up the memory of a process and of all its descendants."""
    kibibytes: dict[str, int] = {}
    for number in [process, *(number for number, _ in descendants(process))]:
        try:
            lines = (PROC / str(number) / "smaps_rollup").read_text().splitlines()[1:]
        except OSError:  # the process has ended
            continue
        for name, _, value in (line.partition(":") for line in lines):
            kibibytes[name] = kibibytes.get(name, 0) + int(value.split()[0])
    private, files = (
        sum(kibibytes.get(name, 0) for name in names) for names in (("Pss_Anon", "Pss_Shmem"), ("Pss_File",))
    )
    return Memory(1024 * private, 1024 * files)


@contextmanager
def watched_memory(process: int = os.getpid()) -> Iterator[list[Memory]]:
    """Look at the memory of a process and its descendants again and again; the list that it yields gets what it was."""
    seen: list[Memory] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_SECONDS):
            seen.append(memory_of(process))

    thread = threading.Thread(target=watch, name="memory watch")
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
        seen.append(memory_of(process))
