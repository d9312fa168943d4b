"""Encoder: encode the samples of a task as a chunk, and write it when its place is known."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.descriptors import open_descriptor
from gpubeton._sources.source import Source
from gpubeton._writing.file_builder import ChunkPlace, MovedRegions, RegionSizes, SkippedRow
from gpubeton._writing.targets import write_at
from gpubeton.errors import OptionError, RegionTooLargeError, SampleError, WriteError
from gpubeton.fields.registry import type_id_of
from gpubeton.format.layout import PAGE_SIZE_MAX, metadata_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from gpubeton.fields.base import Field


#: Samples of a chunk at most, so that two messages about chunks always fit in a pipe: the calling process never waits
#: for a writing process to read, while that one waits for it.
MAX_CHUNKSIZE = 256


Task = range
"""The rows of one chunk: from `start` up to `stop`, exclusive."""


class TaskQueue:
    """Sequences of tasks; one worker carries out all tasks of a sequence, in their order."""

    def __init__(self, sequences: Iterable[Iterable[Task]]) -> None:
        self._waiting = iter(sequences)
        self._sequences: dict[int, Iterator[Task]] = {}

    def take(self, worker: int) -> Task | None:
        """Take the next task of a worker: of its sequence, or the first one of the next; None if none is left."""
        while True:
            for task in self._sequences.get(worker, ()):
                return task
            sequence = next(self._waiting, None)
            if sequence is None:
                return None
            self._sequences[worker] = iter(sequence)


def split_rows(start: int, stop: int, chunksize: int) -> Iterator[Task]:
    """Split rows into tasks of at most `chunksize` rows, one after the other: a dataset may have millions."""
    return (Task(row, min(row + chunksize, stop)) for row in range(start, stop, chunksize))


@dataclass(frozen=True)
class Job:
    """Everything that encoders need to know of a file."""

    dataset: Any  # gives a sample for an index
    indices: Sequence[Any]  # the samples, in the order of the file's rows
    fields: Mapping[str, Field]
    page_size: int  # bytes
    metadata_offset: int  # first byte of the metadata
    file: str  # path of an existing file
    skip: bool = False  # leave out samples that cannot be read or encoded
    checksums: bool = False  # compute the checksum of each region
    list_changes: bool = False  # ask the dataset what its images have lost, by its method `take_changes`


def check_on_error(on_error: str) -> bool:
    """Whether bad samples are left out."""
    if on_error not in ("raise", "skip"):
        raise OptionError(f"on_error is {on_error!r}, expected 'raise' or 'skip'")
    return on_error == "skip"


Place = Callable[[int, RegionSizes], ChunkPlace]
"""Finds the place of a chunk; called with its first row, in the order of the rows."""

#: First of the pointers that fields get before samples are placed: far from every offset in a file, and also small
#: enough for a signed column.
_FIRST_POINTER = 0x7BE7 << 48

#: Characters of the reason for leaving a sample out, which goes through a pipe.
_LONGEST_REASON = 1000


class Encoder:
    """Encodes chunks and keeps them until their place is known; a ``with`` block holds the file open."""

    def __init__(self, job: Job, on_sample: Callable[[int], None] | None = None) -> None:
        self._job = job
        self._fields = tuple(job.fields.values())
        self._row_size = metadata_dtype([field.metadata_type for field in self._fields]).itemsize
        self._on_sample = on_sample
        self._chunks: dict[int, Chunk] = {}
        self._descriptor = open_descriptor(job.file, os.O_WRONLY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._descriptor)

    def count(self, shards: int) -> list[int]:
        """Count the samples of each shard of the dataset."""
        return [self._job.dataset.count(shard) for shard in range(shards)]

    def run(self, queue: TaskQueue, place: Place, on_written: Callable[[Task], object]) -> None:
        """Carry out all tasks in this process."""
        while (task := queue.take(0)) is not None:
            self.write(task, place(task.start, self.encode(task)))
            on_written(task)

    def encode(self, task: Task) -> RegionSizes:
        """Encode a chunk and keep it; return the sizes of its regions."""
        job = self._job
        chunk = self._chunks[task.start] = encode_chunk(job, task, self._on_sample)
        regions = chunk.regions
        if job.checksums:
            regions = replace(regions, checksums=chunk.checksums())
        if job.list_changes:
            rows = {job.indices[row]: row for row in range(task.start, task.stop)}
            changes = job.dataset.take_changes(rows, {sample.row for sample in regions.skipped})
            regions = replace(regions, changes=changes)
        return regions

    def write(self, task: Task, place: ChunkPlace) -> None:
        """Write an encoded chunk at its place and forget it."""
        chunk = self._chunks.pop(task.start)
        for offset, region in chunk.settle(place.offset, self._fields):
            write_at(self._descriptor, offset, region.data, self._job.file)
        rows = self._job.metadata_offset + place.first_row * self._row_size
        write_at(self._descriptor, rows, chunk.metadata.tobytes(), self._job.file)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some encoded samples, whose place in the file is not known yet."""

    metadata: NDArray[np.void]  # (N,) rows with provisional pointers
    contents: list[NDArray[np.uint8]]  # of each region
    regions: RegionSizes
    pointers: NDArray[np.uint64]  # (R,) provisional pointer of each region

    def settle(self, offset: NDArray[np.uint64], fields: Sequence[Field]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Put the final pointers into the metadata; give the offset and the bytes of each region."""
        # `offset`, shape (N,), is the place of each sample in the file.
        regions, final = self.regions, self.regions.pointers(offset)
        moved = MovedRegions(regions.counts, self.pointers, regions.sizes.astype(np.uint64), final)
        for number, field in enumerate(fields):
            moved.update_pointers(self.metadata[f"f{number}"], type_id_of(field))
        return zip(final.tolist(), self.contents, strict=True)

    def checksums(self) -> NDArray[np.uint32]:
        """Compute the CRC-32 of each region: shape (R,)."""
        return np.array([zlib.crc32(content.data) for content in self.contents], np.uint32)


class _Allocator:
    """The `Malloc` that fields get: keeps the regions in memory."""

    def __init__(self) -> None:
        self.sample = 0  # row of the file that is encoded now
        self.contents: list[NDArray[np.uint8]] = []
        self.pointers: list[int] = []
        self._next = _FIRST_POINTER

    def __call__(self, size: int) -> tuple[int, NDArray[np.uint8]]:
        content = np.zeros(int(size), np.uint8)
        pointer = self._next
        self.contents.append(content)
        self.pointers.append(pointer)
        # One more than the size: the end of a region is not the start of the next.
        self._next += content.size + 1
        return pointer, content


def encode_chunk(job: Job, task: Task, on_sample: Callable[[int], None] | None = None) -> Chunk:
    """Take the samples of a task from the dataset and encode them; `on_sample` is called with the row of each."""
    # A sample that is larger than a page always raises an error, because another page size would hold it.
    dataset, fields, indices = job.dataset, job.fields, job.indices[task.start : task.stop]
    metadata = np.zeros(len(indices), metadata_dtype([field.metadata_type for field in fields.values()]))
    allocator = _Allocator()
    counts: list[int] = []
    skipped: list[SkippedRow] = []
    for number, index in enumerate(indices, task.start):
        allocator.sample = number
        if on_sample is not None:
            on_sample(number)
        place = f"sample {index} (row {number} of the file)"
        first, row = len(allocator.contents), len(counts)
        try:
            _encode(dataset, index, fields, metadata[row : row + 1], allocator, place)
        except SampleError as error:
            if not job.skip or type(error.__cause__) is WriteError:  # the dataset cannot go on after this sample
                file = file_of(dataset, index)
                if file is None or file in str(error):
                    raise
                raise type(error)(f"{file}: {error}", error.sample) from error
            skipped.append(SkippedRow(number, str(error)[:_LONGEST_REASON]))
            metadata[row] = np.zeros((), metadata.dtype)
            del allocator.contents[first:], allocator.pointers[first:]
            continue
        counts.append(len(allocator.contents) - first)
        check_size(sum(max(1, content.size) for content in allocator.contents[first:]), job.page_size, place, index)
    sizes = np.fromiter((content.size for content in allocator.contents), np.int64, len(allocator.contents))
    regions = RegionSizes(np.array(counts, np.int64), sizes, skipped=tuple(skipped))
    pointers = np.array(allocator.pointers, np.uint64)
    return Chunk(metadata[: len(counts)], allocator.contents, regions, pointers)


def _encode(
    dataset: Any, index: Any, fields: Mapping[str, Field], row: NDArray[np.void], allocator: _Allocator, place: str
) -> None:
    with _naming(f"{place}: the dataset raised", index):
        sample = dataset[index]
    for column, (name, value) in enumerate(_values(sample, fields, place, index)):
        file = f", {value}" if isinstance(value, os.PathLike) else ""
        with _naming(f"{place}, field {name!r}{file}", index):
            fields[name].encode(row[f"f{column}"], value, allocator)


@contextmanager
def _naming(place: str, index: Any) -> Iterator[None]:
    """Name the sample in an exception."""
    try:
        yield
    except Exception as error:
        raise SampleError(f"{place}: {type(error).__name__}: {error}", index) from error


def _values(sample: Any, fields: Mapping[str, Field], place: str, index: Any) -> list[tuple[str, Any]]:
    """Pair the values of a sample with the names of the fields."""
    if isinstance(sample, Mapping):
        missing = [name for name in fields if name not in sample]
        if missing:
            raise SampleError(f"{place}: a mapping without {', '.join(map(repr, missing))}", index)
        return [(name, sample[name]) for name in fields]
    names = ", ".join(map(repr, fields))
    # FFCV ignores values beyond the fields, but reads an array or a string as if it were a tuple.
    if not isinstance(sample, tuple | list) and (not hasattr(sample, "__len__") or len(sample) != len(fields)):
        raise SampleError(
            f"{place}: a {type(sample).__name__}, expected a tuple of {len(fields)} values for {names}, or a mapping",
            index,
        )
    if len(sample) < len(fields):
        raise SampleError(
            f"{place}: {len(sample)} values for {len(fields)} fields; expected one each for {names}", index
        )
    return list(zip(fields, sample, strict=False))


def check_size(size: int, page_size: int, place: str, index: Any) -> None:
    """Refuse a sample that needs more bytes than a page has."""
    if size <= page_size:
        return
    needed = 1 << (size - 1).bit_length()
    advice = (
        f"Use page_size={needed}."
        if needed < PAGE_SIZE_MAX
        else f"No page can be as large as {PAGE_SIZE_MAX}: split the sample, or store it smaller."
    )
    raise RegionTooLargeError(f"{place}: {size} bytes, but a page has {page_size}. {advice}", index)


def file_of(dataset: Any, index: Any) -> str | None:
    """Find the file of a sample, for errors; None if the dataset does not list its files."""
    try:
        while hasattr(dataset, "dataset") and hasattr(dataset, "indices"):  # torch's Subset
            dataset, index = dataset.dataset, dataset.indices[index]
        if isinstance(dataset, Source):
            return dataset.name(index)
        for attribute in ("samples", "imgs", "files"):
            listed = getattr(dataset, attribute, None)
            if listed is None:
                continue
            entry = listed[index][0] if isinstance(listed[index], tuple | list) else listed[index]
            if isinstance(entry, str | os.PathLike) and os.path.isfile(entry):  # noqa: PTH113  a text
                return os.fspath(entry)
    except (IndexError, KeyError, TypeError, ValueError):
        pass  # the attribute means something else
    return None


def without_place(reason: str) -> str:
    """Leave out the sample's number from a reason: its name is more useful."""
    return reason.partition("the file)")[2].lstrip(":, ") or reason
