"""Places: where a byte of a dataset lies, file and offset in one number.

The number of the file stands in the upper bits, the offset from the start of that file in the lower `OFFSET_BITS`. In
a dataset of one file, whose number is 0, a place is the offset. Sorting places sorts by file, then by offset; and
places of different files are too far apart for any two regions of them to be read as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MAX_FILES", "MAX_FILE_SIZE", "OFFSET_BITS", "first_place", "split_places"]

OFFSET_BITS = 48

MAX_FILE_SIZE = (1 << OFFSET_BITS) - (1 << 30)
"""Most bytes of a file: 256 TiB, less what keeps the last region of a file away from the first of the next."""

MAX_FILES = 1 << (63 - OFFSET_BITS)
"""Most files of a dataset: places fit into signed 64-bit numbers too."""


def first_place(file: int) -> np.uint64:
    """Give the place of the first byte of a file.

    Parameters
    ----------
    file : int
        Its number, from 0.

    Returns
    -------
    uint64
        To be added to offsets in that file.

    Examples
    --------
    >>> int(first_place(0)), int(first_place(1)) == 1 << 48
    (0, True)
    """
    return np.uint64(file << OFFSET_BITS)


def split_places(places: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
    """Tell files and offsets.

    Parameters
    ----------
    places : ndarray of uint64, shape (N,)
        Places.

    Returns
    -------
    tuple of ndarray of intp, and ndarray of uint64, both of shape (N,)
        Number of the file and offset in it.

    Examples
    --------
    >>> files, offsets = split_places(np.array([7, 3 + (2 << 48)], "u8"))
    >>> files.tolist(), offsets.tolist()
    ([0, 2], [7, 3])
    """
    files = (places >> np.uint64(OFFSET_BITS)).astype(np.intp)
    return files, places & np.uint64((1 << OFFSET_BITS) - 1)
