"""StatsLog: a file into which loaders write where their time goes, for whoever looks on."""

from __future__ import annotations

import itertools
import json
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpubeton.loader.facts import LoaderFacts
    from gpubeton.loader.stats import LoaderStats

__all__ = ["STATS_VARIABLE", "StatsLog"]

STATS_VARIABLE = "GPUBETON_STATS"
"""Environment variable with the name of the file; ``gpubeton doctor`` reads it."""

_SECONDS_BETWEEN_LINES = 5.0

_numbers = itertools.count()


class StatsLog:
    """Appends lines of JSON to a file: some seconds apart, after each epoch, and at the end.

    Several loaders and processes may write to one file.

    Parameters
    ----------
    path : str
        The file.
    facts : LoaderFacts
        What the loader is.
    """

    def __init__(self, path: str, facts: LoaderFacts) -> None:
        self._path = path
        self._facts = facts
        self._number = next(_numbers)
        self._written = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the last line is some seconds old."""
        return time.monotonic() - self._written > _SECONDS_BETWEEN_LINES

    def write(self, epoch: LoaderStats, total: LoaderStats) -> None:
        """Append a line.

        Parameters
        ----------
        epoch, total : LoaderStats
            Of the epoch that was begun last, and of all.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        self._written = time.monotonic()
        entry = {
            "pid": os.getpid(),
            "loader": self._number,
            "unix_seconds": time.time(),
            "facts": self._facts.to_dict(),
            "epoch": epoch.to_dict(),
            "total": total.to_dict(),
        }
        # One write: lines of several processes do not mix.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, json.dumps(entry).encode() + b"\n")
        finally:
            os.close(descriptor)
