"""The measurements of a step so far, in a file that is always complete."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

__all__ = ["Record", "exit_on_sigterm", "write_json"]


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
            write_json(self._path, self.found)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a file that is complete at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(value, indent=1, default=str) + "\n")
    unfinished.replace(path)


def exit_on_sigterm() -> None:
    """Let SIGTERM end the process with cleanup, so that it ends its child processes."""

    def leave(number: int, _: object) -> None:
        # A second one would interrupt the cleanup.
        signal.signal(number, signal.SIG_IGN)
        sys.exit(128 + number)

    if os.name == "posix":
        signal.signal(signal.SIGTERM, leave)
