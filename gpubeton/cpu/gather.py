"""The bytes of a batch's samples, gathered from wherever they lie into rows of one array."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.cpu.compile import compiled
from gpubeton.cpu.memory import clear, copy, signed

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array


@compiled
def gather_rows(address: Array, size: Array, out: Array) -> None:
    """Copy each sample's bytes into its row; what is left of the row becomes zero.

    Parameters
    ----------
    address : ndarray of uint64, shape (N,)
        Where in memory each sample starts.
    size : ndarray of uint64, shape (N,)
        Its bytes; of more than a row holds, the first are taken.
    out : ndarray of uint8, shape (N, width), C-contiguous
        Written.
    """
    width = out.shape[1]
    for i in range(out.shape[0]):
        count = min(signed(size[i]), width)
        row = out.ctypes.data + i * width
        copy(row, int(address[i]), count)
        clear(row + count, width - count)
