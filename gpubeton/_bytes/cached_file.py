"""CachedFile: a remote file whose pages stay in a directory of this machine, where all processes share them."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import weakref
import zlib
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
from gpubeton._bytes.descriptors import locked_byte, open_descriptor, read_at, write_some
from gpubeton._bytes.local_file import FileIdentity, LocalFile
from gpubeton.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

# An object, which is one version of one file, has a directory with
#   data       the bytes of the file, as long as the file; pages that are not there are holes
#   pages      8 bytes for each page: its CRC-32 in the upper half; in the lower half 0 if it is not there, else the
#              tag of the boot in which it was written or checked last
# Whoever fetches a page locks its byte of `pages`, writes the page, then its entry. A killed process leaves the page
# without an entry. After a crash of the machine the disk may have an entry without its page; such an entry has the tag
# of an earlier boot, and its page is compared with the CRC-32 before it is used.
_ENTRY = np.dtype("<u8")
# A page is not fetched for a region of less than this part of it.
_SHORT = 8
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # FALLOC_FL_*


class CacheBudget(Protocol):
    """Where the pages of objects are kept."""

    is_full: bool  # no further page will be kept

    def reserve(self, descriptor: int, start: int, size: int) -> bool:
        """Allocate the blocks of a page of an open file; False if it may not be kept."""
        ...

    def count(self, *, cached: int = 0, fetched: int = 0) -> None:
        """Count the bytes of a region that were there, or of a request."""
        ...

    def warn(self, error: OSError) -> None:
        """Warn, once, that pages cannot be kept."""
        ...


class CachedFile(ByteSource):
    """The pages of a source that are there, and the source for all others."""

    def __init__(self, source: ByteSource, folder: Path, page_size: int, budget: CacheBudget) -> None:
        super().__init__(source.name, source.size)
        self._source = source
        self._folder, self._page_size, self.budget = folder, page_size, budget
        table = _table_bytes(source.size, page_size)
        with LocalFile.open(os.fspath(folder / "pages"), table, is_random=False) as pages:
            self._entries: NDArray[np.uint64] = pages.map().view(_ENTRY)  # (pages,), changed by all processes
            self._local = LocalFile.open(os.fspath(folder / "data"), source.size, is_random=False)
            # Of the files that are mapped: others may take their names.
            self._identities = (pages.identity(), self._local.identity())
        if not self._identities[0].is_same_source(LocalFile.find_identity(os.fspath(folder / "pages"))):
            raise files_removed()
        self._content = self._local.map()  # (size,)
        # The cache marks the object as in use as long as a view of it lives.
        weakref.finalize(self._content, _keep_alive, budget).atexit = False

    @classmethod
    def find_identity(cls, name: str) -> SourceIdentity:
        raise TypeError(f"{name}: ask the source that a CachedFile is made around")

    def identity(self) -> SourceIdentity:
        return self._source.identity()

    @property
    def num_pages(self) -> int:
        """Pages of the object."""
        return len(self._entries)

    def count_pages(self) -> int:
        """Count the pages that are there, and were written or checked since the machine was started."""
        return count_cached(self._entries)

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
                raise files_removed()
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


def count_cached(entries: NDArray[np.uint64]) -> int:
    """Count the pages that are there by their entries, (N,), and were written or checked in this boot."""
    return int((entries & np.uint64(0xFFFFFFFF) == boot_tag()).sum())


def read_entries(folder: Path) -> NDArray[np.uint64]:
    """Read the entries of an object, (N,); none if it is not there."""
    try:
        content = (folder / "pages").read_bytes()
    except OSError:
        content = b""
    return _entries_in(content)


def _entries_in(content: bytes) -> NDArray[np.uint64]:
    """Convert the bytes of entries to these, (N,): a process that ended while it wrote may have cut the last one."""
    return np.frombuffer(content, _ENTRY, len(content) // _ENTRY.itemsize)


def is_made(folder: Path, size: int, page_size: int) -> bool:
    """Whether an object has all its files."""
    try:
        sizes = [(folder / name).lstat().st_size for name in ("pages", "data")]
    except FileNotFoundError:
        return False
    return sizes == [_table_bytes(size, page_size), size]


def make_object(folder: Path, size: int, page_size: int) -> None:
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


def drop_pages(folder: Path, page_size: int, need: int) -> int:
    """Free at least `need` bytes of an object that no process uses, or the whole object; return how many were freed."""
    with _opened(folder / "pages") as pages, _opened(folder / "data") as data:
        entries = _entries_in(read_at(pages, os.fstat(pages).st_size, 0))
        before = left = _allocated(data)
        # From the end: a file whose first pages are there can be opened at once.
        for page in np.flatnonzero(entries)[::-1].tolist() if page_size else ():
            if before - left >= need:
                return before - left
            write_all(pages, memoryview(bytes(_ENTRY.itemsize)), _ENTRY.itemsize * page)  # first, as above
            if not _fallocate(data, _KEEP_SIZE | _PUNCH_HOLE, page * page_size, page_size):
                break
            left = _allocated(data)
    for name in ("pages", "data", "info.json"):  # in this order: a process may be killed at any time
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()
    return before


def allocate(descriptor: int, start: int, size: int) -> int:
    """Allocate the blocks of a part of a file; return how many bytes that took, `OSError` if the disk is full."""
    before = _allocated(descriptor)
    return _allocated(descriptor) - before if _fallocate(descriptor, _KEEP_SIZE, start, size) else size


def write_all(descriptor: int, content: memoryview, start: int) -> None:
    """Write all bytes at a place of an open file."""
    while content:
        count = write_some(descriptor, content, start)
        content, start = content[count:], start + count


@cache
def boot_tag() -> int:
    """Make 32 bits, not all 0, that this boot of the machine has and other boots do not."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        boot = os.urandom(16)  # then each process checks its pages
    return zlib.crc32(boot) or 1


def files_removed() -> OSError:
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


def _allocated(descriptor: int) -> int:
    return os.fstat(descriptor).st_blocks * 512


def _fallocate(descriptor: int, mode: int, start: int, size: int) -> bool:
    """Allocate or free blocks; False if the file system cannot."""
    if sys.platform != "linux":
        return False
    while _libc().fallocate(descriptor, mode, start, size):
        number = ctypes.get_errno()
        if number in (errno.EOPNOTSUPP, errno.ENOSYS):
            return False
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return True


@cache
def _libc() -> Any:
    """The C library, with the types of fallocate."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.restype = ctypes.c_int
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return libc


def _keep_alive(budget: CacheBudget) -> None:
    """Do nothing: the arguments of a finalizer live until it runs."""
