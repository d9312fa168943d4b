"""Open files by their names: `open_bytes` one, `OpenSources` those of a dataset.

A kind of source that is not a path of this machine has an entry in `SOURCES`.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from concurrent.futures import wait
from contextlib import closing
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton._bytes.file_list import SCHEME, ListedFiles, ListedObjects
from gpubeton._bytes.load_pool import LoadPool
from gpubeton._bytes.local_file import LocalFile
from gpubeton._bytes.object_store import ObjectFile, head_object, list_objects
from gpubeton._bytes.store_client import SCHEMES
from gpubeton.errors import FormatError, OptionError, RemoteMissingError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
    from gpubeton._bytes.node_cache import CachedFile, NodeCache
    from gpubeton._bytes.store_client import RemoteOptions

#: Pages of the cache that are on their way at once: enough for most networks.
_NUM_THREADS = 8

CACHE_VARIABLE = "GPUBETON_CACHE_DIR"
"""Environment variable with the default directory of caches."""

SOURCES: dict[str, type[ByteSource]] = {**dict.fromkeys(SCHEMES, ObjectFile), SCHEME: ListedFiles}
"""Kinds of source by the scheme of a name, ``scheme://...``. A name without a scheme of these is a path."""


def source_type(path: str | os.PathLike[str]) -> type[ByteSource]:
    """Choose the kind of source by the name of a file."""
    scheme, separator, rest = os.fspath(path).partition("://")
    if scheme == SCHEME and "://" in rest:
        return ListedObjects
    return SOURCES.get(scheme, LocalFile) if separator else LocalFile


def open_bytes(
    path: str | os.PathLike[str],
    identity: SourceIdentity | None = None,
    *,
    is_random: bool = False,
    remote: RemoteOptions | None = None,
) -> ByteSource:
    """Open a file, `StorageError` if it has another identity; with `is_random` the system does not read ahead."""
    return source_type(path).open_checked(os.fspath(path), identity, is_random=is_random, remote=remote)


def find_identity(path: str | os.PathLike[str], remote: RemoteOptions | None = None) -> SourceIdentity:
    """Find the identity of a file without opening it."""
    kind, name = source_type(path), os.fspath(path)
    return head_object(name, remote) if issubclass(kind, ObjectFile) else kind.find_identity(name)


def is_folder(path: str) -> bool:
    """Whether a name means all ``.beton`` files of a folder: that of a folder, or a URL that ends in a slash."""
    return path.endswith("/") if "://" in path else os.path.isdir(path)  # noqa: PTH112  each opening asks, twice


def list_shards(folder: str, remote: RemoteOptions | None = None) -> list[str]:
    """List the ``.beton`` files of a folder, sorted by name."""
    if "://" not in folder:
        return sorted(str(path) for path in Path(folder).iterdir() if path.name.endswith(".beton"))
    if not issubclass(source_type(folder), ObjectFile):
        return [folder]
    listed = [url for url, _, _ in list_objects(folder, remote)]
    shards = [url for url in listed if url.endswith(".beton")]
    if not shards:
        content = f"{len(listed)} other objects, {listed[0]} first" if listed else "no objects"
        raise RemoteMissingError(
            f"{folder}: {content}; expected files whose names end in .beton. Check the bucket and the folder."
        )
    return shards


class OpenSources:
    """The files of a dataset, opened when they are needed; those needed last stay open. Safe to use from threads."""

    def __init__(
        self,
        files: Iterable[tuple[str | os.PathLike[str], SourceIdentity]],
        *,
        max_open: int = 64,  # a process may have 1024 descriptors as a rule, and others need some too
        is_random: bool = False,
        cache: NodeCache | None = None,  # for those that are not on this machine
    ) -> None:
        named = [(os.fspath(path), identity) for path, identity in files]
        self.paths = tuple(path for path, _ in named)
        self.identities = tuple(identity for _, identity in named)
        self.sizes = tuple(identity.size for identity in self.identities)
        self._max_open = max_open
        self._is_random = is_random
        self._cache = cache
        self._open: OrderedDict[int, ByteSource] = OrderedDict()
        self._opening: list[ByteSource] = []  # by other threads just now
        self._is_closed = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def is_mappable(self) -> bool:
        """Whether all files can be mapped into memory: they are on this machine, or completely in the cache."""
        return all(source_type(path).is_mappable or self._is_cached(number) for number, path in enumerate(self.paths))

    @property
    def is_local(self) -> bool:
        """Whether regions are read from this machine, one by one."""
        return self.is_mappable or all(source_type(path).is_local for path in self.paths)

    def _is_cached(self, number: int) -> bool:
        """Whether a file is completely in the cache, and can be opened there."""
        if self._cache is None or not self._cache.is_complete(self.identities[number]):
            return False
        from gpubeton._bytes.node_cache import CachedFile  # not for local files: it takes time

        return isinstance(self.open(number), CachedFile)

    def open(self, number: int) -> ByteSource:
        """Give a file, open as long as the caller holds it; `StorageError` if it has changed."""
        with self._lock:
            source = self._open.get(number)
            if source is not None:
                self._open.move_to_end(number)
                return source
        # Without the lock: on a network this takes time. Two threads may open the same file; one of them stays.
        # One that stays open goes on being read when another file takes over its name.
        source = open_bytes(self.paths[number], self.identities[number], is_random=self._is_random)
        with self._lock:
            self._opening.append(source)
            if self._is_closed:
                source.interrupt()
        opened = source
        try:
            if self._cache is not None:
                opened = self._cache.open(opened, self.identities[number])
        finally:
            with self._lock:
                self._opening.remove(source)
        with self._lock:
            source = self._open.setdefault(number, opened)
            if len(self._open) > self._max_open:
                self._open.popitem(last=False)
        return source

    def hold(self) -> None:
        """Open as many files as stay open, the first ones, and keep the pages of all in the cache."""
        if self._cache is not None:
            self._cache.hold(self.identities)
        for number in range(min(len(self), self._max_open)):
            self.open(number)

    def check(self, *, is_mapped: bool = False) -> None:
        """Compare all files with what they were; a mapped file may have lost its name meanwhile."""
        for number, (path, identity) in enumerate(zip(self.paths, self.identities, strict=True)):
            if source_type(path).is_versioned:
                continue
            with self._lock:
                source = self._open.get(number)
            try:
                current = source_type(path).find_identity(path) if source is None else source.identity()
            except (FileNotFoundError, IsADirectoryError, FormatError) as error:
                if is_mapped:
                    continue
                if isinstance(error, FileNotFoundError):
                    raise
                raise StorageError(
                    f"{path}: no file has this name now ({error}), but one had when it was opened. The file was "
                    "replaced: open it again, in training with a new Loader."
                ) from error
            # The inode of a mapped file is in use, so that no other file can have its number.
            if not is_mapped or identity.is_same_source(current):
                identity.check(path, current)

    def close(self) -> None:
        """Close all files that nothing else holds; the others are closed when they are let go. May be called twice."""
        with self._lock:
            self._is_closed = True
            sources = list(self._open.values())
            self._open.clear()
            sources += self._opening
        for source in sources:
            source.interrupt()


class CacheFiller:
    """Fetches pages until all are there, the cache is full or a fetch fails."""

    def __init__(
        self,
        files: Iterable[Callable[[], object]],
        pages: Iterable[Sequence[int]] | None = None,  # of each file; None: all
        *,
        waits: bool = False,  # for pages that others fetch; otherwise they are left to them
        on_page: Callable[[int], object] = int,  # called with the bytes of each page that is there
        num_threads: int = _NUM_THREADS,
    ) -> None:
        # `files` open the files, each when it is its turn.
        self.error: BaseException | None = None
        self._waits, self._on_page = waits, on_page
        self._pages = self._list_pages(files, pages)
        self._lock = threading.Lock()
        self._is_ended = threading.Event()
        self._is_interrupted = False
        pool = LoadPool("cache_dir", num_threads)
        self._works = [pool.enqueue(self._work) for _ in range(num_threads)]
        pool.finish(self._works)

    def join(self) -> None:
        """Wait until all threads have ended or `interrupt` is called, or end them on Ctrl-C; raise the first error."""
        try:
            while not self._is_interrupted and wait(self._works, 0.1).not_done:
                pass
        except BaseException:  # such as Ctrl-C
            self.close()
            raise
        if self.error is not None:
            raise self.error

    def interrupt(self) -> None:
        """End the threads, and end `join` before; called from any thread."""
        self._is_interrupted = True
        self.close()

    def close(self) -> None:
        """End the threads once their pages are there; may be called twice, also from one of them."""
        self._is_ended.set()

    def _list_pages(
        self, files: Iterable[Callable[[], object]], pages: Iterable[Sequence[int]] | None
    ) -> Iterator[tuple[CachedFile, int]]:
        from gpubeton._bytes.node_cache import CachedFile  # not for local files: it takes time

        for open_file, chosen in zip(files, repeat(None) if pages is None else pages, strict=False):
            file = open_file() if chosen is None or len(chosen) else None
            if isinstance(file, CachedFile):
                yield from ((file, page) for page in (range(file.num_pages) if chosen is None else chosen))

    def _work(self) -> None:
        """Fetch one page after the other; several threads do."""
        try:
            while not self._is_ended.is_set():
                with self._lock:
                    file, page = next(self._pages, (None, 0))
                if file is None:
                    return
                if file.ensure(page, waits=self._waits):
                    with self._lock:
                        self._on_page(file.page_bytes(page))
                elif self._waits or file.budget.is_full:
                    self.close()
        except BaseException as error:  # noqa: BLE001  it would be lost in this thread
            self.error = self.error or error
            self.close()


def parse_size(name: str, size: Any) -> int:
    """Read a number of bytes: a whole number, or text such as "800 GB" or "1.5 TiB"; `name` is named in errors."""
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?\s*", str(size), re.IGNORECASE)
    if match is None or not isinstance(size, str):
        raise OptionError(f'{name} is {size!r}; expected a number of bytes, or text such as "800 GB" or "1.5 TiB"')
    return int(float(match[1]) * (1024 if match[3] else 1000) ** " kmgt".index((match[2] or " ").lower()))


def fill_cache(
    sources: Sequence[tuple[str, SourceIdentity]],
    directory: str | os.PathLike[str],
    limit: str | None,  # such as "800 GB"; None: of the disk's free space
    on_progress: Callable[[int, int], None],  # `Progress` of bytes
    parts: Sequence[Iterable[range]] | None = None,  # of each file the bytes that are fetched; None: all of them
) -> tuple[Path, int]:
    """Fetch pages of files into the cache of this machine; return its folder, and the bytes of the pages."""
    from gpubeton._bytes.node_cache import NodeCache  # not for local files: it takes time

    node = NodeCache(directory, None if limit is None else parse_size("cache_limit", limit))
    done = 0
    with closing(OpenSources(sources, cache=node)) as files:
        pages, total = None, sum(files.sizes)
        if parts is not None:
            pages = [node.list_pages(size, ranges) for size, ranges in zip(files.sizes, parts, strict=True)]
            total = sum(
                min(node.page_size, size - page * node.page_size)
                for size, chosen in zip(files.sizes, pages, strict=True)
                for page in chosen
            )

        def count(page_bytes: int) -> None:
            nonlocal done
            done += page_bytes
            on_progress(done, total)

        files.hold()
        CacheFiller(
            [partial(files.open, number) for number in range(len(files))], pages, waits=True, on_page=count
        ).join()
    if done < total:
        raise StorageError(
            f"{sources[0][0]}: {done:,} of {total:,} bytes are in {node.directory}, which may hold {node.limit:,}. "
            "Give it more, by --cache-limit or a larger disk. Files whose server names no versions of them (a strong "
            "ETag) are not cached."
        )
    return node.directory, total
