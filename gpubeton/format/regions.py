"""Where the bytes of one field are, for every sample: found by the allocation table, or checked in a stored index."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import (
    AllocationError,
    FieldArgumentsError,
    FieldTypeError,
    ImageSizeError,
    RegionError,
    RegionOverlapError,
    RegionSizeError,
    TruncatedError,
)
from gpubeton.format.field_arguments import RGB, ArrayArguments, ImageKind
from gpubeton.format.layout import (
    ALLOCATION_DTYPE,
    FILE_MODES,
    IMAGE_DTYPE,
    PLAIN_TYPES,
    FieldType,
    ImageMode,
    round_up,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.format.header import Descriptor, Header

# Samples of a stored index that are checked at once, so that their intermediate arrays fit into the processor's cache.
SAMPLES_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Allocations:
    """The checked allocation table of a file."""

    rows: NDArray[np.void]  # (R,) ALLOCATION_DTYPE, sorted by pointer; FFCV leaves them in the order of its processes
    # Columns of the rows that are not empty, (S,); no pointer occurs twice. In contiguous memory the work is faster.
    ptr: NDArray[np.uint64]  # contiguous
    size: NDArray[np.uint64]  # contiguous
    sample_id: NDArray[np.uint64]
    checksums: NDArray[np.uint32] | None = None  # CRC-32; None if they are not known

    @classmethod
    def check(cls, path: str, header: Header, metadata_end: int, table: NDArray[np.uint8]) -> Allocations:
        """Check a table and sort it."""
        # `table`: uint8 (bytes,), becomes the memory of `rows`
        if len(table) % ALLOCATION_DTYPE.itemsize:
            raise TruncatedError(
                f"{path}: the allocation table has {len(table)} bytes, which is not a multiple of "
                f"{ALLOCATION_DTYPE.itemsize}. The file was cut short, or something was appended to it."
            )
        rows = table.view(ALLOCATION_DTYPE)
        ptr = sort_rows(rows)
        rows.setflags(write=False)
        _check_samples(path, header, rows)
        size = np.ascontiguousarray(rows["size"])
        _check_offsets(path, header, metadata_end, rows, ptr, size)
        is_solid = size > 0
        table_columns = ptr, size, rows["sample_id"]
        if not is_solid.all():
            table_columns = ptr[is_solid], size[is_solid], rows["sample_id"][is_solid]
        allocations = cls(rows, *table_columns)
        _check_overlaps(path, allocations)
        return allocations

    def with_checksums(self, checksums: NDArray[np.uint32] | None) -> Allocations:
        """Add the CRC-32 of the regions of all rows, (R,)."""
        return self if checksums is None else replace(self, checksums=checksums[self.rows["size"] > 0])

    def checksums_of(self, row: NDArray[np.intp] | slice, empty: NDArray[np.bool_]) -> NDArray[np.uint32] | None:
        """Give the CRC-32 of the regions of some rows; 0 where the value is `empty`."""
        return None if self.checksums is None else np.where(empty, np.uint32(0), self.checksums[row])

    def find(self, ptr: NDArray[np.uint64]) -> NDArray[np.intp] | slice:
        """Find the rows of the regions that begin at offsets in the file; -1 where none does."""
        if len(self.ptr) == 0:
            return np.full(len(ptr), -1, np.intp)
        # As a rule the samples lie one after the other, with as many regions each: comparing is faster than searching.
        if len(ptr) and (step := len(self.ptr) // len(ptr)):
            first = int(np.searchsorted(self.ptr, ptr[0]))
            regular = slice(first, first + step * len(ptr), step)
            if np.array_equal(self.ptr[regular], ptr):
                return regular
        row = np.minimum(np.searchsorted(self.ptr, ptr), len(self.ptr) - 1)
        row[self.ptr[row] != ptr] = -1
        return row


def sort_rows(rows: NDArray[np.void]) -> NDArray[np.uint64]:
    """Sort rows by pointer, in place; return the pointers, (R,)."""
    ptr = np.ascontiguousarray(rows["ptr"])
    if np.all(ptr[:-1] <= ptr[1:]):
        return ptr
    # FFCV's table is one sorted run per process, which a stable sort merges ten times faster than others sort it.
    order = np.argsort(ptr, kind="stable")
    numbers = rows.view("<u8").reshape(-1, 3)
    numbers[:] = numbers[order]
    return ptr[order]


def _check_samples(path: str, header: Header, rows: NDArray[np.void]) -> None:
    bad = np.flatnonzero(rows["sample_id"] >= np.uint64(header.num_samples))
    if len(bad):
        row = rows[bad[0]]
        raise AllocationError(
            f"{path}: the allocation table names sample {row['sample_id']}, but there are {header.num_samples} samples "
            f"({len(bad)} such rows). Something was appended to the file, or the number of samples in its header is "
            "wrong."
        )


def _check_offsets(
    path: str,
    header: Header,
    metadata_end: int,
    rows: NDArray[np.void],
    ptr: NDArray[np.uint64],
    size: NDArray[np.uint64],
) -> None:
    """Every region has to lie between the metadata and the table, and within one page."""
    start, stop = round_up(metadata_end, header.page_size), header.alloc_table_ptr
    shift = np.uint64(header.page_size.bit_length() - 1)
    # The rest takes five times as long, and is needed for empty regions and to name bad ones.
    if len(rows) and start <= ptr[0] and ptr[-1] <= stop and size.max() <= stop:
        last = ptr + size
        fits = last.max() <= stop
        last -= np.uint64(1)
        last ^= ptr
        last >>= shift  # 0 where both are in one page
        if fits and not last.any():
            return
        del last
    # Written without ptr + size, which may pass 2**64.
    fits = (size <= np.uint64(stop)) & (ptr <= np.uint64(stop) - np.minimum(size, np.uint64(stop)))
    # FFCV gives an empty region the pointer 0 when nothing was written before it.
    fits &= (size == 0) | (ptr >= np.uint64(min(start, stop)))
    bad = np.flatnonzero(~fits)
    if len(bad):
        row = rows[bad[0]]
        raise RegionError(
            f"{path}: sample {row['sample_id']}: a region of {row['size']} bytes at {row['ptr']} lies outside the data "
            f"pages {start}..{stop} ({len(bad)} such regions). The allocation table is damaged; "
            "compare the file with the original."
        )
    last = ptr + np.maximum(size, np.uint64(1)) - np.uint64(1)
    bad = np.flatnonzero((size > 0) & (ptr >> shift != last >> shift))
    if len(bad):
        row = rows[bad[0]]
        raise RegionError(
            f"{path}: sample {row['sample_id']}: a region of {row['size']} bytes at {row['ptr']} crosses the end of "
            f"its page of {header.page_size} bytes ({len(bad)} such regions). The page size in the header is wrong."
        )


def _check_overlaps(path: str, allocations: Allocations) -> None:
    ptr, size = allocations.ptr, allocations.size
    bad = np.flatnonzero(ptr[:-1] + size[:-1] > ptr[1:])
    if len(bad):
        first, second = int(bad[0]), int(bad[0]) + 1
        raise RegionOverlapError(
            f"{path}: the region of sample {allocations.sample_id[first]} (bytes {ptr[first]}.."
            f"{ptr[first] + size[first]}) and that of sample {allocations.sample_id[second]} (from {ptr[second]}) "
            f"share bytes ({len(bad)} such pairs). The allocation table is damaged; compare the file with the original."
        )


@dataclass(frozen=True)
class Regions:
    """Where the bytes of one field are, for every sample. Made by `Index.regions`."""

    offset: NDArray[np.uint64]  #: (N,) first byte of the region in the file; that of the file, 0, where the size is 0
    size: NDArray[np.uint32] | NDArray[np.uint64]  #: (N,) bytes of the region
    checksums: NDArray[np.uint32] | None = None  #: (N,) CRC-32 of the region; 0 if it is not known


@dataclass(frozen=True)
class FieldRows:
    """The metadata of one field and where its regions are, each number stored once."""

    column: NDArray[Any]  # (N,) its metadata, one row after the other
    # Of each region, (N,), where the metadata lack it; a region is shorter than a page, which 32 bits suffice for.
    sizes: NDArray[np.uint32] | None = None
    # Of each region, (N,), where the metadata have another number than 0 for an empty one.
    offsets: NDArray[np.uint64] | None = None
    has_regions: bool = False
    checksums: NDArray[np.uint32] | None = None  # (N,) CRC-32 of each region, 0 if it is not known

    def __post_init__(self) -> None:
        for array in self.arrays:
            array.setflags(write=False)

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """Those that there are."""
        return [array for array in (self.column, self.sizes, self.offsets, self.checksums) if array is not None]

    def regions(self, descriptor: Descriptor) -> Regions | None:
        """Give where the regions are, in views of the arrays."""
        if not self.has_regions:
            return None
        sizes = sizes_in(descriptor, self.column) if self.sizes is None else self.sizes
        return Regions(offsets_in(descriptor, self), sizes, self.checksums)


def pointers_in(descriptor: Descriptor, column: NDArray[Any]) -> NDArray[np.uint64] | None:
    """Find the numbers in the metadata of a field, (N,), that point to its regions; None if there are none."""
    if descriptor.type_id in PLAIN_TYPES:
        return None
    for name in ("ptr", "data_ptr"):
        if column.dtype.names is not None and name in column.dtype.names:
            column = column[name]
    return column if column.dtype == np.dtype("<u8") and column.ndim == 1 else None


def offsets_in(descriptor: Descriptor, rows: FieldRows) -> NDArray[np.uint64]:
    """Give the offset of each region, (N,), of a field that has regions."""
    offsets = pointers_in(descriptor, rows.column) if rows.offsets is None else rows.offsets
    assert offsets is not None, "a field without pointers has no regions"
    return offsets


def sizes_in(descriptor: Descriptor, column: NDArray[Any]) -> NDArray[np.uint64]:
    """Give the size of each region, (N,), of a field whose metadata or arguments have it."""
    if descriptor.type_id in (FieldType.BYTES, FieldType.JSON):
        sizes: NDArray[np.uint64] = column["size"]
        return sizes
    # A size beyond 64 bits cannot be that of any region either.
    nbytes = min(ArrayArguments.from_bytes(descriptor.arguments).nbytes, 2**64 - 1)
    return np.broadcast_to(np.uint64(nbytes), len(column))


def locate(path: str, descriptor: Descriptor, column: NDArray[Any], allocations: Allocations) -> FieldRows:
    """Find the region of every sample in one field, and check that its size is right."""
    # `column`: (N,)
    field = FieldPlace(path, descriptor.name, allocations)
    match descriptor.type_id:
        case FieldType.RGB_IMAGE:
            return _locate_images(field, descriptor, column)
        case FieldType.BYTES | FieldType.JSON:
            return field.look_up(column, column["ptr"], sizes_in(descriptor, column), "its metadata has")
        case FieldType.NDARRAY | FieldType.TORCH_TENSOR:
            try:
                arguments = ArrayArguments.from_bytes(descriptor.arguments)
            except FieldArgumentsError as error:
                raise FieldArgumentsError(
                    f"{path}: field {descriptor.name!r}: {error}. The descriptor is damaged; compare with the original."
                ) from error
            size = sizes_in(descriptor, column)
            return field.look_up(column, column, size, f"shape {arguments.shape} of {arguments.dtype} takes")
        case FieldType.CUSTOM if ImageKind.describes(descriptor.arguments) and column.dtype == IMAGE_DTYPE:
            return _locate_images(field, descriptor, column)
        case FieldType.CUSTOM:
            return _locate_custom(descriptor, column, allocations)
    return FieldRows(column)


@dataclass(frozen=True)
class FieldPlace:
    """A field while its regions are looked up: what errors name, and where to look."""

    path: str
    name: str
    allocations: Allocations | None = None
    first: int = 0  # number of the first sample

    def look_up(
        self, column: NDArray[Any], pointers: NDArray[np.uint64], expected: NDArray[np.uint64], expectation: str
    ) -> FieldRows:
        """Find regions whose exact size is known."""
        ptr = np.ascontiguousarray(pointers, np.uint64)
        size, checksums = self.sizes(ptr, expected == 0)
        bad = np.flatnonzero(size != expected)
        if len(bad):
            sample = int(bad[0])
            raise RegionSizeError(
                f"{self.at(sample)}: its region has {size[sample]} bytes, but {expectation} {expected[sample]} "
                f"({len(bad)} such samples). The file is damaged; compare it with the original."
            )
        # The pointer of an empty value may be any number, also one outside the file.
        is_odd = (size == 0) & (ptr != 0)
        offsets = np.where(is_odd, np.uint64(0), ptr) if is_odd.any() else None
        return FieldRows(column, offsets=offsets, has_regions=True, checksums=checksums)

    def sizes(
        self, ptr: NDArray[np.uint64], empty: NDArray[np.bool_]
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint32] | None]:
        """Give size and CRC-32 of the region at each pointer, 0 where the value is `empty`."""
        assert self.allocations is not None, "images of a stored index have no table"
        row = self.allocations.find(ptr)
        bad = np.zeros(0, np.intp) if isinstance(row, slice) else np.flatnonzero((row < 0) & ~empty)
        if len(bad):
            sample = int(bad[0])
            raise AllocationError(
                f"{self.at(sample)}: no region begins at {ptr[sample]} according to the allocation table of "
                f"{len(self.allocations.rows)} rows ({len(bad)} such samples). "
                "The file was probably cut short while copying; compare its size with the original."
            )
        # Without any row there is nothing to index, and every value is empty.
        if len(self.allocations.ptr) == 0:
            return np.zeros(len(ptr), np.uint64), None
        bad = np.flatnonzero((self.allocations.sample_id[row] != np.arange(len(ptr), dtype=np.uint64)) & ~empty)
        if len(bad):
            sample = int(bad[0])
            raise RegionError(
                f"{self.at(sample)}: the region at {ptr[sample]} belongs to sample "
                f"{self.allocations.sample_id[row][sample]} according to the allocation table ({len(bad)} such "
                "samples). The metadata is damaged; compare the file with the original."
            )
        size = np.array(self.allocations.size[row])
        size[empty] = 0
        return size, self.allocations.checksums_of(row, empty)

    def at(self, sample: int) -> str:
        return f"{self.path}: sample {self.first + sample}, field {self.name!r}"


def _locate_images(field: FieldPlace, descriptor: Descriptor, column: NDArray[Any]) -> FieldRows:
    ptr = np.ascontiguousarray(column["data_ptr"], np.uint64)
    size, checksums = field.sizes(ptr, np.zeros(len(ptr), np.bool_))
    check_images(field, descriptor, column, size)
    return FieldRows(column, size.astype(np.uint32), has_regions=True, checksums=checksums)


def check_images(field: FieldPlace, descriptor: Descriptor, column: NDArray[Any], size: NDArray[Any]) -> None:
    """Refuse images without pixels, raw ones of another size, and ways to store them that their kind does not know."""
    kind: ImageKind = RGB
    packed: tuple[ImageMode, ...] = (ImageMode.JPG,)
    if descriptor.type_id == FieldType.CUSTOM:
        try:
            kind, packed = ImageKind.from_bytes(descriptor.arguments), FILE_MODES
        except FieldArgumentsError as error:
            raise FieldArgumentsError(f"{field.path}: field {field.name!r}: {error}") from error
        bad = np.flatnonzero(~np.isin(column["mode"], kind.modes))
        if len(bad):
            sample = int(bad[0])
            modes_allowed = ", ".join(f"{int(mode)} ({mode.name})" for mode in kind.modes)
            raise FieldTypeError(
                f"{field.at(sample)}: an image of kind {kind.name} stored in way {column['mode'][sample]}, expected "
                f"one of {modes_allowed} ({len(bad)} such samples). The file is damaged, or needs a newer version of "
                "this library."
            )
    width, height = column["width"], column["height"]
    bad = np.flatnonzero((width == 0) | (height == 0))
    if len(bad):
        sample = int(bad[0])
        raise ImageSizeError(
            f"{field.at(sample)}: an image of width {width[sample]} and height {height[sample]} ({len(bad)} such "
            "samples). FFCV stores a side of 65536 pixels as 0; write the file again with a max_resolution below that."
        )
    is_raw = np.ones(len(column), np.bool_)
    for mode in packed:  # np.isin takes many times as long
        is_raw &= column["mode"] != mode
    raw = np.flatnonzero(is_raw)
    # numpy 1 would compute a number times uint16 as uint16, of which 256 times 256 is 0.
    pixels = np.uint64(kind.pixel_size) * width[raw].astype(np.uint64) * height[raw].astype(np.uint64)
    bad = raw[size[raw] != pixels]
    if len(bad):
        sample = int(bad[0])
        raise RegionSizeError(
            f"{field.at(sample)}: its region has {size[sample]} bytes, but a raw image of width {width[sample]} and "
            f"height {height[sample]} takes {kind.pixel_size * int(width[sample]) * int(height[sample])} "
            f"({len(bad)} such samples). The file is damaged; compare it with the original."
        )


def _locate_custom(descriptor: Descriptor, column: NDArray[Any], allocations: Allocations) -> FieldRows:
    """Treat a custom column as pointers if all values are; only its class knows better."""
    pointers = pointers_in(descriptor, column)
    if pointers is None or len(allocations.ptr) == 0:
        return FieldRows(column)
    ptr = np.ascontiguousarray(pointers, np.uint64)
    row = allocations.find(ptr)
    is_right = allocations.sample_id[row] == np.arange(len(ptr), dtype=np.uint64)
    if not (is_right.all() and (isinstance(row, slice) or (row >= 0).all())):
        return FieldRows(column)
    checksums = allocations.checksums_of(row, ~is_right)
    return FieldRows(column, allocations.size[row].astype(np.uint32), has_regions=True, checksums=checksums)
