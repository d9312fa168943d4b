"""Source: the metadata and the regions of one field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.format.layout import FieldType
from gpubeton.format.regions import Regions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.fields.base import Field
    from gpubeton.format.index import Index


@dataclass(frozen=True, eq=False)
class Source:
    """Where the values of one field are, for every sample of the file, or of the files.

    Parameters
    ----------
    name : str
        Name of the field.
    field : Field
        The field itself.
    column : ndarray, shape (N,)
        Its metadata.
    regions : tuple of Regions
        Its regions: none if the values stand in the metadata, more than one if a custom field stores several.
    """

    name: str
    field: Field
    column: NDArray[Any]
    regions: tuple[Regions, ...]

    @classmethod
    def of(cls, index: Index, name: str, field: Field) -> Source:
        """Find the values of a field.

        Parameters
        ----------
        index : Index
            The file.
        name : str
            Name of the field.
        field : Field
            The field itself.

        Returns
        -------
        Source
            Where they are.
        """
        column = index.column(name)
        if index.has_regions(name):
            return cls(name, field, column, (index.regions(name),))
        type_id = index.descriptors[index.names.index(name)].type_id
        if type_id != FieldType.CUSTOM:
            return cls(name, field, column, ())
        return cls(name, field, column, _pointed_to(index, column))

    @property
    def max_size(self) -> int:
        """Bytes of the longest region; 0 if there are none."""
        return max((int(regions.size.max()) for regions in self.regions), default=0)


def _pointed_to(index: Index, column: NDArray[Any]) -> tuple[Regions, ...]:
    """Regions of a custom field: whatever number in its metadata is a pointer to a region of the same sample."""
    table = index.allocations
    if len(table) == 0:
        return ()
    sample = np.arange(len(column), dtype=np.uint64)
    found = []
    for pointer in _numbers(column):
        # Of rows with the same pointer the last is the one that is not empty.
        row = np.searchsorted(table["ptr"], pointer, side="right") - 1
        is_own = (row >= 0) & (table["ptr"][row] == pointer) & (table["sample_id"][row] == sample)
        if is_own.any():
            # Any other number is no pointer, and may be no place of a byte at all.
            found.append(
                Regions(np.where(is_own, pointer, np.uint64(0)), np.where(is_own, table["size"][row], np.uint64(0)))
            )
    return tuple(found)


def _numbers(column: NDArray[Any]) -> list[NDArray[np.uint64]]:
    """Every unsigned 64-bit number of a column, each as an array of its own, shape (N,)."""
    if column.dtype.names is not None:
        return [numbers for name in column.dtype.names for numbers in _numbers(column[name])]
    if column.dtype != np.dtype("<u8"):
        return []
    return [np.ascontiguousarray(numbers) for numbers in column.reshape(len(column), -1).T]
