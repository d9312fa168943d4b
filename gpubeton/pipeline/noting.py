"""Noting: errors say in which batch, pipeline and operation they happened, and stay what they are."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["noting"]


@contextmanager
def noting(place: str) -> Iterator[None]:
    """Add a note to every error in the block; its type stays, so that it can be caught as what it is.

    Parameters
    ----------
    place : str
        Where it happened.

    Examples
    --------
    >>> with noting("in batch 3"):
    ...     pass
    """
    try:
        yield
    except Exception as error:
        if hasattr(error, "add_note"):  # since Python 3.11
            error.add_note(place)
        raise
