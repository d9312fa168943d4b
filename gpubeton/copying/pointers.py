"""Pointers in the metadata of samples that are copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.format.layout import FieldType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["Moves"]


@dataclass(frozen=True)
class Moves:
    """From where to where the regions of some samples move.

    Parameters
    ----------
    first, count : ndarray of int64, shape (N,)
        The regions of each sample: which is the first below, and how many.
    old, size, new : ndarray of uint64, shape (R,)
        Where each region began, its bytes, and where it begins now.
    """

    first: NDArray[np.int64]
    count: NDArray[np.int64]
    old: NDArray[np.uint64]
    size: NDArray[np.uint64]
    new: NDArray[np.uint64]

    def apply(self, column: NDArray[Any], type_id: int, stored: NDArray[np.uint64] | None) -> None:
        """Let the pointers in a column of metadata follow.

        Parameters
        ----------
        column : ndarray, shape (N,)
            The metadata of one field; changed.
        type_id : int
            The field's `FieldType`. Where a custom one keeps its pointers, only its class knows: every number of 64
            bits that points into a region of its own sample, or to its end, is taken for one.
        stored : ndarray of uint64, shape (N,), optional
            Bytes of each sample's value, where that is known. Of two regions that begin at one place, one of them
            empty, the right one is taken then.
        """
        if type_id in (FieldType.INT, FieldType.FLOAT) or len(self.old) == 0:
            return
        for word in _pointers(column, type_id):
            self._follow(word, stored)

    def _follow(self, word: NDArray[Any], stored: NDArray[np.uint64] | None) -> None:
        per_sample = (-1,) + (1,) * (word.ndim - 1)
        value = word.astype(np.uint64)
        moved, best = value.copy(), np.zeros(value.shape, np.int8)
        for number in range(int(self.count.max(initial=0))):
            is_there = number < self.count
            region = np.where(is_there, self.first + number, 0)
            old, size, new = (each[region].reshape(per_sample) for each in (self.old, self.size, self.new))
            fits = is_there if stored is None else is_there & (self.size[region] == stored)
            inside = is_there.reshape(per_sample) & (value >= old) & (value - old <= size)
            begins = inside & (value == old)
            score = inside.astype(np.int8) + begins + (begins & fits.reshape(per_sample))
            better = score > best
            moved[better] = (new + (value - old))[better]
            best = np.maximum(best, score)
        word[...] = moved.astype(word.dtype)


def _pointers(column: NDArray[Any], type_id: int, name: str = "") -> Iterator[NDArray[Any]]:
    """Give a view of each number in a column of metadata that may be a pointer."""
    if column.dtype.names is not None:
        for inner in column.dtype.names:
            yield from _pointers(column[inner], type_id, inner)
        return
    # A size may by chance look like a pointer; in the library's own fields it is known which is which.
    is_possible = type_id == FieldType.CUSTOM or name in ("", "ptr", "data_ptr")
    if is_possible and column.dtype.kind in "iu" and column.dtype.itemsize == 8:
        yield column
