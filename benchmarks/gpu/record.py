"""The measurements of a step so far, in a file that is always complete."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

__all__ = ["Record", "leave_when_told"]


class Record:
    """The measurements of a step so far; they are not lost when the step is stopped."""

    def __init__(self, path: Path | None, **facts: Any) -> None:
        self._path = path
        self.found: dict[str, Any] = {**facts, "is_complete": False}
        self._write()

    def add(self, name: str, value: Any) -> None:
        """Add a value and write the file."""
        self.found[name] = value
        self._write()

    def complete(self) -> dict[str, Any]:
        """Mark the record as complete and return it."""
        self.add("is_complete", True)
        return self.found

    def _write(self) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self._path.with_suffix(".new")
            unfinished.write_text(json.dumps(self.found, indent=1, default=str) + "\n")
            unfinished.replace(self._path)


def leave_when_told() -> None:
    """Let SIGTERM end the process with cleanup, so that it ends its child processes."""

    def leave(number: int, _: object) -> None:
        # A second one would interrupt the cleanup.
        signal.signal(number, signal.SIG_IGN)
        sys.exit(128 + number)

    if os.name == "posix":
        signal.signal(signal.SIGTERM, leave)
