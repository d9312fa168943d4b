"""NodeCache: a directory of this machine that keeps pages of remote files, for all its processes and later runs."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import struct
import threading
import warnings
import weakref
import zlib
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
from gpubeton._bytes.load_pool import Transfer
from gpubeton._bytes.local_file import (
    NO_LOCKS,
    FileIdentity,
    LocalFile,
    fallocate,
    lock_byte,
    locked_byte,
    open_descriptor,
    read_at,
    unlock,
    write_all,
)
from gpubeton.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

PAGE_SIZE = 8 << 20
"""Bytes of a page of the cache: a request of this size is worth its way."""

_KEPT_FREE = 50 * 10**9  # bytes that the default limit leaves free
_DEFAULT_SHARE = 0.75  # of the free bytes, taken by the default limit
_USAGE = struct.Struct("<QQ")
_KEY = re.compile("[0-9a-f]{32}")
_ENTRY = np.dtype("<u8")
_SHORT = 8  # a page is not fetched for a region of less than this part of it
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # FALLOC_FL_*


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
    #   objects/KEY/    a version of a file, see `CachedFile`; KEY is a hash of what identifies it
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
                f"{self.directory}: nothing{' more' * (usage.used > 0)} will be kept in this cache_dir: "
                f"{_KEPT_FREE // 10**9} GB of its disk are left free by default, and it has no more. Set cache_limit.",
                stacklevel=2,
            )

    def __del__(self) -> None:
        if self._uses >= 0:
            os.close(self._uses)

    @property
    def used(self) -> int:
        """Bytes that all objects take on the disk."""
        with self._space() as usage:
            return int(usage.used)

    def begin_counting(self) -> Transfer:
        """Give an object that counts from now on; earlier ones count no more."""
        with self._lock:
            self._counts = Transfer()
            return self._counts

    def hold(self, identities: Iterable[SourceIdentity]) -> None:
        """Keep others from dropping pages of these files as long as this cache, or a view of a file, is in use."""
        for key in filter(None, map(self._key, identities)):
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
                raise _files_removed()  # the mark of `_hold` is in a file that others do not see
            if not _is_made(folder, identity.size, self.page_size):
                with self._space():  # all others wait
                    _make_object(folder, identity.size, self.page_size)
                    info = {"name": source.name.partition("?")[0], "size": identity.size, "page_size": self.page_size}
                    (folder / "info.json").write_text(json.dumps(info))
            return CachedFile(source, folder, self.page_size, self)
        except OSError as error:
            self.warn(error)
            return source

    def count_pages(self, identity: SourceIdentity) -> tuple[int, int]:
        """Count the pages of a file that are there, and all its pages."""
        key = self._key(identity)
        cached = 0 if key is None else _count_cached(_read_entries(self._objects / key))
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
            usage.used += _allocate(descriptor, start, size)
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
        objects = [(_info_of(folder), folder) for folder in self._objects.iterdir() if _KEY.fullmatch(folder.name)]
        # Its locks end when it is closed. It is not the file of `hold`, so that this process counts as another one.
        descriptor = open_descriptor(self._uses_path, os.O_RDWR)
        try:
            for (_, page_size), folder in sorted(objects):
                if need > 0 and lock_byte(descriptor, _place(folder.name), waits=False):
                    need -= _drop_pages(folder, page_size, need)
        finally:
            unlock(descriptor)
            os.close(descriptor)

    def _count_used(self) -> int:
        """Add up the blocks of the data of all objects; the tables of pages are a millionth of them."""
        return sum(path.stat().st_blocks * 512 for path in self._objects.glob("*/data"))

    @contextmanager
    def _space(self) -> Iterator[SimpleNamespace]:
        """Give the bytes in use, alone; what the caller makes of them is written down."""
        with locked_byte(self._space_path, 0) as descriptor:
            assert descriptor is not None
            stored = read_at(descriptor, _USAGE.size, 0)
            tag, used = _USAGE.unpack(stored) if len(stored) == _USAGE.size else (0, 0)
            usage = SimpleNamespace(used=used if tag == boot_tag() else self._count_used())
            write_all(descriptor, _USAGE.pack(0, 0), 0)  # a process that is killed now makes the next one count
            yield usage
            write_all(descriptor, _USAGE.pack(boot_tag(), usage.used), 0)

    def _default_limit(self, used: int) -> int:
        disk = os.statvfs(self.directory)
        free = disk.f_bavail * disk.f_frsize + used
        return max(0, min(int(_DEFAULT_SHARE * free), free - _KEPT_FREE))


def _info_of(folder: Path) -> tuple[int, int]:
    """Find when an object was opened last, and its page size; 0 if its files were not completed."""
    info = folder / "info.json"  # written or touched then
    try:
        return info.stat().st_mtime_ns, int(json.loads(info.read_text())["page_size"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, 0


def _place(key: str) -> int:
    """Choose the byte of an object in `uses`: 62 bits of its key."""
    return int(key[:16], 16) >> 2


class CachedFile(ByteSource):
    """The pages of a source that are there, and the source for all others."""

    # An object, which is one version of one file, has a directory with
    #   data     the bytes of the file, as long as the file; pages that are not there are holes
    #   pages    8 bytes for each page: its CRC-32 in the upper half; in the lower half 0 if it is not there, else the
    #            tag of the boot in which it was written or checked last
    # Whoever fetches a page locks its byte of `pages`, writes the page, then its entry. A killed process leaves the
    # page without an entry. After a crash of the machine the disk may have an entry without its page; such an entry has
    # the tag of an earlier boot, and its page is compared with the CRC-32 before it is used.

    def __init__(self, source: ByteSource, folder: Path, page_size: int, budget: NodeCache) -> None:
        super().__init__(source.name, source.size)
        self._source = source
        self._folder, self._page_size, self.budget = folder, page_size, budget
        table = _table_bytes(source.size, page_size)
        with LocalFile.open(os.fspath(folder / "pages"), table, is_random=False) as pages:
            self._entries: NDArray[np.uint64] = pages.map().view(_ENTRY)  # (pages,), changed by all processes
            self.num_pages = len(self._entries)
            self._local = LocalFile.open(os.fspath(folder / "data"), source.size, is_random=False)
            # Of the files that are mapped: others may take their names.
            self._identities = (pages.identity(), self._local.identity())
        if not self._identities[0].is_same_source(LocalFile.find_identity(os.fspath(folder / "pages"))):
            raise _files_removed()
        self._content = self._local.map()  # (size,)
        # The cache marks the object as in use as long as a view of it lives.
        weakref.finalize(self._content, id, budget).atexit = False  # `id` has no effect

    def identity(self) -> SourceIdentity:
        return self._source.identity()

    def count_pages(self) -> int:
        """Count the pages that are there, and were written or checked since the machine was started."""
        return _count_cached(self._entries)

    @property
    def is_complete(self) -> bool:
        """Whether all pages are there, so that the file can be mapped like a local one."""
        return self.count_pages() == self.num_pages

    def load(self, start: int, size: int) -> memoryview:
        """Give a region of the shared mapping; fetch missing pages into the cache if the region is long."""
        pages = self._pages(start, size)
        if pages and all(map(self._has, pages)):
            self.budget.count(cached=size)
        elif not (pages and size * _SHORT >= self.page_bytes(pages[-1]) and self._ensure_all(pages)):
            if any(map(self._has, pages)):
                return super().load(start, size)
            self.budget.count(fetched=size)
            return self._source.load(start, size)
        return self._content[start : start + size].data

    def read_into(self, start: int, target: memoryview) -> int:
        """Read from the pages that are there, and the other bytes from the source: no page is fetched for them."""
        pages, stop = self._pages(start, len(target)), start + len(target)
        if not pages:
            return self._source.read_into(start, target)
        for page in pages:
            low, high = max(start, page * self._page_size), min(stop, (page + 1) * self._page_size)
            part = target[low - start : high - start]
            if self._has(page):
                self.budget.count(cached=high - low)
                part[:] = self._content[low:high].data
            elif (count := self._source.read_into(low, part)) < high - low:
                return low - start + count
            else:
                self.budget.count(fetched=count)
        return len(target)

    def ensure(self, page: int, *, waits: bool = True) -> bool:
        """Fetch a page if it is not there; False if it is not kept, or another has begun to and `waits` is not set."""
        if self._has(page):
            return True
        try:
            with locked_byte(self._folder / "pages", page, waits=waits) as claim:
                return claim is not None and self._fill(claim, page)
        except StorageError:
            raise
        except OSError as error:
            self.budget.warn(error)
            return False

    def _ensure_all(self, pages: range) -> bool:
        """Fetch the pages that are not there; False if some are not kept."""
        # Also those after the first that is not kept: one of them may be on its way in another thread that has begun
        # before the cache was full. Without waiting for it, it would be requested twice.
        are_there = True
        for page in pages:
            are_there &= self.ensure(page)
        return are_there

    def reload(self, start: int, size: int) -> bool:
        """Fetch the pages of damaged bytes again, into the mapping that all processes share."""
        for page in self._pages(start, size):
            with suppress(PermissionError), locked_byte(self._folder / "pages", page) as claim:
                assert claim is not None, "it waits"
                write_all(claim, memoryview(bytes(_ENTRY.itemsize)), _ENTRY.itemsize * page)
            self.ensure(page)
        return True

    def page_bytes(self, page: int) -> int:
        """Give the bytes of a page; the last one of an object may have fewer than the others."""
        return min(self._page_size, self.size - page * self._page_size)

    def map(self) -> NDArray[np.uint8]:
        if not self.is_complete:
            raise StorageError(
                f"{self.name}: {self.count_pages()} of {self.num_pages} pages are in the cache {self._folder}; it can "
                "be mapped into memory when all are"
            )
        return self._content

    def is_cached(self, *positions: int) -> bool:
        return self._local.is_cached(*positions)

    def announce(self, start: int, size: int) -> None:
        self._local.announce(start, size)

    def interrupt(self) -> None:
        self._source.interrupt()

    def close(self) -> None:
        if "_local" in vars(self):  # it was made completely
            self._local.close()
            self._source.close()

    def _pages(self, start: int, size: int) -> range:
        """List the pages of a region; none if it has no bytes, or the object does not have all of them."""
        if not 0 < size <= self.size - start:
            return range(0)
        return range(start // self._page_size, -(-(start + size) // self._page_size))

    def _has(self, page: int) -> bool:
        return int(self._entries[page]) & 0xFFFFFFFF == boot_tag()

    def _fill(self, claim: int, page: int) -> bool:
        """Make a page that this thread has claimed complete; False if it may not be kept."""
        entry, start, size = int(self._entries[page]), page * self._page_size, self.page_bytes(page)
        with _opened(self._folder / "data") as data:
            identities = [FileIdentity.from_stat(os.fstat(opened)) for opened in (claim, data)]
            if (
                not all(map(FileIdentity.is_same_source, self._identities, identities))
                or identities[1].size != self.size
            ):
                raise _files_removed()
            # Another may have fetched it meanwhile. A page of an earlier boot is compared with its checksum.
            if entry and (self._has(page) or zlib.crc32(self._content[start : start + size].data) == entry >> 32):
                self.budget.count(cached=size)
                self._mark(claim, page, entry >> 32)
                return True
            if not self.budget.reserve(data, start, size):
                return False
            content = self._source.load(start, size)
            self.budget.count(fetched=size)
            write_all(data, content, start)
        self._mark(claim, page, zlib.crc32(content))
        return True

    def _mark(self, claim: int, page: int, checksum: int) -> None:
        write_all(claim, memoryview((checksum << 32 | boot_tag()).to_bytes(8, "little")), _ENTRY.itemsize * page)


def _count_cached(entries: NDArray[np.uint64]) -> int:
    """Count the pages that are there by their entries, (N,), and were written or checked in this boot."""
    return int((entries & np.uint64(0xFFFFFFFF) == boot_tag()).sum())


def _read_entries(folder: Path) -> NDArray[np.uint64]:
    """Read the entries of an object, (N,); none if it is not there."""
    content = b""
    with suppress(OSError):
        content = (folder / "pages").read_bytes()
    # A process that ended while it wrote may have cut the last one.
    return np.frombuffer(content, _ENTRY, len(content) // _ENTRY.itemsize)


def _is_made(folder: Path, size: int, page_size: int) -> bool:
    """Whether an object has all its files."""
    with suppress(FileNotFoundError):
        sizes = [(folder / name).lstat().st_size for name in ("pages", "data")]
        return sizes == [_table_bytes(size, page_size), size]
    return False


def _make_object(folder: Path, size: int, page_size: int) -> None:
    """Make the files of an object, or complete them. The caller excludes all others."""
    folder.mkdir(mode=0o700, exist_ok=True)
    pages = folder / "pages"
    with _opened(folder / "data") as data:
        if os.fstat(data).st_size != size:
            pages.unlink(missing_ok=True)  # first: a page without bytes must have no entry
            os.ftruncate(data, size)
    with _opened(pages) as descriptor:
        length = os.fstat(descriptor).st_size
        # Not a hole: a full disk is noticed here.
        write_all(descriptor, memoryview(bytes(max(0, _table_bytes(size, page_size) - length))), length)


def _drop_pages(folder: Path, page_size: int, need: int) -> int:
    """Free at least `need` bytes of an object that no process uses, or the whole object; return how many were freed."""
    with _opened(folder / "pages") as pages, _opened(folder / "data") as data:
        entries = _read_entries(folder)
        before = left = os.fstat(data).st_blocks * 512
        # From the end: a file whose first pages are there can be opened at once.
        for page in np.flatnonzero(entries)[::-1].tolist() if page_size else ():
            if before - left >= need:
                return before - left
            write_all(pages, memoryview(bytes(_ENTRY.itemsize)), _ENTRY.itemsize * page)  # first, as above
            if not fallocate(data, _KEEP_SIZE | _PUNCH_HOLE, page * page_size, page_size):
                break
            left = os.fstat(data).st_blocks * 512
    for name in ("pages", "data", "info.json"):  # in this order: a process may be killed at any time
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()
    return before


def _allocate(descriptor: int, start: int, size: int) -> int:
    """Allocate the blocks of a part of a file; return how many bytes that took, `OSError` if the disk is full."""
    before = os.fstat(descriptor).st_blocks
    is_allocated = fallocate(descriptor, _KEEP_SIZE, start, size)
    return (os.fstat(descriptor).st_blocks - before) * 512 if is_allocated else size


@cache
def boot_tag() -> int:
    """Make 32 bits, not all 0, that this boot of the machine has and other boots do not."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        boot = os.urandom(16)  # then each process checks its pages
    return zlib.crc32(boot) or 1


def _files_removed() -> OSError:
    """Make the error of files of a cache that have lost their names."""
    return OSError(errno.ESTALE, "its files were removed while they were in use")


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a file to read and write it, but not where a link leads; it is made if it is not there."""
    descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _table_bytes(size: int, page_size: int) -> int:
    return -(-size // page_size) * _ENTRY.itemsize
