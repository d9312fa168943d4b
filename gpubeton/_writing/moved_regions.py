"""MovedRegions: pointers of samples that are copied into another file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.format.layout import FieldType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class MovedRegions:
    """Old and new offsets of the regions of some samples."""

    count: NDArray[np.int64]  # (N,) regions of each sample
    old: NDArray[np.uint64]  # (R,) offset
    size: NDArray[np.uint64]  # (R,) bytes
    new: NDArray[np.uint64]  # (R,) offset

    def update_pointers(self, column: NDArray[Any], type_id: int, stored: NDArray[np.uint64] | None) -> None:
        """Update the pointers in the metadata of one field, shape (N,)."""
        # `stored`, shape (N,), is the size of each value if it is known: of an empty region and the next one, which
        # begin at the same offset, it selects the right one.
        if type_id in (FieldType.INT, FieldType.FLOAT) or len(self.old) == 0:
            return
        # A size may by chance look like a pointer; in the library's own fields the names show which is which. Only its
        # class knows the pointers of a custom field: there every number of 64 bits that points into a region of its
        # sample, or to its end, counts as one.
        names = None if type_id == FieldType.CUSTOM else ("", "ptr", "data_ptr")
        for words in pointer_columns(column, names):
            self._update(words, stored)

    def _update(self, words: NDArray[Any], stored: NDArray[np.uint64] | None) -> None:
        per_sample = (-1,) + (1,) * (words.ndim - 1)
        value = words.astype(np.uint64)
        moved, best = value.copy(), np.zeros(value.shape, np.int8)
        first = np.cumsum(self.count) - self.count
        for number in range(int(self.count.max(initial=0))):
            exists = number < self.count
            region = np.where(exists, first + number, 0)
            old, size, new = (each[region].reshape(per_sample) for each in (self.old, self.size, self.new))
            fits = exists if stored is None else exists & (self.size[region] == stored)
            inside = exists.reshape(per_sample) & (value >= old) & (value - old <= size)
            begins = inside & (value == old)
            score = inside.astype(np.int8) + begins + (begins & fits.reshape(per_sample))
            better = score > best
            moved[better] = (new + (value - old))[better]
            best = np.maximum(best, score)
        words[...] = moved.astype(words.dtype)


def pointer_columns(column: NDArray[Any], names: Sequence[str] | None = None, name: str = "") -> Iterator[NDArray[Any]]:
    """Give a view of each number of 64 bits in a column of metadata; with `names`, only of those that it lists."""
    if column.dtype.names is not None:
        for inner in column.dtype.names:
            yield from pointer_columns(column[inner], names, inner)
    elif column.dtype.kind in "iu" and column.dtype.itemsize == 8 and (names is None or name in names):
        yield column
