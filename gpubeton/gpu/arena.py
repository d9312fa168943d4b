"""Arena: where images of a batch lie in one piece of device memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 256
"""An image begins at a multiple of this, as memory of the device does."""

_PITCH = 32


class Layout(NamedTuple):
    """Places of images in an arena.

    Parameters
    ----------
    offset : ndarray of uint64, shape (N,)
        First byte of each.
    pitch : ndarray of int32, shape (N,)
        Bytes from one row to the next.
    nbytes : int
        Bytes of all.
    """

    offset: NDArray[np.uint64]
    pitch: NDArray[np.int32]
    nbytes: int


def lay_out(height: NDArray[Any], width: NDArray[Any], *, start: int = 0, is_tight: bool = False) -> Layout:
    """Place RGB images one behind another.

    Parameters
    ----------
    height, width : ndarray of integers, shape (N,)
        Their sizes in pixels.
    start : int
        Bytes in front of them.
    is_tight : bool
        True leaves nothing between rows, nor between images.

    Returns
    -------
    Layout
        Their places; `nbytes` counts from the arena's beginning.

    Examples
    --------
    >>> layout = lay_out(np.array([10, 4]), np.array([20, 5]))
    >>> layout.offset.tolist(), layout.pitch.tolist(), layout.nbytes
    ([0, 768], [64, 32], 1024)
    """
    row = 3 * width.astype(np.int64)
    pitch = row if is_tight else -(-row // _PITCH) * _PITCH
    size = pitch * height
    if not is_tight:
        size = -(-size // ALIGNMENT) * ALIGNMENT
    start = round_up(start)
    stop = start + np.cumsum(size)
    return Layout(
        (stop - size).astype(np.uint64), pitch.astype(np.int32), round_up(int(stop[-1])) if len(stop) else start
    )


def round_up(nbytes: int) -> int:
    """Round a number of bytes up to a multiple of `ALIGNMENT`.

    Parameters
    ----------
    nbytes : int
        A number of bytes.

    Returns
    -------
    int
        The next multiple.

    Examples
    --------
    >>> round_up(257)
    512
    """
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
