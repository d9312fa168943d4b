"""Errors with a note of where they happened, also those of compiled code that cannot raise one."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class add_error_note:  # noqa: N801  it reads as a function: with add_error_note(place)
    """Add the note that `place` gives to every error in the block; its type stays, so `except` clauses still match."""

    # The note is made for an error only: it is around each batch and each operation.
    def __init__(self, place: Callable[[], str]) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception) and hasattr(error, "add_note"):  # since Python 3.11
            error.add_note(self._place())


_MOST_KEPT = 100

_noted: deque[str] = deque(maxlen=_MOST_KEPT)


def note_nopython_error(message: str) -> None:
    """Note what went wrong; may be called by any thread."""
    _noted.append(message)


def take_nopython_errors() -> list[str]:
    """Give the messages noted since the last call."""
    found: dict[str, None] = {}
    with suppress(IndexError):  # others take from it, too
        while True:
            found[_noted.popleft()] = None
    return list(found)
