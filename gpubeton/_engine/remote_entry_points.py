"""Entry points in object stores: loaded when images are needed first, a shard or a part of a file at a time.

The first batches of an epoch on the CPU do without (`gpubeton._engine.batch_plan`), so that the first one waits for the
index and its images alone.
"""

from __future__ import annotations

import itertools
import os
import threading
import warnings
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from gpubeton._bytes.open_files import OpenSources, source_type
from gpubeton._bytes.store_client import shown
from gpubeton._engine.load_threads import FIRST_REQUESTS, LoadThreads
from gpubeton.errors import FormatError, LoaderClosedError, RemoteChangedError, RemoteMissingError
from gpubeton.format.data_files import first_offset
from gpubeton.format.entry_layout import index_path
from gpubeton.format.entry_points import BlockReader, EntryPoints, open_blocks, open_entry_points, rgb_fields
from gpubeton.format.layout import ENTRY_DTYPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._bytes.byte_source import SourceIdentity
    from gpubeton._bytes.node_cache import NodeCache
    from gpubeton._engine.load_threads import Load
    from gpubeton.format.entry_points import EntryTables
    from gpubeton.format.index import Index

# Entry points take about 1 % of the bytes of images: one more request for 25 pages of 8 MiB.
_PART_BYTES = 2 << 20
# The most that stays in memory, those of some 400 GB of images, besides what is in use.
_MOST_BYTES = 4 << 30


def load_when_needed(index: Index, cache: NodeCache | None, most_requests: int) -> dict[str, EntryPoints]:
    """Give the entry points of each field that may have some; they are looked for and loaded when they are needed."""
    parts = _Parts(index, cache, most_requests)
    return {name: _RemoteEntryPoints(name, parts) for name in rgb_fields(index)}


#: The result of `EntryPoints.of`.
_Found: TypeAlias = "tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint32], object]"


class _RemoteEntryPoints(EntryPoints):
    """The entry points of one field."""

    comes_late = True

    def __init__(self, name: str, parts: _Parts) -> None:
        self._name, self._parts = name, parts

    def prepare(self, samples: NDArray[Any]) -> None:
        self._parts.begin(self._name, samples)

    def of(self, samples: NDArray[Any]) -> _Found:
        return self._parts.load(self._name, samples)

    @property
    def summary(self) -> str:
        self._parts.load(self._name, np.zeros(0, np.intp))
        own = self._parts.points[self._name]
        more = self._parts.count_missing(self._name)
        if more:
            return f"{own.summary}, and those of {more:,} shards, loaded when they are needed"
        return own.summary if own.counts.any() else ""

    def interrupt(self) -> None:
        self._parts.interrupt()

    def leave_out(self, samples: NDArray[np.uint64]) -> None:
        self._parts.points[self._name].leave_out(samples)


class _Part(NamedTuple):
    """Entry points that come with one request."""

    file: int
    rows: slice  # their samples
    start: int  # of their bytes
    stop: int
    name: str | None  # the field; None for all of a shard, with their tables

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


class _Parts:
    """Looks for the entry points of all fields, and loads them. Safe to use from threads."""

    def __init__(self, index: Index, cache: NodeCache | None, most_requests: int) -> None:
        self.points: dict[str, EntryPoints] = {}  # of the fields; empty until they are looked for
        self._index, self._cache, self._most = index, cache, most_requests
        self._kept: dict[int, object] = {}  # memory of parts by their number, the one used last at the end
        self._begin_process()

    def _begin_process(self) -> None:
        """Forget what threads do of the process that this one was forked from."""
        self._process = os.getpid()
        self._beginning, self._lock = threading.Lock(), threading.Lock()
        self._first: Future[None] | None = None
        self._threads: LoadThreads | None = None

    def count_missing(self, name: str) -> int:
        """Count the shards whose entry points of a field were not loaded; call `load` before."""
        parts = [self._parts[number] for number in np.flatnonzero(self._is_missing).tolist()]
        places = [self._index.files[part.file].entry_place for part in parts]
        return sum(place is not None and name in place.fields for place in places)

    def begin(self, name: str, samples: NDArray[Any]) -> Future[None]:
        """Look for all and load those of some samples, (N,), in the background, if it was not done; return at once."""
        if self._process != os.getpid():
            self._begin_process()
        with self._beginning:
            found = self._first
            if found is None or (found.done() and (found.cancelled() or found.exception() is not None)):
                self._first = found = Future()
                arguments = found, name, samples
                threading.Thread(target=self._run, args=arguments, name="gpubeton-load-first", daemon=True).start()
            return found

    def _run(self, first: Future[None], name: str, samples: NDArray[Any]) -> None:
        """Body of the thread."""
        error: BaseException | None = None
        try:
            with self._lock:
                if not self.points:
                    self._open()
            self._load(name, samples)
        except BaseException as found:  # noqa: BLE001  it is raised where they are waited for
            error = found
        with suppress(InvalidStateError):  # nothing waits for it any more
            first.set_result(None) if error is None else first.set_exception(error)

    def _open(self) -> None:
        """Look for those whose places are not known."""
        index, names, count = self._index, rgb_fields(self._index), self._index.num_samples
        opened, self._tables, faults = open_entry_points(index)
        self._files = OpenSources(_sources(index, self._tables), cache=self._cache)
        numbers = range(len(index.files))
        self._parts = [part for number in numbers for part in _list_parts(index, number, names, self._tables[number])]
        self._is_missing = np.array([part.stop > part.start for part in self._parts], bool)
        self._of_fields = {
            name: np.array([i for i, part in enumerate(self._parts) if part.name in (name, None)], np.intp)
            for name in names
        }
        self._starts = np.array([part.rows.start for part in self._parts], np.int64)
        # Arrays of zeros take no memory as long as nothing is written to them.
        self.points = {
            name: opened.get(name)
            or EntryPoints(np.zeros(count, np.uint64), np.zeros(count, np.int32), np.zeros(count, np.uint32), None)
            for name in names
        }
        for fault in faults:
            _warn(fault)

    def load(self, name: str, samples: NDArray[Any]) -> _Found:
        """Load the entry points of some samples, (N,), that are not there; give the result of `EntryPoints.of`."""
        try:
            self.begin(name, samples).result()
        except CancelledError:
            path = shown(self._index.files[0].path)
            raise LoaderClosedError(f"{path}: the loader was closed while entry points were loaded") from None
        return self._load(name, samples)

    def _load(self, name: str, samples: NDArray[Any]) -> _Found:
        own = self._of_fields[name]
        numbers = own[np.unique(np.searchsorted(self._starts[own], samples, "right")) - 1].tolist()
        with self._lock:
            if wanted := [number for number in numbers if self._is_missing[number]]:
                self._ask_and_take(wanted)
            keep = [(number, self._kept.pop(number)) for number in numbers if number in self._kept]
            self._kept.update(keep)
            addresses, counts, seals, _ = self.points[name].of(samples)
            if wanted:
                self._forget()
        return addresses, counts, seals, keep

    def _ask_and_take(self, numbers: Sequence[int]) -> None:
        """Load parts by their numbers."""
        self._threads = threads = LoadThreads(self._files, FIRST_REQUESTS, self._most)
        loads = [self._ask(threads, self._parts[number]) for number in numbers]
        threads.finish(loads)
        try:
            for number, load in zip(numbers, loads, strict=True):
                if self._is_missing[number]:  # not left out with another part of its file
                    self._kept[number] = self._take(self._parts[number], load)
                    self._is_missing[number] = False
        finally:
            threads.interrupt(())  # after an error

    def _forget(self) -> None:
        """Forget the parts that were not used for the longest time, if there are too many; batches keep their own."""
        excess = sum(self._parts[number].nbytes for number in self._kept) - _MOST_BYTES
        for number in [*self._kept]:
            if excess <= 0:
                break
            part = self._parts[number]
            excess -= part.nbytes
            del self._kept[number]
            self._is_missing[number] = True
            for name, points in self.points.items():
                if part.name in (name, None):
                    points.addresses[part.rows] = 0
                if part.name is None:
                    points.counts[part.rows] = 0

    def interrupt(self) -> None:
        """End the waiting of another thread, with an error."""
        if (first := self._first) is not None:
            first.cancel()
        if (threads := self._threads) is not None:
            threads.interrupt(())

    def _ask(self, threads: LoadThreads, part: _Part) -> Load:
        first = int(first_offset(part.file))
        return threads.ask(first + part.start, first + part.stop)

    def _content(self, load: Load) -> NDArray[np.uint8]:
        """Give loaded bytes, to keep: the cache's are shared by all processes, other memory is wanted for pages."""
        content = np.frombuffer(load.wait(), np.uint8)
        return content.copy() if self._cache is None else content

    def _take(self, part: _Part, load: Load) -> object:
        """Take a part that was loaded; give what owns its memory."""
        return self._take_shard(part, load) if part.name is None else self._take_entries(part, part.name, load)

    def _take_shard(self, part: _Part, load: Load) -> object:
        """Check the entry points of a shard; look for them if they are not where the manifest has them."""
        place = self._index.files[part.file].entry_place
        try:
            content = self._content(load)
            is_beside = place is not None and place.beside is not None
            found = BlockReader(self._index, part.file, is_beside=is_beside).parse(content)
        except (FormatError, RemoteChangedError, RemoteMissingError):
            found, faults = open_blocks(self._index, part.file)
            for fault in faults:
                _warn(fault)
        for name, points in self.points.items():
            if (block := found.get(name)) is not None:
                points.addresses[part.rows], points.counts[part.rows] = block.addresses, block.counts
                points.seals[part.rows] = block.seals
        return found

    def _take_entries(self, part: _Part, name: str, load: Load) -> object:
        """Take the entries of some images, whose seals show that they are theirs."""
        file, points = self._index.files[part.file], self.points[name]
        try:
            content = self._content(load)
        except (RemoteChangedError, RemoteMissingError) as error:
            if self._files.paths[part.file] == file.path:
                raise
            _warn(f"{error} Or make them again: gpubeton index --overwrite {shown(file.path)}")
            points.leave_out(np.flatnonzero(points.addresses[file.rows] == 0).astype(np.uint64) + file.first_sample)
            self._is_missing[[other.file == part.file for other in self._parts]] = False
            return None
        first = self._tables[part.file][name].first
        first = first[part.rows.start - file.first_sample : part.rows.stop - file.first_sample + 1]
        begin = np.uint64(content.ctypes.data)
        addresses = begin + (first[:-1] - first[0]) * np.uint64(ENTRY_DTYPE.itemsize)
        addresses[first[1:] == first[:-1]] = 0
        points.addresses[part.rows] = addresses
        return content


def _list_parts(index: Index, number: int, names: Iterable[str], tables: Mapping[str, EntryTables]) -> Iterator[_Part]:
    """List the parts of a file, field by field; an empty one where nothing is to be loaded."""
    file = index.files[number]
    if (place := file.entry_place) is not None:
        yield _Part(number, file.rows, place.start, place.stop if place.fields else place.start, None)
        return
    for name in names:
        if (own := tables.get(name)) is None:
            yield _Part(number, file.rows, 0, 0, name)
            continue
        places = own.first.astype(np.int64) * ENTRY_DTYPE.itemsize
        rows = [*np.flatnonzero(np.diff(places[:-1] // _PART_BYTES, prepend=-1)).tolist(), file.num_samples]
        for low, high in itertools.pairwise(rows):
            samples = slice(file.first_sample + low, file.first_sample + high)
            yield _Part(number, samples, own.begin + int(places[low]), own.begin + int(places[high]), name)


def _sources(index: Index, tables: Sequence[Mapping[str, EntryTables]]) -> Iterator[tuple[str, SourceIdentity]]:
    """List the files that hold the entry points of each file: that one, or the one beside it."""
    for file, opened in zip(index.files, tables, strict=True):
        beside = None if file.entry_place is None else file.entry_place.beside
        if opened:
            yield next(iter(opened.values())).place
        elif beside is None:
            yield file.path, file.identity
        else:
            path, (size, version) = index_path(file.path), beside
            identity = source_type(path).known_identity(path, size, version or "", file.identity.remote)
            assert identity is not None, "files that are mapped have no known place"
            yield path, identity


def _warn(fault: str) -> None:
    warnings.warn(f"{fault}. Until then, images are decoded without them.", stacklevel=3)
