"""How much processor time this process and all that it started have used."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["cpu_seconds"]

_PROC = Path("/proc")


def cpu_seconds() -> float:
    """Add up the processor time of this process, of its threads and of its child processes, dead or alive.

    Returns
    -------
    float
        Seconds, in steps of a clock tick (usually 10 ms); nan on a system without ``/proc``.
    """
    if not (_PROC / "self" / "stat").exists():
        return math.nan
    own = os.times()
    living = sum(_ticks_of_descendants(os.getpid())) / os.sysconf("SC_CLK_TCK")
    return own.user + own.system + own.children_user + own.children_system + living


def _ticks_of_descendants(process: int) -> Iterator[int]:
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in _PROC.glob("[0-9]*"):
        try:
            # The name stands in parentheses and may hold anything; the numbers follow the last one.
            numbers = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        parents[int(folder.name)] = int(numbers[1])
        ticks[int(folder.name)] = sum(map(int, numbers[11:15]))  # user and system time, its own and of dead children
    for candidate in parents:
        ancestor = parents.get(candidate)
        while ancestor is not None and ancestor != process:
            ancestor = parents.get(ancestor)
        if ancestor == process:
            yield ticks[candidate]
