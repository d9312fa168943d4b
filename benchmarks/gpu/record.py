"""Record: what a step has measured so far, in a file that is whole at any moment."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

__all__ = ["Record", "leave_when_told"]


class Record:
    """What a step has measured so far. Steps are stopped when their time is up, and what they have found is not lost.

    Parameters
    ----------
    path : Path or None
        The file; None to keep it in memory alone.
    **facts
        What is known from the beginning.
    """

    def __init__(self, path: Path | None, **facts: Any) -> None:
        self._path = path
        self.found: dict[str, Any] = {**facts, "is_complete": False}
        self._write()

    def add(self, name: str, value: Any) -> None:
        """Note something, and write the file anew."""
        self.found[name] = value
        self._write()

    def complete(self) -> dict[str, Any]:
        """Note that nothing is missing; gives everything."""
        self.add("is_complete", True)
        return self.found

    def _write(self) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self._path.with_suffix(".new")
            unfinished.write_text(json.dumps(self.found, indent=1, default=str) + "\n")
            unfinished.replace(self._path)


def leave_when_told() -> None:
    """Have SIGTERM end the process in order, so that it can end what it has started."""

    def leave(number: int, _: object) -> None:
        # A second one would come in the middle of that.
        signal.signal(number, signal.SIG_IGN)
        sys.exit(128 + number)

    if os.name == "posix":
        signal.signal(signal.SIGTERM, leave)
