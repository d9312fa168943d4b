"""Several indices as one: the samples of the second follow those of the first."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import FieldArgumentsError, FieldMismatchError
from gpubeton.format.data_files import DataFile, first_offset
from gpubeton.format.field_arguments import ArrayArguments, ImageKind
from gpubeton.format.index import Index
from gpubeton.format.layout import FieldType
from gpubeton.format.regions import FieldRows, pointers_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from gpubeton.format.header import Descriptor


def join(parts: Iterable[Index], num_parts: int) -> Index:
    """Make one dataset of several: their samples follow each other, fields are in the order of the first one."""
    # Each part is let go before the next one is asked for, except for the first, which others are compared with.
    found = iter(parts)
    first = next(found)
    if num_parts == 1:
        return first
    files: list[DataFile] = []
    class_names = first.class_names
    fields = [_JoinedField(descriptor, num_parts) for descriptor in first.descriptors]
    for part in chain([first], found):
        if files:
            _check_fields(first, part)
        for each in fields:
            each.append(part, len(files))
        for file in part.files:
            files.append(replace(file, first_sample=files[-1].rows.stop if files else 0))
        if part.class_names is None or class_names is None:
            class_names = None
        elif part.class_names != class_names:
            class_names = ()
    rows = tuple(each.rows() for each in fields)
    return Index(tuple(files), first.header, first.descriptors, rows, class_names=class_names)


class _JoinedArray:
    """An array that others are appended to, without a copy of it each time: copies would take as long as the files."""

    def __init__(self, num_files: int) -> None:
        self._num_files = num_files
        self.array: NDArray[Any] = np.empty(0)
        self.count = 0

    def append(self, more: NDArray[Any]) -> slice:
        """Append rows, (N, ...); return their place."""
        rows = slice(self.count, self.count + len(more))
        if self.count == 0 or rows.stop > len(self.array):
            self._grow(rows.stop, more)
        self.count = rows.stop
        # As bytes: structs would take five times as long.
        self.array[rows].reshape(-1).view(np.uint8)[:] = more.reshape(-1).view(np.uint8)
        return rows

    def _grow(self, least: int, more: NDArray[Any]) -> None:
        kept = self.array[: self.count]
        try:  # memory that is not written to takes no room
            self.array = np.empty((max(len(more) * self._num_files, 2 * least), *more.shape[1:]), more.dtype)
        except MemoryError:
            self.array = np.empty((least, *more.shape[1:]), more.dtype)
        if len(kept):
            self.array[: len(kept)] = kept

    def finish(self) -> NDArray[Any]:
        """Give all rows; nothing can be appended any more."""
        self.array.resize((self.count, *self.array.shape[1:]), refcheck=False)
        return self.array


class _JoinedField:
    """Metadata and regions of a field in all files; without regions if one of them has none."""

    def __init__(self, descriptor: Descriptor, num_files: int) -> None:
        self._descriptor = descriptor
        self._column, self._sizes = _JoinedArray(num_files), _JoinedArray(num_files)
        self._checksums = _JoinedArray(num_files)
        self._has_sizes, self._has_regions = False, True
        self._offsets: list[tuple[slice, NDArray[np.uint64]]] = []  # rows and offsets of files that have them

    def append(self, part: Index, number: int) -> None:
        """Append the rows of a part, whose first file gets a number."""
        own = part.rows[part.names.index(self._descriptor.name)]
        rows = self._column.append(own.column)
        if number:
            _move_pointers(self._column.array[rows], self._descriptor, part, first_offset(number))
        self._has_regions &= own.has_regions
        if own.sizes is not None:
            self._has_sizes = True
            self._sizes.append(own.sizes)
        if own.checksums is not None:
            self._leave_checksums(rows.start)
            self._checksums.append(own.checksums)
        if own.offsets is not None:
            self._offsets.append((rows, own.offsets + first_offset(number)))

    def _leave_checksums(self, stop: int) -> None:
        """Write zeros for the rows of files without checksums, up to a row."""
        if missing := stop - self._checksums.count:
            self._checksums.append(np.zeros(missing, np.uint32))

    def rows(self) -> FieldRows:
        """Give those of all files."""
        column = self._column.finish()
        if not self._has_regions:
            return FieldRows(column)
        offsets = pointers_in(self._descriptor, column) if self._offsets else None
        if offsets is not None:
            offsets = offsets.copy()
            for place, own in self._offsets:
                offsets[place] = own
        sizes, checksums = self._sizes.finish() if self._has_sizes else None, None
        if self._checksums.count:
            self._leave_checksums(len(column))
            checksums = self._checksums.finish()
        return FieldRows(column, sizes, offsets, True, checksums)


def _move_pointers(column: NDArray[Any], descriptor: Descriptor, part: Index, first: np.uint64, name: str = "") -> None:
    """Turn the offsets in a column of metadata into global offsets."""
    is_known = descriptor.type_id != FieldType.CUSTOM or ImageKind.describes(descriptor.arguments)
    if column.dtype.names is not None:
        for inner in column.dtype.names:
            _move_pointers(column[inner], descriptor, part, first, inner)
    elif column.dtype != np.dtype("<u8"):
        return
    elif is_known:
        if name in ("", "ptr", "data_ptr"):
            column += first
    elif len(allocations := part.allocations):
        # Only the class of a custom field knows what its numbers mean: a number is a pointer if a region of the same
        # sample begins there in the table.
        sample = np.arange(len(column), dtype=np.uint64).reshape(-1, *[1] * (column.ndim - 1))
        row = np.maximum(np.searchsorted(allocations["ptr"], column, side="right"), 1) - 1
        column[(allocations["ptr"][row] == column) & (allocations["sample_id"][row] == sample)] += first


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
        with suppress(FieldArgumentsError):  # a class of the user may store anything
            arguments = ArrayArguments.from_bytes(descriptor.arguments)
            return f"of shape {arguments.shape} and {arguments.dtype} (type {int(type_id)}, {type_id.name})"
    if type_id == FieldType.CUSTOM and ImageKind.describes(descriptor.arguments):
        return f"of images of kind {ImageKind.from_bytes(descriptor.arguments).name}"
    if type_id == FieldType.CUSTOM:
        return f"a custom field with metadata {index.column(descriptor.name).dtype}"
    return f"a field of type {int(type_id)} ({type_id.name})"


def _first_difference(one: Descriptor, two: Descriptor) -> int:
    return next(at for at, (a, b) in enumerate(zip(one.arguments, two.arguments, strict=True)) if a != b)
