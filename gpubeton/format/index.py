"""All that ``.beton`` files hold about their samples, read and checked once; several files as one dataset."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gpubeton._bytes.store_client import shown
from gpubeton.errors import (
    AllocationError,
    FieldTypeError,
    FormatError,
    HeaderError,
    NoSuchFieldError,
    TruncatedError,
)
from gpubeton.format.data_files import MAX_FILE_SIZE, DataFile, first_offset, origin_of, title_of
from gpubeton.format.entry_layout import NotesOrFault, index_path, read_notes_beside, read_notes_within
from gpubeton.format.field_arguments import ImageKind
from gpubeton.format.header import Descriptor, Header, read_fields
from gpubeton.format.layout import (
    ALLOCATION_DTYPE,
    HEADER_DTYPE,
    IMAGE_DTYPE,
    METADATA_TYPES,
    PLAIN_TYPES,
    FieldType,
    metadata_dtype,
)
from gpubeton.format.regions import Allocations, FieldRows, locate, pointers_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from gpubeton._bytes.byte_source import ByteSource
    from gpubeton.format.file_notes import Notes
    from gpubeton.format.regions import Regions

MetadataType: TypeAlias = "np.dtype[np.generic] | Callable[[str, Descriptor], np.dtype[np.generic]]"
CustomTypes: TypeAlias = Mapping[str, MetadataType]
"""Metadata dtype of each custom field (type 255), by its name; or a function of the file and the descriptor."""

# Samples that are gone through at once, so that their intermediate arrays fit into the processor's cache.
_BLOCK = 1 << 16
# Larger than any offset.
_NOWHERE = np.uint64(2**64 - 1)
# Bytes of metadata that are read at once.
_MOST_READ = 64 << 20
# Bytes before the table and its checksums that are read with them; most notes are shorter.
_NOTES_SIZE = 64 << 10


@dataclass(eq=False, repr=False)
class Index:
    """The fields, metadata and regions of a ``.beton`` file, or of several that make one dataset.

    Made by `open_dataset`. Everything in it was checked: each region lies inside the data pages, belongs to its sample
    and has the size of its value. The arrays are read-only and the files are closed again.

    Positions of bytes in regions, metadata and the allocation table are global offsets (see
    `gpubeton.format.data_files`): the offset in the file if there is one file.

    Examples
    --------
    >>> from gpubeton.format import open_dataset
    >>> index = open_dataset("train.beton")
    >>> index.names, index.num_samples
    (('image', 'label'), 300)
    >>> index.column("label")[98:102]
    array([0, 0, 1, 1])
    >>> index.regions("image").offset[0]
    np.uint64(8388608)
    """

    files: tuple[DataFile, ...]  #: the files: one as a rule
    header: Header  #: of the first
    descriptors: tuple[Descriptor, ...]  #: one per field, in the order of the file
    rows: tuple[FieldRows, ...]  #: one per field: its metadata and where its regions are
    stored_fingerprint: InitVar[str | None] = None
    #: Names of the classes if a manifest has them, none if the files have none or differ; None if the notes of the
    #: files have to be read.
    class_names: tuple[str, ...] | None = None
    names: tuple[str, ...] = field(init=False)  #: of the fields, in the order of the file
    num_samples: int = field(init=False)  #: number of samples

    def __post_init__(self, stored_fingerprint: str | None) -> None:
        self.names = tuple(descriptor.name for descriptor in self.descriptors)
        self.num_samples = sum(file.num_samples for file in self.files)
        if stored_fingerprint is not None:
            vars(self)["fingerprint"] = stored_fingerprint
        kinds = zip(self.descriptors, self.rows, strict=True)
        self._regions = {descriptor.name: rows.regions(descriptor) for descriptor, rows in kinds}

    def __repr__(self) -> str:
        return f"<Index of {self.title}: {self.num_samples} samples of {', '.join(self.names)}>"

    @property
    def metadata_type(self) -> np.dtype[np.void]:
        """Dtype of `metadata`."""
        return metadata_dtype([field.column.dtype for field in self.rows])

    @cached_property
    def metadata(self) -> NDArray[np.void]:
        """Structured rows with columns ``f0``, ``f1``, ..., shape (num_samples,); made when they are asked for."""
        metadata = self._metadata_rows(slice(None))
        metadata.setflags(write=False)
        return metadata

    def _metadata_rows(self, samples: slice) -> NDArray[np.void]:
        """Make the structured rows of some samples, with zeros between the columns."""
        rows = np.zeros(len(range(*samples.indices(self.num_samples))), self.metadata_type)
        for number, rows_of_field in enumerate(self.rows):
            _packed(rows, number)[:] = _packed(rows_of_field.column)[samples]
        return rows

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the fields and the metadata, which locate every region: 32 hexadecimal digits."""
        digest = blake2b(digest_size=16)
        for descriptor in self.descriptors:
            digest.update(repr((descriptor.name, descriptor.type_id)).encode())
        for start in range(0, self.num_samples, _BLOCK):
            digest.update(self._metadata_rows(slice(start, start + _BLOCK)).view(np.uint8).data)
        return digest.hexdigest()

    @property
    def allocations(self) -> NDArray[np.void]:
        """The allocation table, sorted by pointer, of ALLOCATION_DTYPE; read from the files when it is asked for."""
        return self._table[0]

    @property
    def checksums(self) -> NDArray[np.uint32]:
        """CRC-32 of each region, in the order of `allocations`; 0 if it is not known."""
        return self._table[1]

    @cached_property
    def _table(self) -> tuple[NDArray[np.void], NDArray[np.uint32]]:
        tables = [self._read_table(number) for number in range(len(self.files))]
        rows, checksums = tables[0] if len(tables) == 1 else map(np.concatenate, zip(*tables, strict=True))
        rows.setflags(write=False)
        return rows, checksums

    def _read_table(self, number: int) -> tuple[NDArray[np.void], NDArray[np.uint32]]:
        """Read the allocation table of one of the files, and the CRC-32 of its regions, (R,) each, for the dataset."""
        file = self.files[number]
        if file.is_container:
            return self._make_table(file)
        with file.open() as source:
            header, end = find_metadata_end(source, self)
            _check_extents(file.path, file.size, header, end)
            allocations, (notes, _) = _read_allocations(source, header, end)
        rows = allocations.rows
        recorded = None if notes is None else notes.checksums
        checksums = np.zeros(len(rows), np.uint32) if recorded is None else recorded
        if number:
            rows.setflags(write=True)
            rows["sample_id"] += np.uint64(file.first_sample)
            rows["ptr"] += first_offset(number)
        return rows, checksums

    def _make_table(self, file: DataFile) -> tuple[NDArray[np.void], NDArray[np.uint32]]:
        """Make the allocation table of a container, (R,), and the CRC-32 of its regions, (R,)."""
        tables, checksums = [], []
        for regions in filter(None, self._regions.values()):
            samples = np.flatnonzero(regions.size[file.rows]) + file.first_sample
            table = np.empty(len(samples), ALLOCATION_DTYPE)
            table["sample_id"], table["ptr"], table["size"] = samples, regions.offset[samples], regions.size[samples]
            tables.append(table)
            checksums.append(samples * 0 if regions.checksums is None else regions.checksums[samples])
        rows = np.concatenate(tables)
        order = np.argsort(rows["ptr"], kind="stable")
        return rows[order], np.concatenate(checksums)[order].astype(np.uint32)

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
        return title_of(self.files)

    def origin(self, sample: int) -> str:
        """Name the file of a sample, and its place there.

        Parameters
        ----------
        sample : int
            Its id.

        Returns
        -------
        str
            Of loose images the path. Nothing if all samples are in one ``.beton`` file.
        """
        regions = next(filter(None, self._regions.values()), None)
        return origin_of(self.files, sample, None if regions is None else int(regions.offset[sample]))

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
        return self.rows[self._number(name)].column

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

    def page_runs(self, least: int = 0) -> PageRuns:
        """Give the page of each sample's first region, counted through all files; -1 for a sample without regions.

        Orders such as FFCV's quasi-random one keep few pages open by it. ``page_runs().to_array()`` has a number for
        each sample.

        Parameters
        ----------
        least : int
            Bytes of a page, where those of a file are smaller. Then images that are read in place are where they lie;
            otherwise, they have the pages of the converted file.

        Returns
        -------
        PageRuns
            Where each run of samples in one page starts, and its page.

        Raises
        ------
        AllocationError
            If no file has a region at all.
        """
        runs = PageRuns.join(self._pages_by_block(least))
        if runs.page.max(initial=-1) < 0:
            raise AllocationError(
                f"{self.title}: no field has data pages, which a quasi-random order is about. Use a random order."
            )
        return runs

    def _pages_by_block(self, least: int) -> Iterator[NDArray[np.int64]]:
        """Find the page of each sample, some samples after others; -1 for those without regions."""
        first_page = 0
        for number, file in enumerate(self.files):
            if file.is_container and not least:
                for pages in self._pages_if_converted(file.rows):
                    first_page = int(pages.max()) + 1  # of a .beton file after it
                    yield pages
                continue
            page_size, num_pages = file.pages_of(least)
            for rows, samples, offset in self._first_regions(number):
                pages = np.full(rows.stop - rows.start, -1, np.int64)
                pages[samples - rows.start] = (offset // np.uint64(page_size)).astype(np.int64) + first_page
                yield pages
            first_page += num_pages

    def _pages_if_converted(self, samples: slice) -> Iterator[NDArray[np.int64]]:
        """Find the page that each sample of containers would have in the converted file, for the same orders."""
        pointers = [pointers_in(kind, rows.column) for kind, rows in zip(self.descriptors, self.rows, strict=True)]
        pointer = next(column for column in pointers if column is not None)
        for start in range(samples.start, samples.stop, _BLOCK):
            block = pointer[start : min(start + _BLOCK, samples.stop)]
            yield (block // np.uint64(self.header.page_size)).astype(np.int64)

    def _first_regions(self, number: int) -> Iterator[tuple[slice, NDArray[np.intp], NDArray[np.uint64]]]:
        """Find which samples of a file have regions, and the offset in the file of the first of each, (N,)."""
        # All samples of the file are looked at, a slice after the other.
        file, fields = self.files[number], [regions for regions in self._regions.values() if regions is not None]
        if len(fields) < sum(descriptor.type_id not in PLAIN_TYPES for descriptor in self.descriptors):
            # Only the class of a custom field knows which of its numbers are pointers.
            table, _ = self._read_table(number)
            solid = table[table["size"] > 0][::-1]  # of several assignments to one sample the last one stays
            yield file.rows, solid["sample_id"].astype(np.intp), solid["ptr"] - first_offset(number)
            return
        for start in range(file.rows.start, file.rows.stop, _BLOCK):
            rows = slice(start, min(start + _BLOCK, file.rows.stop))
            first = np.full(rows.stop - start, _NOWHERE)
            for regions in fields:
                np.minimum(first, regions.offset[rows], out=first, where=regions.size[rows] > 0)
            filled = np.flatnonzero(first != _NOWHERE)
            yield rows, filled + start, first[filled] - first_offset(number)

    def _number(self, name: str) -> int:
        if name not in self.names:
            raise NoSuchFieldError(f"{self.title}: no field {name!r}; the file has {', '.join(map(repr, self.names))}.")
        return self.names.index(name)


@dataclass(frozen=True, eq=False)
class PageRuns:
    """Pages of samples, which are kept once for samples that follow each other in one page."""

    start: NDArray[np.int64]  # (R + 1,) the first sample of each run; then the number of samples
    page: NDArray[np.int64]  # (R,)

    @classmethod
    def join(cls, blocks: Iterable[NDArray[np.int64]]) -> PageRuns:
        """Find the runs in the pages of all samples, which come block by block, (N,) each."""
        starts, pages, count = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        for block in blocks:
            first = _changes(block)
            starts.append(first + count)
            pages.append(block[first])
            count += len(block)
        start, page = np.concatenate(starts), np.concatenate(pages)
        first = _changes(page)  # a run may go on in the next block
        return cls(np.append(start[first], count), page[first])

    def of(self, samples: NDArray[np.uint64]) -> PageRuns:
        """Find the runs of other samples, (N,), in their order."""
        return PageRuns.join([self.page[np.searchsorted(self.start, samples.astype(np.int64), side="right") - 1]])

    def cut(self, rows: slice) -> PageRuns:
        """Give those of samples that follow each other."""
        first = int(np.searchsorted(self.start, rows.start, side="right")) - 1
        last = int(np.searchsorted(self.start, rows.stop))
        return PageRuns(self.start[first : last + 1].clip(rows.start, rows.stop) - rows.start, self.page[first:last])

    def to_array(self) -> NDArray[np.int64]:
        """Give the page of each sample, (N,)."""
        return np.repeat(self.page, np.diff(self.start))


def _changes(values: NDArray[np.int64]) -> NDArray[np.intp]:
    """Find where values differ from those before them; the first does."""
    return np.flatnonzero(np.concatenate([np.ones(len(values[:1]), np.bool_), values[1:] != values[:-1]]))


def read_index(source: ByteSource, custom_types: CustomTypes) -> Index:
    """Read and check everything but the data pages of an open file."""
    # Takes at most about twice the memory that metadata and allocation table have in the file, and the index keeps
    # little more than the metadata.
    name, identity = source.name, source.identity()
    file_size = identity.size
    if file_size > MAX_FILE_SIZE:
        raise FormatError(f"{name}: {file_size} bytes; expected at most {MAX_FILE_SIZE}. Write several files.")
    header, descriptors = read_fields(source)
    row_type = metadata_dtype([metadata_type_of(name, field, custom_types) for field in descriptors])
    metadata_end = header.metadata_offset + header.num_samples * row_type.itemsize
    _check_extents(name, file_size, header, metadata_end)
    _check_table_size(name, file_size, header, descriptors)
    source.check_written(header.metadata_offset, metadata_end)
    if not source.is_mappable:  # requests to a store take long, and are made at the same time
        source.announce(header.metadata_offset, metadata_end - header.metadata_offset)
        # Where the notes may begin, which end at the table; the entry points are described right before them.
        checksums_size = (file_size - header.alloc_table_ptr) // ALLOCATION_DTYPE.itemsize * 4
        start = max(metadata_end, header.alloc_table_ptr - checksums_size - _NOTES_SIZE)
        source.announce(start, file_size - start)
    # Before the metadata: while the table is sorted there are two of it.
    allocations, (notes, fault) = _read_allocations(source, header, metadata_end)
    allocations = allocations.with_checksums(None if notes is None else notes.checksums)
    columns, checksum = _read_columns(source, header, row_type)
    identity.check(name, source.identity())
    _check_metadata(name, notes, checksum)
    rows = [
        locate(name, descriptor, column, allocations) for descriptor, column in zip(descriptors, columns, strict=True)
    ]
    file_itself = DataFile(name, identity, header.page_size, 0, header.num_samples, fault=fault)
    return Index((file_itself,), header, descriptors, tuple(rows))


def _check_metadata(name: str, notes: Notes | None, checksum: int) -> None:
    """Compare the CRC-32 of the metadata with that in the notes, if it is known; raise FormatError."""
    if notes is None or notes.metadata_checksum in (None, checksum):
        return
    cure = "or write it again"
    if "regions" in notes.content:  # the notes are beside the file
        beside = shown(index_path(name))
        cure = f"or, if the change is meant, remove {beside} and run gpubeton index {shown(name)} again"
    raise FormatError(
        f"{name}: its fields and metadata have the checksum {checksum:08x}, expected {notes.metadata_checksum:08x}. "
        f"Labels or other numbers have changed since it was stored. Compare the file with the original, {cure}"
    )


def find_metadata_end(source: ByteSource, index: Index) -> tuple[Header, int]:
    """Find where the metadata of one of the files ends, whose fields may have another order than those of the index."""
    header, descriptors = read_fields(source)
    row_type = metadata_dtype([index.column(descriptor.name).dtype for descriptor in descriptors])
    return header, header.metadata_offset + header.num_samples * row_type.itemsize


def metadata_type_of(path: str, descriptor: Descriptor, custom_types: CustomTypes) -> np.dtype[np.generic]:
    """Give the dtype of a field's metadata."""
    if descriptor.type_id == FieldType.CUSTOM:
        custom = custom_types.get(descriptor.name)
        if custom is None and ImageKind.describes(descriptor.arguments):
            return IMAGE_DTYPE
        if custom is None:
            raise FieldTypeError(
                f"{path}: field {descriptor.name!r} is a custom one (type {int(FieldType.CUSTOM)}), whose class the "
                f"file does not name. Pass it: custom_fields={{{descriptor.name!r}: TheFieldClass}}."
            )
        return np.dtype(custom(path, descriptor) if callable(custom) else custom)
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
    if any(
        descriptor.type_id == FieldType.CUSTOM and not ImageKind.describes(descriptor.arguments)
        for descriptor in descriptors
    ):
        return  # only its class knows how many regions a value takes
    most = header.num_samples * sum(descriptor.type_id not in PLAIN_TYPES for descriptor in descriptors)
    count = (file_size - header.alloc_table_ptr) // ALLOCATION_DTYPE.itemsize
    if count > most:
        raise AllocationError(
            f"{path}: an allocation table of {count} rows, but {header.num_samples} samples have at most {most} "
            "regions. Something was appended to the file, or the table's place in the header is wrong."
        )


def _packed(array: NDArray[Any], field: int | None = None) -> NDArray[np.void]:
    """View rows, or a field of them, as bytes of no meaning, (N,): numpy copies these five times as fast as structs."""
    kind: Any = array.dtype
    if field is None:
        return array.view(f"V{kind.itemsize}").reshape(len(array))
    inner, offset = kind.fields[f"f{field}"][:2]
    packed: NDArray[np.void] = np.ndarray(
        array.shape, np.dtype(f"V{inner.itemsize}"), array.data, offset, (kind.itemsize,)
    )
    return packed


def _read_allocations(source: ByteSource, header: Header, metadata_end: int) -> tuple[Allocations, NotesOrFault]:
    """Read and check the allocation table; read the notes that have checksums, or tell why they cannot be used."""
    notes, fault = read_notes_within(source)  # first: the table follows them
    table = source.read_array(header.alloc_table_ptr, source.size)
    allocations = Allocations.check(source.name, header, metadata_end, table)
    if not fault and (notes is None or (notes.checksums is None and notes.metadata_checksum is None)):
        notes, fault = read_notes_beside(source, allocations.rows)
    return allocations, (notes, fault)


def _read_columns(source: ByteSource, header: Header, row_type: np.dtype[np.void]) -> tuple[list[NDArray[Any]], int]:
    """Read the metadata of each field, (N,), without the gaps between them; compute its CRC-32, see `Notes`."""
    first = HEADER_DTYPE.itemsize
    checksum = zlib.crc32(source.read(first, header.metadata_offset - first))
    columns = [np.zeros(header.num_samples, kind) for kind in (row_type[name] for name in row_type.names or ())]
    size = row_type.itemsize
    count = max(_MOST_READ // size, 1)
    for first in range(0, header.num_samples, count):
        rows = slice(first, min(first + count, header.num_samples))
        start, stop = (header.metadata_offset + row * size for row in (rows.start, rows.stop))
        content = source.read_array(start, stop)
        checksum, metadata = zlib.crc32(content.data, checksum), content.view(row_type)
        for number, column in enumerate(columns):
            _packed(column)[rows] = _packed(metadata, number)
    return columns, checksum


def metadata_checksum(source: ByteSource, metadata_end: int) -> int:
    """Compute the CRC-32 of the descriptors and the metadata of an open file, see `Notes`."""
    checksum = 0
    for start in range(HEADER_DTYPE.itemsize, metadata_end, _MOST_READ):
        checksum = zlib.crc32(source.read_exactly(start, min(_MOST_READ, metadata_end - start)), checksum)
    return checksum
