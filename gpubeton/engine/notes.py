"""Notes: errors say in which batch and pipeline they happened, and stay what they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

# Samples that a note lists one by one.
_MAX_LISTED = 8


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


def listed(samples: NDArray[np.uint64]) -> str:
    """Write sample ids down, the first few of many.

    Parameters
    ----------
    samples : ndarray of uint64, shape (N,)
        Sample ids.

    Returns
    -------
    str
        E.g. ``"3, 1, 4"``.

    Examples
    --------
    >>> listed(np.array([3, 1, 4], "u8"))
    '3, 1, 4'
    """
    text = ", ".join(map(str, samples[:_MAX_LISTED].tolist()))
    return text if len(samples) <= _MAX_LISTED else f"{text}, ... ({len(samples)} in all)"
