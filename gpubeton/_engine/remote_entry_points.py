"""Entry points in object stores: loaded when images are needed first, a shard or a range of a file at a time.

The first batches of an epoch on the CPU do without (`gpubeton._engine.batch_plan`), so that the first one waits for the
index and its images alone.
"""

from __future__ import annotations

import itertools
import os
import threading
import warnings
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from gpubeton._bytes.load_pool import LoadPool, has_failed
from gpubeton._bytes.open_files import OpenSources, source_type
from gpubeton._bytes.store_client import shown
from gpubeton._engine.storage import FIRST_REQUESTS, RegionLoader
from gpubeton.errors import FormatError, LoaderClosedError, RemoteChangedError, RemoteMissingError
from gpubeton.format.data_files import first_offset
from gpubeton.format.entry_layout import index_path
from gpubeton.format.entry_points import BlockReader, EntryPoints, open_blocks, open_entry_points, rgb_fields
from gpubeton.format.layout import ENTRY_DTYPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from gpubeton._bytes.byte_source import SourceIdentity
    from gpubeton._bytes.node_cache import NodeCache
    from gpubeton._engine.storage import LoadedRange
    from gpubeton.format.entry_points import EntryBlock
    from gpubeton.format.index import Index

# Entry points take about 1 % of the bytes of images: one more request for 25 pages of 8 MiB.
_RANGE_BYTES = 2 << 20
# The most that stays in memory, those of some 400 GB of images, besides what is in use.
_MOST_BYTES = 4 << 30


def load_when_needed(index: Index, cache: NodeCache | None, most_requests: int) -> dict[str, EntryPoints]:
    """Give the entry points of each field that may have some; they are looked for and loaded when they are needed."""
    loader = _EntryLoader(index, cache, most_requests)
    return {name: _RemoteEntryPoints(name, loader) for name in rgb_fields(index)}


#: The result of `EntryPoints.of`.
_EntriesOf: TypeAlias = "tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint32], object]"


class _RemoteEntryPoints(EntryPoints):
    """The entry points of one field."""

    comes_late = True

    def __init__(self, name: str, loader: _EntryLoader) -> None:
        self._name, self._loader = name, loader

    def prepare(self, samples: NDArray[Any]) -> None:
        self._loader.begin(self._name, samples)

    def of(self, samples: NDArray[Any]) -> _EntriesOf:
        return self._loader.load(self._name, samples)

    @property
    def summary(self) -> str:
        self._loader.load(self._name, np.zeros(0, np.intp))
        points = self._loader.points[self._name]
        missing = self._loader.count_missing(self._name)
        if missing:
            return f"{points.summary}, and those of {missing:,} shards, loaded when they are needed"
        return points.summary if points.counts.any() else ""

    def interrupt(self) -> None:
        self._loader.interrupt()

    def leave_out(self, samples: NDArray[np.uint64]) -> None:
        self._loader.points[self._name].leave_out(samples)


class _EntryRange(NamedTuple):
    """Entry points that come with one request."""

    file: int
    rows: slice  # their samples
    start: int  # of their bytes
    stop: int
    name: str | None  # the field; None for all of a shard, with their tables

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


class _EntryLoader:
    """Looks for the entry points of all fields, and loads them. Safe to use from threads."""

    def __init__(self, index: Index, cache: NodeCache | None, most_requests: int) -> None:
        self.points: dict[str, EntryPoints] = {}  # of the fields; empty until they are looked for
        self._index, self._cache, self._most = index, cache, most_requests
        self._in_memory: dict[int, object] = {}  # memory of ranges by their number, the one used last at the end
        self._begin_process()

    def _begin_process(self) -> None:
        """Forget what threads do of the process that this one was forked from."""
        self._process = os.getpid()
        self._beginning, self._lock = threading.Lock(), threading.Lock()
        self._first: Future[None] | None = None
        self._pools: tuple[LoadPool, ...] = ()  # of the first load, and of the last one

    def count_missing(self, name: str) -> int:
        """Count the shards whose entry points of a field were not loaded; call `load` before."""
        missing = [self._ranges[number] for number in np.flatnonzero(self._is_missing).tolist()]
        places = [self._index.files[span.file].entry_place for span in missing]
        return sum(place is not None and name in place.fields for place in places)

    def begin(self, name: str, samples: NDArray[Any]) -> Future[None]:
        """Look for all and load those of some samples, (N,), in the background, if it was not done; return at once."""
        if self._process != os.getpid():
            self._begin_process()
        with self._beginning:
            if self._first is None or has_failed(self._first):
                pool = LoadPool(shown(self._index.files[0].path), 1)
                self._first = pool.enqueue(self._load_first, name, samples)
                pool.finish([self._first])
                self._pools = (pool,)
            return self._first

    def _load_first(self, name: str, samples: NDArray[Any]) -> None:
        """Carry out `begin`, in a thread."""
        with self._lock:
            if not self.points:
                self._open()
        self._load(name, samples)

    def _open(self) -> None:
        """Look for those whose places are not known."""
        index, names, count = self._index, rgb_fields(self._index), self._index.num_samples
        opened, self._tables, faults = open_entry_points(index)
        self._files = OpenSources(_sources(index, self._tables), cache=self._cache)
        numbers = range(len(index.files))
        self._ranges = [span for number in numbers for span in _list_ranges(index, number, names, self._tables[number])]
        self._is_missing = np.array([span.stop > span.start for span in self._ranges], bool)
        self._of_fields = {
            name: np.array([i for i, span in enumerate(self._ranges) if span.name in (name, None)], np.intp)
            for name in names
        }
        self._starts = np.array([span.rows.start for span in self._ranges], np.int64)
        # Arrays of zeros take no memory as long as nothing is written to them.
        self.points = {
            name: opened.get(name)
            or EntryPoints(np.zeros(count, np.uint64), np.zeros(count, np.int32), np.zeros(count, np.uint32), None)
            for name in names
        }
        for fault in faults:
            _warn(fault)

    def load(self, name: str, samples: NDArray[Any]) -> _EntriesOf:
        """Load the entry points of some samples, (N,), that are not there; give the result of `EntryPoints.of`."""
        try:
            self.begin(name, samples).result()
        except CancelledError:
            raise self._closed_error() from None
        return self._load(name, samples)

    def _load(self, name: str, samples: NDArray[Any]) -> _EntriesOf:
        of_field = self._of_fields[name]
        numbers = of_field[np.unique(np.searchsorted(self._starts[of_field], samples, "right")) - 1].tolist()
        with self._lock:
            if missing := [number for number in numbers if self._is_missing[number]]:
                self._request_and_take(missing)
            keep = [(number, self._in_memory.pop(number)) for number in numbers if number in self._in_memory]
            self._in_memory.update(keep)
            addresses, counts, seals, _ = self.points[name].of(samples)
            if missing:
                self._forget()
        return addresses, counts, seals, keep

    def _request_and_take(self, numbers: Sequence[int]) -> None:
        """Load ranges by their numbers."""
        loader = RegionLoader(self._files, FIRST_REQUESTS, self._most)
        self._pools = (*self._pools[:1], loader)
        loads = [self._request(loader, self._ranges[number]) for number in numbers]
        loader.finish(loads)
        try:
            for number, load in zip(numbers, loads, strict=True):
                if self._is_missing[number]:  # not left out with another range of its file
                    self._in_memory[number] = self._take(self._ranges[number], load)
                    self._is_missing[number] = False
        finally:
            loader.interrupt()  # after an error

    def _forget(self) -> None:
        """Forget the ranges that were not used for the longest time, if there are too many; batches keep theirs."""
        excess = sum(self._ranges[number].nbytes for number in self._in_memory) - _MOST_BYTES
        for number in [*self._in_memory]:
            if excess <= 0:
                break
            span = self._ranges[number]
            excess -= span.nbytes
            del self._in_memory[number]
            self._is_missing[number] = True
            for name, points in self.points.items():
                if span.name in (name, None):
                    points.addresses[span.rows] = 0
                if span.name is None:
                    points.counts[span.rows] = 0

    def interrupt(self) -> None:
        """End the waiting of another thread, with an error."""
        for pool in self._pools:
            pool.interrupt()

    def _closed_error(self) -> LoaderClosedError:
        path = shown(self._index.files[0].path)
        return LoaderClosedError(f"{path}: the loader was closed while entry points were loaded")

    def _request(self, loader: RegionLoader, span: _EntryRange) -> Future[LoadedRange]:
        first = int(first_offset(span.file))
        return loader.request(first + span.start, first + span.stop)

    def _content(self, load: Future[LoadedRange]) -> NDArray[np.uint8]:
        """Give loaded bytes, to keep: the cache's are shared by all processes, other memory is wanted for pages."""
        try:
            content = np.frombuffer(load.result().content, np.uint8)
        except CancelledError:
            raise self._closed_error() from None
        return content.copy() if self._cache is None else content

    def _take(self, span: _EntryRange, load: Future[LoadedRange]) -> object:
        """Take a range that was loaded; give what owns its memory."""
        return self._take_shard(span, load) if span.name is None else self._take_entries(span, span.name, load)

    def _take_shard(self, span: _EntryRange, load: Future[LoadedRange]) -> object:
        """Check the entry points of a shard; look for them if they are not where the manifest has them."""
        place = self._index.files[span.file].entry_place
        try:
            content = self._content(load)
            is_beside = place is not None and place.beside is not None
            blocks = BlockReader(self._index, span.file, is_beside=is_beside).parse(content)
        except (FormatError, RemoteChangedError, RemoteMissingError):
            blocks, faults = open_blocks(self._index, span.file)
            for fault in faults:
                _warn(fault)
        for name, points in self.points.items():
            if (block := blocks.get(name)) is not None:
                points.addresses[span.rows], points.counts[span.rows] = block.addresses, block.counts
                points.seals[span.rows] = block.seals
        return blocks

    def _take_entries(self, span: _EntryRange, name: str, load: Future[LoadedRange]) -> object:
        """Take the entries of some images, whose seals show that they are theirs."""
        file, points = self._index.files[span.file], self.points[name]
        try:
            content = self._content(load)
        except (RemoteChangedError, RemoteMissingError) as error:
            if self._files.paths[span.file] == file.path:
                raise
            _warn(f"{error} Or make them again: gpubeton index --overwrite {shown(file.path)}")
            points.leave_out(np.flatnonzero(points.addresses[file.rows] == 0).astype(np.uint64) + file.first_sample)
            self._is_missing[[other.file == span.file for other in self._ranges]] = False
            return None
        first = self._tables[span.file][name].first
        first = first[span.rows.start - file.first_sample : span.rows.stop - file.first_sample + 1]
        begin = np.uint64(content.ctypes.data)
        addresses = begin + (first[:-1] - first[0]) * np.uint64(ENTRY_DTYPE.itemsize)
        addresses[first[1:] == first[:-1]] = 0
        points.addresses[span.rows] = addresses
        return content


def _list_ranges(
    index: Index, number: int, names: Iterable[str], tables: Mapping[str, EntryBlock]
) -> Iterator[_EntryRange]:
    """List the ranges of a file, field by field; an empty one where nothing is to be loaded."""
    file = index.files[number]
    if (place := file.entry_place) is not None:
        yield _EntryRange(number, file.rows, place.start, place.stop if place.fields else place.start, None)
        return
    for name in names:
        if (table := tables.get(name)) is None:
            yield _EntryRange(number, file.rows, 0, 0, name)
            continue
        places = table.first.astype(np.int64) * ENTRY_DTYPE.itemsize
        rows = [*np.flatnonzero(np.diff(places[:-1] // _RANGE_BYTES, prepend=-1)).tolist(), file.num_samples]
        for low, high in itertools.pairwise(rows):
            samples = slice(file.first_sample + low, file.first_sample + high)
            yield _EntryRange(number, samples, table.begin + int(places[low]), table.begin + int(places[high]), name)


def _sources(index: Index, tables: Sequence[Mapping[str, EntryBlock]]) -> Iterator[tuple[str, SourceIdentity]]:
    """List the files that hold the entry points of each file: that one, or the one beside it."""
    for file, opened in zip(index.files, tables, strict=True):
        place = file.entry_place
        beside = None if place is None else place.beside
        if (holder := next((block.place for block in opened.values()), None)) is not None:
            yield holder
        elif place is None or beside is None:
            yield file.path, file.identity
        else:
            path, (size, version) = place.path or index_path(file.path), beside
            identity = source_type(path).known_identity(path, size, version or "", file.identity.remote)
            assert identity is not None, "files that are mapped have no known place"
            yield path, identity


def _warn(fault: str) -> None:
    warnings.warn(f"{fault}. Until then, images are decoded without them.", stacklevel=3)
