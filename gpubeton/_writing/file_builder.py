"""FileBuilder: places samples in the pages of a file, and writes its header, notes and allocation table."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._writing.chunks import ChunkPlace, RegionSizes, SkippedRow
from gpubeton.errors import PageSizeError
from gpubeton.fields.registry import type_id_of
from gpubeton.format.file_notes import Notes
from gpubeton.format.header import Descriptor
from gpubeton.format.layout import (
    ALLOCATION_DTYPE,
    ARGUMENTS_SIZE,
    DESCRIPTOR_DTYPE,
    HEADER_DTYPE,
    PAGE_SIZE_MAX,
    PAGE_SIZE_MIN,
    VERSION,
    FieldType,
    round_up,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._writing.targets import WrittenFile
    from gpubeton.fields.base import Field


@dataclass(frozen=True)
class MovedRegions:
    """Old and new offsets of the regions of some samples."""

    count: NDArray[np.int64]  # (N,) regions of each sample
    old: NDArray[np.uint64]  # (R,) offset
    size: NDArray[np.uint64]  # (R,) bytes
    new: NDArray[np.uint64]  # (R,) offset

    def update_pointers(
        self, column: NDArray[Any], type_id: int, stored: NDArray[np.unsignedinteger[Any]] | None = None
    ) -> None:
        """Update the pointers in the metadata of one field, shape (N,)."""
        # `stored`, shape (N,), is the size of each value if it is known: of an empty region and the next one, which
        # begin at the same offset, it selects the right one.
        if type_id in (FieldType.INT, FieldType.FLOAT) or len(self.old) == 0:
            return
        # A size may by chance look like a pointer; in the library's own fields the names show which is which. Only its
        # class knows the pointers of a custom field: there every number of 64 bits that points into a region of its
        # sample, or to its end, counts as one.
        names = None if type_id == FieldType.CUSTOM else ("", "ptr", "data_ptr")
        for words in _pointer_columns(column, names):
            self._update(words, stored)

    def _update(self, words: NDArray[Any], stored: NDArray[np.unsignedinteger[Any]] | None) -> None:
        per_sample = (-1,) + (1,) * (words.ndim - 1)
        value = words.astype(np.uint64)
        moved, best = value.copy(), np.zeros(value.shape, np.int8)
        first = np.cumsum(self.count) - self.count
        for number in range(int(self.count.max(initial=0))):
            exists = number < self.count
            region = np.where(exists, first + number, 0)
            old, size, new = (array[region].reshape(per_sample) for array in (self.old, self.size, self.new))
            fits = exists if stored is None else exists & (self.size[region] == stored)
            inside = exists.reshape(per_sample) & (value >= old) & (value - old <= size)
            begins = inside & (value == old)
            score = inside.astype(np.int8) + begins + (begins & fits.reshape(per_sample))
            better = score > best
            moved[better] = (new + (value - old))[better]
            best = np.maximum(best, score)
        words[...] = moved.astype(words.dtype)


def _pointer_columns(column: NDArray[Any], names: Sequence[str] | None, name: str = "") -> Iterator[NDArray[Any]]:
    """Give a view of each number of 64 bits in a column of metadata, of these names if there are any."""
    if column.dtype.names is not None:
        for inner in column.dtype.names:
            yield from _pointer_columns(column[inner], names, inner)
    elif column.dtype.kind in "iu" and column.dtype.itemsize == 8 and (names is None or name in names):
        yield column


class PageAllocator:
    """Fills pages with samples, one after the other, and keeps the allocation table."""

    # All regions of a sample are in one page: a sample that does not fit into the rest of a page begins the next one.
    # FFCV's writer with a single process puts them at the same places.

    def __init__(self, metadata_end: int, page_size: int) -> None:
        self._metadata_end = metadata_end
        self._page_size = page_size
        # No page has been begun: the first sample finds no room left.
        self.position = self._page_end = round_up(metadata_end, page_size)
        self._rows: list[NDArray[np.void]] = []

    @property
    def table_offset(self) -> int:
        """Offset of the allocation table: the end of the last page, or of the metadata if there is no page."""
        return self._page_end if self._rows else self._metadata_end

    @property
    def table(self) -> NDArray[np.void]:
        """The allocation table so far: ALLOCATION_DTYPE, shape (R,)."""
        return np.concatenate([np.empty(0, ALLOCATION_DTYPE), *self._rows])

    def allocate(self, first_row: int, regions: RegionSizes) -> NDArray[np.uint64]:
        """Find the offsets of the next samples, shape (N,); `first_row` is the row of the first one in the file."""
        room = regions.room_of_samples
        if room.max(initial=0) > self._page_size:
            raise ValueError(f"a sample of {room.max()} bytes in pages of {self._page_size}")
        ends = np.concatenate([[0], np.cumsum(room)])
        offset = np.empty(len(regions.counts), np.uint64)
        done = 0
        while True:
            left = self._page_end - self.position
            fitting = int(np.searchsorted(ends, ends[done] + left, side="right")) - 1
            offset[done:fitting] = self.position + ends[done:fitting] - ends[done]
            self.position += int(ends[fitting] - ends[done])
            done = fitting
            if done == len(offset):
                break
            self.position = self._page_end
            self._page_end += self._page_size
        if len(regions.sizes):
            rows = np.empty(len(regions.sizes), ALLOCATION_DTYPE)
            rows["sample_id"] = first_row + regions.owners
            rows["ptr"] = regions.pointers(offset)
            rows["size"] = regions.sizes
            self._rows.append(rows)
        return offset


class FileBuilder:
    """Gives rows and places to the samples of a file, and writes everything around them."""

    def __init__(
        self, file: WrittenFile, descriptors: Sequence[Descriptor], row_size: int, page_size: int, max_rows: int
    ) -> None:
        self._file = file
        self._descriptors = descriptors
        self._row_size, self._page_size = row_size, page_size
        self.metadata_offset = HEADER_DTYPE.itemsize + len(descriptors) * DESCRIPTOR_DTYPE.itemsize
        self.rows = 0  # samples so far
        self.skipped: list[SkippedRow] = []
        self.changes: Counter[str] = Counter()  # how many images have lost what
        self._pages = PageAllocator(self.metadata_offset + max_rows * row_size, page_size)
        self._checksums: list[NDArray[np.uint32]] = []

    @property
    def end(self) -> int:
        """Offset of the next sample, if it fits into the page."""
        return self._pages.position

    def place(self, first: int, regions: RegionSizes) -> ChunkPlace:
        """Find places for the next samples; `first` counts the samples before, also those that were left out."""
        first_row = first - len(self.skipped)
        offset = self._pages.allocate(first_row, regions)
        self.rows += len(regions.counts)
        self.skipped += regions.skipped
        self.changes.update({name: len(rows) for name, rows in regions.changes.items()})
        if regions.checksums is not None:
            self._checksums.append(regions.checksums)
        return ChunkPlace(first_row, offset)

    def add_checksums(self, checksums: NDArray[np.uint32]) -> None:
        """Add the checksums, shape (R,), of regions that were placed without."""
        self._checksums.append(checksums)

    def finish(self, content: Mapping[str, Any] | None = None, index: Callable[[int], int] | None = None) -> None:
        """Write header, notes and allocation table; without any arguments, the file is FFCV's to the byte."""
        # `index`, called with an offset, writes the entry points of the complete file there and returns where they end.
        pages_end = self._pages.table_offset
        self._write_end(content, pages_end)
        if index is not None and (entries_end := index(pages_end)) > pages_end:
            self._write_end(content, entries_end)

    def _write_end(self, content: Mapping[str, Any] | None, offset: int) -> None:
        rows, table = np.zeros(len(self._descriptors), DESCRIPTOR_DTYPE), self._pages.table
        for row, descriptor in zip(rows, self._descriptors, strict=True):
            row["type_id"] = descriptor.type_id
            row["name"][: len(descriptor.name)] = np.frombuffer(descriptor.name.encode("ascii"), np.uint8)
            row["arguments"] = np.frombuffer(descriptor.arguments, np.uint8)
        descriptors = rows.tobytes()
        if content is not None:
            sums, checksum = np.concatenate([np.empty(0, np.uint32), *self._checksums]), None
            if len(sums) == len(table):
                size = self.rows * self._row_size
                checksum = self._file.checksum(self.metadata_offset, size, zlib.crc32(descriptors))
            notes = Notes(content, sums if len(sums) else None, checksum).to_bytes()
            self._file.write(offset, notes)
            offset += len(notes)
        self._file.write(offset, table.tobytes())
        header = (VERSION, len(self._descriptors), self._page_size, self.rows, offset)
        self._file.write(0, np.array([header], HEADER_DTYPE).tobytes() + descriptors)


def make_descriptors(fields: Mapping[str, Field]) -> tuple[Descriptor, ...]:
    """Describe the fields as the file does."""
    return tuple(
        Descriptor(name, type_id_of(field), field.to_binary().tobytes()[:ARGUMENTS_SIZE])
        for name, field in fields.items()
    )


def checked_page_size(page_size: int) -> int:
    """Return the bytes of a page if the format allows them."""
    if not PAGE_SIZE_MIN <= page_size < PAGE_SIZE_MAX or page_size & (page_size - 1):
        raise PageSizeError(
            f"page_size is {page_size}, expected a power of two from {PAGE_SIZE_MIN} up to {PAGE_SIZE_MAX // 2}"
        )
    return page_size
