"""Errors with a note of where they happened, also those of compiled code that cannot raise one."""

from __future__ import annotations

from collections import deque
from contextlib import suppress


def add_error_note(error: Exception, note: str) -> None:
    """Add where an error happened; its type stays, so `except` clauses still match."""
    if hasattr(error, "add_note"):  # since Python 3.11
        error.add_note(note)


_MOST_KEPT = 100

_noted: deque[str] = deque(maxlen=_MOST_KEPT)


def note_nopython_error(message: str) -> None:
    """Note what went wrong; may be called by any thread."""
    _noted.append(message)


def take_nopython_errors() -> list[str]:
    """Give the messages noted since the last call."""
    messages: dict[str, None] = {}
    with suppress(IndexError):  # others take from it, too
        while True:
            messages[_noted.popleft()] = None
    return list(messages)
