"""All that ``.beton`` files hold about their samples, read and checked once; several files as one dataset."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import (
    AllocationError,
    FieldArgumentsError,
    FieldMismatchError,
    FieldTypeError,
    FormatError,
    HeaderError,
    NoSuchFieldError,
    TruncatedError,
)
from gpubeton.files.open_files import open_bytes
from gpubeton.format.data_files import MAX_FILE_SIZE, DataFile, first_offset, split_offsets
from gpubeton.format.field_arguments import ArrayArguments, ImageKind
from gpubeton.format.header import Descriptor, Header, read_fields
from gpubeton.format.layout import ALLOCATION_DTYPE, IMAGE_DTYPE, METADATA_TYPES, PLAIN_TYPES, FieldType, metadata_dtype
from gpubeton.format.regions import Allocations, Regions, locate

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton.format.header import Descriptor


class Index:
    """The fields, metadata and regions of a ``.beton`` file, or of several that make one dataset.

    Made by `Index.open`, and of several by `gpubeton.format.index.join`. Everything in it was checked: each region lies
    inside the data pages, belongs to its sample and has the size of its value.
    The arrays are read-only and the files are closed again.

    Positions of bytes in regions, metadata and the allocation table are global offsets (see
    `gpubeton.format.data_files`): the offset in the file if there is one file.

    Attributes
    ----------
    files : tuple of DataFile
        The files: one as a rule.
    header : Header
        Header of the first.
    descriptors : tuple of Descriptor
        One per field, in the order of the file.
    names : tuple of str
        Names of the fields, in the order of the file.
    num_samples : int
        Number of samples.
    metadata : ndarray, shape (num_samples,)
        Structured rows with columns ``f0``, ``f1``, ...
    allocations : ndarray of ALLOCATION_DTYPE, shape (R,)
        The allocation table, sorted by pointer.

    Examples
    --------
    >>> index = Index.open("train.beton")
    >>> index.names, index.num_samples
    (('image', 'label'), 300)
    >>> index.column("label")[98:102]
    array([0, 0, 1, 1])
    >>> index.regions("image").offset[0]
    np.uint64(8388608)
    """

    def __init__(
        self,
        files: tuple[DataFile, ...],
        header: Header,
        descriptors: tuple[Descriptor, ...],
        metadata: NDArray[np.void],
        allocations: NDArray[np.void],
        regions: Mapping[str, Regions | None],
    ) -> None:
        self.files = files
        self.header = header
        self.descriptors = descriptors
        self.names = tuple(descriptor.name for descriptor in descriptors)
        self.num_samples = len(metadata)
        self.metadata = metadata
        self.allocations = allocations
        self._regions = regions

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], custom_types: Mapping[str, np.dtype[np.generic]] | None = None
    ) -> Index:
        """Read and check everything but the data pages.

        Takes at most about twice the memory that metadata and allocation table have in the file.

        Parameters
        ----------
        path : str or path
            A ``.beton`` file of version 2, written by FFCV or gpubeton.
        custom_types : mapping of str to dtype, optional
            Metadata dtype of each custom field (type 255), by its name; the library's own name themselves.

        Returns
        -------
        Index
            Holds no file open.

        Raises
        ------
        FormatError
            One of its subclasses for each defect, see `gpubeton.errors`.
        StorageError
            If the file is written to meanwhile.
        OSError
            If the file cannot be opened or read.
        """
        with open_bytes(path) as source:
            name, identity = source.name, source.identity()
            file_size = identity.size
            if file_size > MAX_FILE_SIZE:
                raise FormatError(f"{name}: {file_size} bytes; expected at most {MAX_FILE_SIZE}. Write several files.")
            header, descriptors = read_fields(source)
            row_type = metadata_dtype([_metadata_type(name, field, custom_types or {}) for field in descriptors])
            metadata_end = header.metadata_offset + header.num_samples * row_type.itemsize
            _check_extents(name, file_size, header, metadata_end)
            _check_table_size(name, file_size, header, descriptors)
            source.check_written(header.metadata_offset, metadata_end)
            # Before the metadata: while the table is sorted there are two of it.
            table = source.read_array(header.alloc_table_ptr, file_size)
            allocations = Allocations.check(name, header, metadata_end, table)
            metadata = source.read_array(header.metadata_offset, metadata_end).view(row_type)
            metadata.setflags(write=False)
            identity.check(name, source.identity())
        regions = {
            descriptor.name: locate(name, descriptor, metadata[f"f{number}"], allocations)
            for number, descriptor in enumerate(descriptors)
        }
        file_itself = DataFile(name, identity, header.page_size, 0, header.num_samples)
        return cls((file_itself,), header, descriptors, metadata, allocations.rows, regions)

    def __repr__(self) -> str:
        return f"<Index of {self.title}: {self.num_samples} samples of {', '.join(self.names)}>"

    @property
    def path(self) -> Path:
        """The file; the first, if there are several."""
        return Path(self.files[0].path)

    @property
    def file_size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def title(self) -> str:
        """The files, in few words."""
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"{self.files[0].path}{more}"

    def origin(self, sample: int) -> str:
        """Say in which of several files a sample is.

        Parameters
        ----------
        sample : int
            Its id.

        Returns
        -------
        str
            Its number in its file, and the file; nothing if there is only one.
        """
        if len(self.files) == 1:
            return ""
        file = self.file_of(sample)
        return f"sample {sample - file.first_sample} of {file.path}"

    def file_of(self, sample: int) -> DataFile:
        """Find the file that holds a sample.

        Parameters
        ----------
        sample : int
            Its id.

        Returns
        -------
        DataFile
            The file; the sample is number ``sample - file.first_sample`` in it. IndexError if there is no such sample.
        """
        if not 0 <= sample < self.num_samples:
            raise IndexError(f"{self.title}: no sample {sample}; expected 0 to {self.num_samples - 1}")
        return self.files[bisect_right(self.files, sample, key=lambda file: file.first_sample) - 1]

    def column(self, name: str) -> NDArray[Any]:
        """Give the metadata of one field.

        Parameters
        ----------
        name : str
            Name of the field; here and below NoSuchFieldError if the file has none of that name.

        Returns
        -------
        ndarray, shape (num_samples,)
            A read-only view; its dtype is the field's metadata dtype.
        """
        return self.metadata[f"f{self._number(name)}"]

    def regions(self, name: str) -> Regions:
        """Give where the bytes of one field are.

        Parameters
        ----------
        name : str
            Name of the field; FieldTypeError if its values are in the metadata, as those of integers.

        Returns
        -------
        Regions
            Offset and size for every sample. All lie inside the data pages.
        """
        descriptor = self.descriptors[self._number(name)]
        regions = self._regions[name]
        if regions is None:
            raise FieldTypeError(
                f"{self.title}: field {name!r} (type {descriptor.type_id}) has no regions: its values are in the "
                "metadata. Use column()."
            )
        return regions

    def has_regions(self, name: str) -> bool:
        """Tell whether the values of a field are regions rather than metadata.

        Parameters
        ----------
        name : str
            Name of the field.

        Returns
        -------
        bool
            Whether `regions` has an answer.
        """
        self._number(name)
        return self._regions[name] is not None

    def max_region(self, name: str) -> int:
        """Give the size of the longest region of a field.

        Parameters
        ----------
        name : str
            Name of the field, as for `regions`.

        Returns
        -------
        int
            Bytes.
        """
        return int(self.regions(name).size.max())

    def sample_pages(self) -> NDArray[np.int64]:
        """Give the page of each sample's first region.

        FFCV's quasi-random order keeps few pages open by it.

        Returns
        -------
        ndarray of int64, shape (num_samples,)
            Page number, counted from the start of the first file through all of them; -1 for a sample
            whose values are all empty.

        Raises
        ------
        AllocationError
            If no file has a region at all.
        """
        solid = self.allocations[self.allocations["size"] > 0]
        if len(solid) == 0:
            raise AllocationError(
                f"{self.title}: no field has data pages, which a quasi-random order is about. Use a random order."
            )
        file, offset = split_offsets(np.ascontiguousarray(solid["ptr"]))
        page_size = np.array([each.page_size for each in self.files], np.uint64)
        first_page = np.cumsum([0, *(each.num_pages for each in self.files[:-1])])
        pages = np.full(self.num_samples, -1, np.int64)
        # Of several assignments to one sample the last one stays, so the first region has to come last.
        pages[solid["sample_id"][::-1]] = ((offset // page_size[file]).astype(np.int64) + first_page[file])[::-1]
        return pages

    def _number(self, name: str) -> int:
        if name not in self.names:
            raise NoSuchFieldError(f"{self.title}: no field {name!r}; the file has {', '.join(map(repr, self.names))}.")
        return self.names.index(name)


def _metadata_type(
    path: str, descriptor: Descriptor, custom_types: Mapping[str, np.dtype[np.generic]]
) -> np.dtype[np.generic]:
    if descriptor.type_id == FieldType.CUSTOM:
        if descriptor.name not in custom_types and ImageKind.describes(descriptor.arguments):
            return IMAGE_DTYPE
        if descriptor.name not in custom_types:
            raise FieldTypeError(
                f"{path}: field {descriptor.name!r} is a custom one (type {int(FieldType.CUSTOM)}), whose class the "
                f"file does not name. Pass it: custom_fields={{{descriptor.name!r}: TheFieldClass}}."
            )
        return np.dtype(custom_types[descriptor.name])
    if descriptor.type_id not in METADATA_TYPES:
        raise FieldTypeError(
            f"{path}: field {descriptor.name!r} has the unknown type {descriptor.type_id}, expected one of "
            f"{', '.join(f'{int(kind)} ({kind.name})' for kind in FieldType)}. "
            "The descriptor is damaged, or the file needs a newer version of this library."
        )
    return METADATA_TYPES[descriptor.type_id]


def _check_extents(path: str, file_size: int, header: Header, metadata_end: int) -> None:
    """Compare what the header promises with the length of the file, before anything of that length is read."""
    if metadata_end > file_size or header.alloc_table_ptr > file_size:
        raise TruncatedError(
            f"{path}: {file_size} bytes, but the metadata of {header.num_samples} samples ends at {metadata_end} and "
            f"the allocation table begins at {header.alloc_table_ptr}. "
            "The file was probably cut short while copying; compare its size with the original."
        )
    if header.alloc_table_ptr < metadata_end:
        raise HeaderError(
            f"{path}: the allocation table begins at {header.alloc_table_ptr}, inside the metadata of "
            f"{header.num_samples} samples, which ends at {metadata_end}. The header is damaged; "
            "compare the file with the original."
        )


def _check_table_size(path: str, file_size: int, header: Header, descriptors: tuple[Descriptor, ...]) -> None:
    """Refuse a table longer than its fields can fill, before all of it is read."""
    kinds = [descriptor.type_id for descriptor in descriptors]
    if any(
        descriptor.type_id == FieldType.CUSTOM and not ImageKind.describes(descriptor.arguments)
        for descriptor in descriptors
    ):
        return  # only its class knows how many regions a value takes
    expected = header.num_samples * sum(kind not in PLAIN_TYPES for kind in kinds)
    found = (file_size - header.alloc_table_ptr) // ALLOCATION_DTYPE.itemsize
    if found > expected:
        raise AllocationError(
            f"{path}: an allocation table of {found} rows, but {header.num_samples} samples have at most {expected} "
            "regions. Something was appended to the file, or the table's place in the header is wrong."
        )


def join(parts: Sequence[Index]) -> Index:
    """Make one dataset of several files: samples are numbered through, fields are in the order of the first file."""
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
                _move_pointers(column[own], descriptor.type_id, part.allocations, first_offset(number))
        table = allocations[rows : rows + len(part.allocations)]
        table["sample_id"] += np.uint64(starts[number])
        table["ptr"] += first_offset(number)
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
    offset = np.concatenate([own.offset + first_offset(number) for number, own in enumerate(regions)])
    return Regions(offset, np.concatenate([own.size for own in regions]))


def _move_pointers(
    column: NDArray[Any], type_id: int, allocations: NDArray[np.void], first: np.uint64, name: str = ""
) -> None:
    """Turn the offsets in a column of metadata into global offsets."""
    if column.dtype.names is not None:
        for inner in column.dtype.names:
            _move_pointers(column[inner], type_id, allocations, first, inner)
    elif column.dtype != np.dtype("<u8"):
        return
    elif type_id != FieldType.CUSTOM:
        if name in ("", "ptr", "data_ptr"):
            column += first
    elif len(allocations):
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
        try:
            arguments = ArrayArguments.from_bytes(descriptor.arguments)
        except FieldArgumentsError:  # a class of the user may store anything
            return f"a field of type {int(type_id)} ({type_id.name})"
        return f"of shape {arguments.shape} and {arguments.dtype} (type {int(type_id)}, {type_id.name})"
    if type_id == FieldType.CUSTOM and ImageKind.describes(descriptor.arguments):
        return f"of images of kind {ImageKind.from_bytes(descriptor.arguments).name}"
    if type_id == FieldType.CUSTOM:
        return f"a custom field with metadata {index.column(descriptor.name).dtype}"
    return f"a field of type {int(type_id)} ({type_id.name})"


def _first_difference(one: Descriptor, two: Descriptor) -> int:
    return next(at for at, (a, b) in enumerate(zip(one.arguments, two.arguments, strict=True)) if a != b)
