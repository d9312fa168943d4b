"""Reading what running loaders have written down, see `gpubeton.loader.stats_log`."""

from __future__ import annotations

import json
import os

from gpubeton.errors import FormatError
from gpubeton.loader import LoaderStats
from gpubeton.loader.facts import LoaderFacts

__all__ = ["read_stats"]


def read_stats(path: str | os.PathLike[str]) -> list[tuple[LoaderFacts, LoaderStats]]:
    """Read the last line of each loader.

    Parameters
    ----------
    path : str or path
        The file that GPUBETON_STATS named.

    Returns
    -------
    list of tuple of (LoaderFacts, LoaderStats)
        What each loader is, and where the time of all its epochs went; the one with the most time first.

    Raises
    ------
    FormatError
        If it is no such file.
    OSError
        If it cannot be read.
    """
    last: dict[tuple[int, int], tuple[LoaderFacts, LoaderStats]] = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            key, facts, stats = _read_line(line, f"{os.fspath(path)}: line {number}")
            last[key] = facts, stats
    return sorted(last.values(), key=lambda entry: -entry[1].seconds)


def _read_line(line: str, where: str) -> tuple[tuple[int, int], LoaderFacts, LoaderStats]:
    try:
        entry = json.loads(line)
        facts, stats = LoaderFacts.from_dict(entry["facts"]), LoaderStats.from_dict(entry["total"])
        return (entry["pid"], entry["loader"]), facts, stats
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{where} is {line[:60]!r}; expected a line that a loader wrote because GPUBETON_STATS names this file"
        ) from error
