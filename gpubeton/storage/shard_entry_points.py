"""Entry points of shards in object stores that a manifest describes: loaded when images of a shard are needed first."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import FormatError, RemoteChangedError, RemoteMissingError
from gpubeton.files.open_files import OpenSources, source_type
from gpubeton.format.data_files import first_offset
from gpubeton.format.entry_points import EntryPoints, index_path, open_blocks, parse_blocks
from gpubeton.storage.load_threads import FIRST_REQUESTS, LoadThreads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from gpubeton.files.byte_source import SourceIdentity
    from gpubeton.files.node_cache import NodeCache
    from gpubeton.format.entry_points import EntryBlock
    from gpubeton.format.index import Index
    from gpubeton.storage.load_threads import Load


def load_when_needed(
    index: Index,
    others: Mapping[str, EntryPoints],  # of the files whose places are not known
    cache: NodeCache | None,
    most_requests: int,
) -> dict[str, EntryPoints]:
    """Give the entry points of each field, of which those with a known place are loaded when they are needed."""
    places = [file.entry_place for file in index.files if file.entry_place is not None]
    found = {**others}
    for name in {name for place in places for name in place.fields} - others.keys():
        count = index.num_samples
        found[name] = EntryPoints(np.zeros(count, np.uint64), np.zeros(count, np.int32), np.zeros(count, np.uint32), [])
    shards = _Shards(index, found, cache, most_requests)
    return {name: _ShardEntryPoints(found[name], shards) for name in sorted(found)}


class _ShardEntryPoints(EntryPoints):
    """The entry points of one field."""

    def __init__(self, points: EntryPoints, shards: _Shards) -> None:
        super().__init__(points.addresses, points.counts, points.seals, points.keep)
        self._shards = shards

    def of(self, samples: NDArray[Any]) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint32]]:
        self._shards.load(samples)
        return super().of(samples)

    @property
    def summary(self) -> str:
        more = self._shards.num_missing
        return super().summary + f", and those of {more:,} shards, loaded when they are needed" * (more > 0)

    def interrupt(self) -> None:
        self._shards.interrupt()


class _Shards:
    """Loads the entry points of all fields of a shard. Safe to use from threads."""

    def __init__(
        self, index: Index, points: Mapping[str, EntryPoints], cache: NodeCache | None, most_requests: int
    ) -> None:
        self._index, self._points, self._most = index, points, most_requests
        self._keep: list[EntryBlock] = []  # their memory
        self._files = OpenSources(_sources(index), cache=cache)
        self._first = np.array([file.first_sample for file in index.files], np.uint64)
        places = [file.entry_place for file in index.files]
        self._is_missing = np.array([place is not None and bool(place.fields) for place in places])
        self._lock = threading.Lock()
        self._threads: LoadThreads | None = None

    @property
    def num_missing(self) -> int:
        """Shards that were not loaded."""
        return int(self._is_missing.sum())

    def load(self, samples: NDArray[Any]) -> None:
        """Load the missing entry points of some samples, (N,)."""
        if not self._is_missing.any():
            return
        numbers = np.unique(np.searchsorted(self._first, samples, "right") - 1)
        with self._lock:
            wanted = numbers[self._is_missing[numbers]].tolist()
            if not wanted:
                return
            self._threads = threads = LoadThreads(self._files, FIRST_REQUESTS, self._most)
            loads = [self._ask(threads, number) for number in wanted]
            threads.finish(loads)
            try:
                for number, load in zip(wanted, loads, strict=True):
                    self._take(number, self._read(number, load))
                    self._is_missing[number] = False
            finally:
                threads.interrupt(())  # after an error

    def interrupt(self) -> None:
        """End the waiting of another thread, with an error."""
        if (threads := self._threads) is not None:
            threads.interrupt(())

    def _ask(self, threads: LoadThreads, number: int) -> Load:
        place, first = self._index.files[number].entry_place, int(first_offset(number))
        assert place is not None, "it is missing"
        return threads.ask(first + place.start, first + place.stop)

    def _read(self, number: int, load: Load) -> dict[str, EntryBlock]:
        """Check the entry points of a shard; look for them if they are not where the manifest has them."""
        place = self._index.files[number].entry_place
        assert place is not None, "it is missing"
        try:
            content = np.frombuffer(load.wait(), np.uint8)
            return parse_blocks(content, self._index, number, is_beside=place.beside is not None)
        except (FormatError, RemoteChangedError, RemoteMissingError):
            found, faults = open_blocks(self._index, number)
            for fault in faults:
                warnings.warn(f"{fault}. Until then, images are decoded without them.", stacklevel=2)
            return found

    def _take(self, number: int, blocks: Mapping[str, EntryBlock]) -> None:
        rows = self._index.files[number].rows
        for name, points in self._points.items():
            if (block := blocks.get(name)) is not None:
                self._keep.append(block)
                points.addresses[rows], points.counts[rows] = block.addresses, block.counts
                points.seals[rows] = block.seals


def _sources(index: Index) -> Iterator[tuple[str, SourceIdentity]]:
    """List the files that hold the entry points of each file: that one, or the one beside it."""
    for file in index.files:
        beside = None if file.entry_place is None else file.entry_place.beside
        if beside is None:
            yield file.path, file.identity
        else:
            path, (size, version) = index_path(file.path), beside
            identity = source_type(path).known_identity(path, size, version or "", file.identity.remote)
            assert identity is not None, "files that are mapped have no known place"
            yield path, identity
