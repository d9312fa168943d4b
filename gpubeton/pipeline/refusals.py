"""Refusals: what went wrong inside compiled code that cannot raise an error where it runs in parallel."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

_MOST_KEPT = 100

_noted: deque[str] = deque(maxlen=_MOST_KEPT)


def note_refusal(message: str) -> None:
    """Note what went wrong; may be called by any thread.

    Parameters
    ----------
    message : str
        Where, what was found, and what was expected.
    """
    _noted.append(message)


def take_refusals() -> list[str]:
    """Give what was noted since the last time.

    Returns
    -------
    list of str
        The messages, without those that occur again.

    Examples
    --------
    >>> note_refusal("memcpy: 8 bytes into 4")
    >>> take_refusals(), take_refusals()
    (['memcpy: 8 bytes into 4'], [])
    """
    found: dict[str, None] = {}
    with suppress(IndexError):  # others take from it, too
        while True:
            found[_noted.popleft()] = None
    return list(found)
