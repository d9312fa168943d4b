"""NodeCache: a directory of this machine that keeps pages of remote files, for all its processes and later runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import threading
import warnings
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton._bytes.cached_file import (
    CachedFile,
    allocate,
    boot_tag,
    count_cached,
    drop_pages,
    files_removed,
    is_made,
    make_object,
    read_entries,
)
from gpubeton._bytes.descriptors import NO_LOCKS, lock_byte, locked_byte, open_descriptor, read_at, unlock, write_some
from gpubeton._bytes.load_pool import LoadPool, Transfer
from gpubeton.errors import OptionError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpubeton._bytes.byte_source import ByteSource, SourceIdentity

PAGE_SIZE = 8 << 20
"""Bytes of a page of the cache: a request of this size is worth its way."""

_KEPT_FREE = 50 * 10**9  # bytes that the default limit leaves free
_DEFAULT_SHARE = 0.75  # of the free bytes, taken by the default limit
_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}
_USAGE = struct.Struct("<QQ")
_KEY = re.compile("[0-9a-f]{32}")


def _make_directory(directory: Path, part: Path) -> None:
    """Make a `cache_dir` and the folder of its objects, for this user alone; `StorageError` if that cannot be done."""
    try:
        for folder in (directory, part):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        above, inner = directory.stat(), part.stat()
    except OSError as error:
        raise _unusable(directory, error) from error
    # Who can write to it decides what is read from it. A volume of a container often belongs to root.
    user = os.geteuid()
    if others := {inner.st_uid, above.st_uid or user} - {user}:
        raise StorageError(
            f"{directory}: this cache belongs to user {others.pop()}, and this process runs as user {user}. "
            "Each user needs a cache_dir of their own."
        )
    if inner.st_mode & 0o022:
        raise StorageError(
            f"{part}: other users can write here (mode {inner.st_mode & 0o777:o}), and so decide what is read. Delete "
            "the cache, or if you trust what is in it: chmod go-w."
        )


def _unusable(directory: Path, error: OSError) -> StorageError:
    """Make the error of a directory that cannot be a `cache_dir`."""
    return StorageError(
        error.errno,
        f"{directory}: cannot be used as cache_dir: {error}. It has to be a directory of this machine, writable, on a "
        "file system that can lock parts of files, such as ext4 or XFS.",
    )


def parse_size(name: str, size: Any) -> int:
    """Read a number of bytes: a whole number, or text such as "800 GB" or "1.5 TiB"; `name` is named in errors."""
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    match = (
        re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?|)b?\s*", size, re.IGNORECASE) if isinstance(size, str) else None
    )
    if match is None:
        raise OptionError(f'{name} is {size!r}; expected a number of bytes, or text such as "800 GB" or "1.5 TiB"')
    return int(float(match[1]) * _UNITS[match[2].lower()])


def open_cache(directory: str | os.PathLike[str], limit: int | None) -> NodeCache | None:
    """Open the cache in a directory; None, with a warning, if its file system has no locks."""
    try:
        return NodeCache(directory, limit)
    except StorageError as error:
        if error.errno not in NO_LOCKS:
            raise
        warnings.warn(f"{error} Files are read without the cache.", stacklevel=2)
        return None


class NodeCache:
    """Pages of remote files in a directory of this machine. Processes and threads may use it at once."""

    # Pages stay: once the limit is reached, others are read from their source each time. An epoch visits each page
    # once, in a new order. Replacing those used longest ago would replace most pages right before their next use:
    # half of the pages kept are half of the reads saved, half of them replaced all the time save a seventh.
    #
    #   objects/KEY/    a version of a file, see cached_file.py; KEY is a hash of what identifies it
    #   space           bytes in use, and the tag of the boot if no process was killed while it changed them
    #   uses            byte KEY is locked by each process that uses the object: its pages are not dropped

    def __init__(
        self, directory: str | os.PathLike[str], limit: int | None = None, *, page_size: int | None = None
    ) -> None:
        self.directory = Path(os.path.abspath(directory))  # noqa: PTH100  links stay: errors name the path as given
        self._objects, self._space_path = self.directory / "objects", self.directory / "space"
        self._uses_path = self.directory / "uses"
        self.page_size = page_size or PAGE_SIZE
        self._uses = -1
        self._held: set[str] = set()
        self._counts = Transfer()
        self._lock = threading.Lock()
        self.is_full = self._has_warned = False
        try:
            _make_directory(self.directory, self._objects)
            self._uses = open_descriptor(self._uses_path, os.O_RDWR | os.O_CREAT, 0o600)
            with self._space() as usage:
                self.limit = self._default_limit(usage.used) if limit is None else limit
        except StorageError:
            raise
        except OSError as error:
            raise _unusable(self.directory, error) from error
        if limit is None and self.limit < self.page_size:
            warnings.warn(
                f"{self.directory}: nothing will be kept in this cache_dir: {_KEPT_FREE // 10**9} GB of its disk are "
                "left free by default, and it has no more. Set cache_limit, or use a larger disk.",
                stacklevel=2,
            )

    def __del__(self) -> None:
        if self._uses >= 0:
            os.close(self._uses)

    @property
    def used(self) -> int:
        """Bytes that all objects take on the disk."""
        with self._space() as usage:
            return usage.used

    def begin_counting(self) -> Transfer:
        """Give an object that counts from now on; earlier ones count no more."""
        with self._lock:
            self._counts = Transfer()
            return self._counts

    def hold(self, identities: Iterable[SourceIdentity]) -> None:
        """Keep others from dropping pages of these files as long as this cache, or a view of a file, is in use."""
        for identity in identities:
            key = self._key(identity)
            if key is not None:
                self._hold(key)

    def open(self, source: ByteSource, identity: SourceIdentity) -> ByteSource:
        """Give a source that keeps the pages of another; or that one, if it has no name here or the disk fails."""
        key = self._key(identity)
        if key is None or identity.size == 0:
            return source
        self._hold(key)
        folder = self._objects / key
        try:
            if not os.path.samestat(os.fstat(self._uses), self._uses_path.stat()):
                raise files_removed()  # the mark of `_hold` is in a file that others do not see
            if not is_made(folder, identity.size, self.page_size):
                with self._space():  # all others wait
                    make_object(folder, identity.size, self.page_size)
                    info = {"name": source.name.partition("?")[0], "size": identity.size, "page_size": self.page_size}
                    (folder / "info.json").write_text(json.dumps(info))
            return CachedFile(source, folder, self.page_size, self)
        except OSError as error:
            self.warn(error)
            return source

    def count_pages(self, identity: SourceIdentity) -> tuple[int, int]:
        """Count the pages of a file that are there, and all its pages."""
        key = self._key(identity)
        cached = 0 if key is None else count_cached(read_entries(self._objects / key))
        return cached, -(-identity.size // self.page_size)

    def list_pages(self, size: int, parts: Iterable[range]) -> list[int]:
        """List the pages of a file of some bytes that parts of it are in."""
        ends = ((part.start // self.page_size, -(-min(part.stop, size) // self.page_size)) for part in parts)
        return sorted({page for start, stop in ends for page in range(start, stop)})

    def is_complete(self, identity: SourceIdentity) -> bool:
        """Whether all pages of a file are there, so that it can be mapped like a file of this machine."""
        cached, needed = self.count_pages(identity)
        return cached == needed > 0

    def reserve(self, descriptor: int, start: int, size: int) -> bool:
        """Allocate the blocks of a page; False if that would exceed the limit."""
        if self.is_full:
            return False
        with self._space() as usage:
            if usage.used + size > self.limit:
                self._drop_unused(usage.used + size - self.limit)
                usage.used = self._count_used()
                self.is_full = usage.used + size > self.limit
                if self.is_full:
                    return False
            usage.used += allocate(descriptor, start, size)
        return True

    def count(self, *, cached: int = 0, fetched: int = 0) -> None:
        """Count the bytes of a region that were there, or of a request."""
        with self._lock:
            self._counts.requests += fetched > 0
            self._counts.nbytes += fetched
            self._counts.cached_nbytes += cached

    def warn(self, error: OSError) -> None:
        """Warn, once, that pages cannot be kept; they are read from their source."""
        with self._lock:
            has_warned, self._has_warned = self._has_warned, True
        if not has_warned:
            warnings.warn(
                f"{self.directory}: the cache cannot keep further pages: {error}. They are read from their source each "
                "time. Check the free space and the rights of the directory, or set a smaller cache_limit.",
                stacklevel=2,
            )

    def _key(self, identity: SourceIdentity) -> str | None:
        """Hash what identifies a version of a file; None if nothing does."""
        if identity.cache_key is None:
            return None
        text = f"{identity.cache_key}\n{identity.size}\n{self.page_size}"
        return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

    def _hold(self, key: str) -> None:
        """Mark an object as in use."""
        with self._lock:
            if key not in self._held:
                lock_byte(self._uses, _place(key), is_shared=True)
                self._held.add(key)
                with suppress(OSError):  # it is not there yet
                    os.utime(self._objects / key / "info.json")

    def _drop_unused(self, need: int) -> None:
        """Free bytes of objects that no process uses, those opened longest ago first."""
        need = max(need, self.limit // 64)  # rarely, and not page by page
        objects = [(_opened(folder), folder) for folder in self._objects.iterdir() if _KEY.fullmatch(folder.name)]
        # Its locks end when it is closed. It is not the file of `hold`, so that this process counts as another one.
        descriptor = open_descriptor(self._uses_path, os.O_RDWR)
        try:
            for _, folder in sorted(objects):
                if need > 0 and lock_byte(descriptor, _place(folder.name), waits=False):
                    need -= drop_pages(folder, _page_size(folder), need)
        finally:
            unlock(descriptor)
            os.close(descriptor)

    def _count_used(self) -> int:
        """Add up the blocks of the data of all objects; the tables of pages are a millionth of them."""
        return sum(path.stat().st_blocks * 512 for path in self._objects.glob("*/data"))

    @contextmanager
    def _space(self) -> Iterator[_Usage]:
        """Give the bytes in use, alone; what the caller makes of them is written down."""
        with locked_byte(self._space_path, 0) as descriptor:
            assert descriptor is not None
            stored = read_at(descriptor, _USAGE.size, 0)
            tag, used = _USAGE.unpack(stored) if len(stored) == _USAGE.size else (0, 0)
            usage = _Usage(used if tag == boot_tag() else self._count_used())
            write_some(descriptor, _USAGE.pack(0, 0), 0)  # a process that is killed now makes the next one count
            yield usage
            write_some(descriptor, _USAGE.pack(boot_tag(), usage.used), 0)

    def _default_limit(self, used: int) -> int:
        disk = os.statvfs(self.directory)
        free = disk.f_bavail * disk.f_frsize + used
        return max(0, min(int(_DEFAULT_SHARE * free), free - _KEPT_FREE))


@dataclass
class _Usage:
    used: int  # bytes


def _opened(folder: Path) -> int:
    """Find when an object was opened last: when its info was written or touched."""
    try:
        return (folder / "info.json").stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _page_size(folder: Path) -> int:
    """Read the page size of an object; 0 if its files were not completed."""
    try:
        return int(json.loads((folder / "info.json").read_text())["page_size"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _place(key: str) -> int:
    """Choose the byte of an object in `uses`: 62 bits of its key."""
    return int(key[:16], 16) >> 2


NUM_THREADS = 8
"""Pages on their way at once: enough for most networks."""


class CacheFiller:
    """Fetches pages until all are there, the cache is full or a fetch fails."""

    def __init__(
        self,
        files: Iterable[Callable[[], object]],
        pages: Iterable[Sequence[int]] | None = None,  # of each file; None: all
        *,
        waits: bool = False,  # for pages that others fetch; otherwise they are left to them
        on_page: Callable[[int], object] = int,  # called with the bytes of each page that is there
        num_threads: int = NUM_THREADS,
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
            while not self._is_interrupted and wait_for(self._works, 0.1).not_done:
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
