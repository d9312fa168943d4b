"""Joining: several ``.beton`` files as one dataset."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import FieldArgumentsError, FieldMismatchError
from gpubeton.format.array_arguments import ArrayArguments
from gpubeton.format.image_kind import ImageKind
from gpubeton.format.index import Index
from gpubeton.format.layout import FieldType
from gpubeton.format.places import first_place
from gpubeton.format.regions import Regions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.format.header import Descriptor

__all__ = ["join"]


def join(parts: Sequence[Index]) -> Index:
    """Make one dataset of several files.

    The samples are numbered through: first those of the first file, then those of the second. Fields stand in the
    order of the first file. Pointers in the metadata become places, see `gpubeton.format.places`.

    Parameters
    ----------
    parts : sequence of Index
        What each file says, at least one.

    Returns
    -------
    Index
        What all of them say. Equal to the part, if there is one.

    Raises
    ------
    FieldMismatchError
        If their fields differ in names, types, arguments or metadata.

    Examples
    --------
    >>> index = join([Index.open("train.beton"), Index.open("train.beton")])
    >>> index.num_samples, index.title
    (600, 'train.beton and 1 more')
    """
    first, *others = parts
    if not others:
        return first
    for other in others:
        _check_fields(first, other)
    counts = [part.num_samples for part in parts]
    starts = [0, *accumulate(counts)]
    metadata = np.zeros(starts[-1], first.metadata.dtype)  # whose gaps count in fingerprints
    allocations = np.concatenate([part.allocations for part in parts])
    rows = 0
    for number, part in enumerate(parts):
        own = slice(starts[number], starts[number + 1])
        for field, descriptor in enumerate(first.descriptors):
            column = metadata[f"f{field}"]
            column[own] = part.column(descriptor.name)
            if number > 0:
                _move_pointers(column[own], descriptor.type_id, part.allocations, first_place(number))
        table = allocations[rows : rows + len(part.allocations)]
        table["sample_id"] += np.uint64(starts[number])
        table["ptr"] += first_place(number)
        rows += len(table)
    metadata.setflags(write=False)
    allocations.setflags(write=False)
    files = [replace(part.files[0], first_sample=start) for part, start in zip(parts, starts, strict=False)]
    regions = {name: _joined_regions(parts, name) for name in first.names}
    return Index(tuple(files), first.header, first.descriptors, metadata, allocations, regions)


def _joined_regions(parts: Sequence[Index], name: str) -> Regions | None:
    """Regions of a field in all files; None if one of them has none."""
    if not all(part.has_regions(name) for part in parts):
        return None
    regions = [part.regions(name) for part in parts]
    offset = np.concatenate([own.offset + first_place(number) for number, own in enumerate(regions)])
    return Regions(offset, np.concatenate([own.size for own in regions]))


def _move_pointers(
    column: NDArray[Any], type_id: int, allocations: NDArray[np.void], place: np.uint64, name: str = ""
) -> None:
    """Turn the offsets in a column of metadata into places."""
    if column.dtype.names is not None:
        for inner in column.dtype.names:
            _move_pointers(column[inner], type_id, allocations, place, inner)
    elif column.dtype != np.dtype("<u8"):
        return
    elif type_id != FieldType.CUSTOM:
        if name in ("", "ptr", "data_ptr"):
            column += place
    elif len(allocations):
        # What the numbers of a custom field mean only its class knows: those are pointers that point to what the table
        # calls a region of the same sample.
        sample = np.arange(len(column), dtype=np.uint64).reshape(-1, *[1] * (column.ndim - 1))
        row = np.maximum(np.searchsorted(allocations["ptr"], column, side="right"), 1) - 1
        column[(allocations["ptr"][row] == column) & (allocations["sample_id"][row] == sample)] += place


def _check_fields(first: Index, other: Index) -> None:
    """Refuse files that differ in their fields."""
    where = f"{first.title} and {other.title} cannot be one dataset"
    if set(first.names) != set(other.names):
        odd = [name for name in (*first.names, *other.names) if (name in first.names) != (name in other.names)]
        has, has_not = (first, other) if odd[0] in first.names else (other, first)
        raise FieldMismatchError(
            f"{where}: field {odd[0]!r} is in {has.title}, but not in {has_not.title}, which has "
            f"{', '.join(map(repr, has_not.names))}. Write both with the same fields."
        )
    for descriptor in first.descriptors:
        twin = other.descriptors[other.names.index(descriptor.name)]
        ours, theirs = _described(descriptor, first), _described(twin, other)
        if ours != theirs:
            raise FieldMismatchError(
                f"{where}: field {descriptor.name!r} is {ours} in the first and {theirs} in the second. "
                "Write both with the same fields."
            )
        if (descriptor.type_id, descriptor.arguments) != (twin.type_id, twin.arguments):
            raise FieldMismatchError(
                f"{where}: field {descriptor.name!r} ({ours} in both) was written with different arguments: the 1024 "
                f"bytes of its descriptor differ from byte {_first_difference(descriptor, twin)} on. "
                "Write both with the same fields."
            )


def _described(descriptor: Descriptor, index: Index) -> str:
    """Say of what kind a field is."""
    type_id = FieldType(descriptor.type_id)
    if type_id in (FieldType.NDARRAY, FieldType.TORCH_TENSOR):
        try:
            arguments = ArrayArguments.from_bytes(descriptor.arguments)
        except FieldArgumentsError:  # of a class of the user's own, which may store what it likes
            return f"a field of type {int(type_id)} ({type_id.name})"
        return f"of shape {arguments.shape} and {arguments.dtype} (type {int(type_id)}, {type_id.name})"
    if type_id == FieldType.CUSTOM and ImageKind.describes(descriptor.arguments):
        return f"of images of kind {ImageKind.from_bytes(descriptor.arguments).name}"
    if type_id == FieldType.CUSTOM:
        return f"a custom field with metadata {index.column(descriptor.name).dtype}"
    return f"a field of type {int(type_id)} ({type_id.name})"


def _first_difference(one: Descriptor, two: Descriptor) -> int:
    return next(place for place, (a, b) in enumerate(zip(one.arguments, two.arguments, strict=True)) if a != b)
