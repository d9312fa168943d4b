"""ByteSource: the bytes of one file, wherever it is; readers and loaders reach every file through it.

`LocalFile` is the one kind so far. Another kind implements `ByteSource` and has an entry in `SOURCES`.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.errors import FormatError, StorageError, TruncatedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from typing_extensions import Self

#: Metadata up to this size are read without a look at the disk: memory of this size does no harm.
_HARMLESS = 64 << 20
#: Metadata of which less than one byte in so many was written are refused. Compressed files do not shrink further.
_MAX_BYTES_PER_WRITTEN = 1000
#: Bytes of a hole that are read, to see that they are zeros.
_HOLE_PROBE = 4096
#: Receives one byte that a probe of the page cache reads; its value does not matter.
_CACHE_PROBE = bytearray(1)
_MAP_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True)
class SourceIdentity(ABC):
    """Identifies one state of one file, to see that it has not changed since it was checked."""

    size: int  # bytes of the file

    @abstractmethod
    def is_same_source(self, other: SourceIdentity) -> bool:
        """Whether both are states of one file, which may have been written to in between."""

    @abstractmethod
    def check(self, name: str, found: SourceIdentity) -> None:
        """Raise `StorageError` if `found`, the identity of the file now, is another one."""


class ByteSource(ABC):
    """The bytes of one open file. Safe to use from several threads; closed when the last reference goes."""

    is_mappable: ClassVar[bool] = False  # whether `map` works
    num_readers: ClassVar[int] = 8  # reads in flight that keep a source busy: eight do for a solid-state drive

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size  # when the file was checked

    @classmethod
    @abstractmethod
    def open(cls, name: str, size: int, *, is_random: bool) -> Self:
        """Open a file that had `size` bytes; with `is_random` it is read in random order."""

    @classmethod
    @abstractmethod
    def find_identity(cls, name: str) -> SourceIdentity:
        """Find the identity of a file without opening it."""

    @abstractmethod
    def identity(self) -> SourceIdentity:
        """Find the identity of the file as it is now."""

    @abstractmethod
    def read_into(self, start: int, target: memoryview) -> int:
        """Fill `target` with the bytes from `start` on; return their number, less only where the file ends."""

    @abstractmethod
    def close(self) -> None:
        """Close the file; may be called twice."""

    def read_ranges(self, ranges: Iterable[tuple[int, memoryview]]) -> None:
        """Fill each buffer with the bytes from its start on, `StorageError` if that fails."""
        for start, target in ranges:
            where = f"{self.name}: {len(target)} bytes from {start} on"
            try:
                count = self.read_into(start, target)
            except OSError as error:
                raise StorageError(
                    f"{where} could not be read: {error}. Check the disk or the network that the file lies on."
                ) from error
            if count < len(target):
                raise StorageError(
                    f"{where}: the file ends after {count} of them, but it had {self.size} bytes when it was opened. "
                    "It was cut short while it was being read; compare its size with the original."
                )

    def read(self, start: int, size: int) -> bytes:
        """Read a short part; less where the file ends."""
        content = bytearray(size)
        count = self.read_into(start, memoryview(content))
        return bytes(memoryview(content)[:count])

    def load(self, start: int, size: int) -> memoryview:
        """Give a region in memory that stays as long as the view, `StorageError` if it cannot be read completely."""
        content = bytearray(size)
        self.read_ranges([(start, memoryview(content))])
        return memoryview(content)

    def read_exactly(self, start: int, size: int) -> bytes:
        """Read a region, `StorageError` if it cannot be read completely."""
        return bytes(self.load(start, size))

    def read_array(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Read a long part of the metadata, `FormatError` if there is not as much memory."""
        try:
            content = np.empty(stop - start, np.uint8)
        except (MemoryError, ValueError) as error:  # numpy raises ValueError for sizes beyond any computer
            raise FormatError(
                f"{self.name}: bytes {start} to {stop} are metadata. They take {stop - start} bytes of memory, "
                "which this process cannot get. Either the file is damaged; or write it as several files, and open a "
                "part of them, or use a computer with more memory."
            ) from error
        if self.read_into(start, content.data) < stop - start:
            raise TruncatedError(f"{self.name}: the file became shorter while it was read. Is it still being written?")
        return content

    def check_written(self, start: int, stop: int) -> None:  # noqa: B027  most kinds of source have no holes
        """Refuse metadata that were never written, before memory is allocated for them."""

    def map(self) -> NDArray[np.uint8]:
        """Map the file into memory, read-only, as long as the array or a view of it lives."""
        raise StorageError(f"{self.name}: this kind of file cannot be mapped into memory. Use os_cache=False.")

    def is_cached(self, *positions: int) -> bool:
        """Whether these bytes are in memory already, or `announce` would be in vain. Reads nothing from the disk."""
        return True

    def announce(self, start: int, size: int) -> None:  # noqa: B027  only some kinds of source read ahead
        """Announce that bytes will be read soon."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


SOURCES: dict[str, type[ByteSource]] = {}
"""Kinds of source by the scheme of a name, ``scheme://...``. A name without a scheme of these is a path."""


def source_type(path: str | os.PathLike[str]) -> type[ByteSource]:
    """Choose the kind of source by the name of a file."""
    scheme, separator, _ = os.fspath(path).partition("://")
    return SOURCES.get(scheme, LocalFile) if separator else LocalFile


def open_bytes(
    path: str | os.PathLike[str], identity: SourceIdentity | None = None, *, is_random: bool = False
) -> ByteSource:
    """Open a file, `StorageError` if it has another identity; with `is_random` the system does not read ahead."""
    kind, name = source_type(path), os.fspath(path)
    found = kind.find_identity(name)  # it raises if opening would block, as with a pipe
    source = kind.open(name, (identity or found).size, is_random=is_random)
    if identity is not None:
        try:
            identity.check(name, source.identity())
        except BaseException:
            source.close()  # not only when the error and its traceback are gone
            raise
    return source


@dataclass(frozen=True)
class FileIdentity(SourceIdentity):
    """Identity of a file of this machine."""

    # The size alone does not do: files consist of whole pages, so two files of the same samples often have one size.
    device: int
    inode: int  # another file that takes over the name has another one
    mtime_ns: int  # last written, nanoseconds since 1970

    @classmethod
    def from_stat(cls, found: os.stat_result) -> FileIdentity:
        """Take what identifies a file from its status."""
        return cls(found.st_size, found.st_dev, found.st_ino, found.st_mtime_ns)

    def is_same_source(self, other: SourceIdentity) -> bool:
        return isinstance(other, FileIdentity) and (self.device, self.inode) == (other.device, other.inode)

    def check(self, name: str, found: SourceIdentity) -> None:
        if found == self:
            return
        if not isinstance(found, FileIdentity) or not self.is_same_source(found):
            inode = getattr(found, "inode", None)
            raise StorageError(
                f"{name}: another file (inode {inode}, {found.size} bytes) has this name now; when it was opened "
                f"it was inode {self.inode} of {self.size} bytes. The file was replaced: open it again, in training "
                "with a new Loader."
            )
        if found.size != self.size:
            raise StorageError(
                f"{name}: {found.size} bytes, but {self.size} when it was opened. Something writes to the file while "
                "it is being read: wait until it is complete, and open it again, in training with a new Loader."
            )
        raise StorageError(
            f"{name}: modified at {found.mtime_ns / 1e9:.3f} s since 1970, but at {self.mtime_ns / 1e9:.3f} when it "
            "was opened. Something has written to the file since, so its samples may have changed: open it again, in "
            "training with a new Loader. To replace a file that is in use, write a new one and rename it."
        )


class LocalFile(ByteSource):
    """A file that the operating system opens by its path, also one on a network file system."""

    is_mappable = True

    def __init__(self, name: str, size: int, descriptor: int) -> None:
        super().__init__(name, size)
        self.descriptor = descriptor

    @classmethod
    def open(cls, name: str, size: int, *, is_random: bool) -> LocalFile:
        source = cls(name, size, os.open(name, os.O_RDONLY | os.O_CLOEXEC))
        if is_random and hasattr(os, "posix_fadvise"):
            # Each byte is asked for in time; reading ahead would read more in vain.
            os.posix_fadvise(source.descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return source

    @classmethod
    def find_identity(cls, name: str) -> FileIdentity:
        found = os.stat(name)  # noqa: PTH116  the error names the path as given
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(found.st_mode):
            raise FormatError(f"{name}: not a regular file. A .beton file has to be readable at any offset.")
        return FileIdentity.from_stat(found)

    def identity(self) -> FileIdentity:
        return FileIdentity.from_stat(os.fstat(self.descriptor))

    def read_into(self, start: int, target: memoryview) -> int:
        done = 0
        while done < len(target) and (count := os.preadv(self.descriptor, [target[done:]], start + done)):
            done += count
        return done

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def check_written(self, start: int, stop: int) -> None:
        """Refuse metadata that are nearly nothing but a hole, a part never written that reads as zeros."""
        # A file of 4 KiB can have holes of terabytes. Some holes are no fault: `cp --sparse`, ZFS and btrfs make them
        # of long runs of zeros. The number of blocks does not help: file systems that compress, and many on a
        # network, count few or none.
        if stop - start <= _HARMLESS or not hasattr(os, "SEEK_DATA"):
            return
        try:
            written = self._count_written(start, stop)
        except OSError:  # a file system that does not know its holes
            return
        if written * _MAX_BYTES_PER_WRITTEN < stop - start:
            raise TruncatedError(
                f"{self.name}: the metadata should take {stop - start} bytes from {start} on, but only {written} bytes "
                "of them were ever written to the disk; the others are a hole in the file, which reads as zeros. The "
                "file was probably not copied completely; compare it with the original."
            )

    def _count_written(self, start: int, stop: int) -> int:
        """Count the bytes that lie in no hole, until there are enough."""
        written, at = 0, start
        while at < stop and written * _MAX_BYTES_PER_WRITTEN < stop - start:
            data = self._next_data(at, stop)
            # Some versions of ZFS report data that were just written as a hole.
            if data > at and any(os.pread(self.descriptor, min(_HOLE_PROBE, data - at), at)):
                return stop - start
            at = min(os.lseek(self.descriptor, data, os.SEEK_HOLE), stop) if data < stop else stop
            written += at - data
        return written

    def _next_data(self, start: int, stop: int) -> int:
        """Find the first byte from `start` on that lies in no hole; `stop` if there is none before."""
        try:
            return min(os.lseek(self.descriptor, start, os.SEEK_DATA), stop)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return stop
            raise

    def map(self) -> NDArray[np.uint8]:
        """Map the file, without a descriptor that stays open."""
        # Python's own mmap keeps a copy of the descriptor for each mapping (3.13 can do without): a dataset of a
        # thousand files would exceed the limit on open files.
        size = self.size
        address = _libc().mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, self.descriptor, 0)
        if address == _MAP_FAILED:
            error = ctypes.get_errno()
            raise OSError(error, f"{size} bytes could not be mapped into memory: {os.strerror(error)}", self.name)
        # Views of an array refer to the first array over the memory, which is this one: when it dies, all are gone.
        content = np.frombuffer(memoryview((ctypes.c_ubyte * size).from_address(address)), np.uint8)
        content.setflags(write=False)
        weakref.finalize(content, _libc().munmap, address, size).atexit = False
        return content

    def is_cached(self, *positions: int) -> bool:
        if not hasattr(os, "posix_fadvise"):
            return True
        try:
            for position in positions:
                os.preadv(self.descriptor, [_CACHE_PROBE], position, os.RWF_NOWAIT)
        except OSError:  # not there; or a file system that cannot tell
            return False
        return True

    def announce(self, start: int, size: int) -> None:
        os.posix_fadvise(self.descriptor, start, size, os.POSIX_FADV_WILLNEED)


class OpenSources:
    """The files of a dataset, opened when they are needed; those needed last stay open. Safe to use from threads."""

    def __init__(
        self,
        files: Iterable[tuple[str | os.PathLike[str], SourceIdentity]],
        *,
        max_open: int = 64,  # a process may have 1024 descriptors as a rule, and others need some too
        is_random: bool = False,
    ) -> None:
        found = [(os.fspath(path), identity) for path, identity in files]
        self.paths = tuple(path for path, _ in found)
        self.identities = tuple(identity for _, identity in found)
        self.sizes = tuple(identity.size for identity in self.identities)
        self._max_open = max_open
        self._is_random = is_random
        self._open: OrderedDict[int, ByteSource] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def is_mappable(self) -> bool:
        """Whether all files can be mapped into memory."""
        return all(source_type(path).is_mappable for path in self.paths)

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
            self._open[number] = source
            if len(self._open) > self._max_open:
                self._open.popitem(last=False)
        return source

    def hold(self) -> None:
        """Open as many files as stay open, the first ones."""
        for number in range(min(len(self), self._max_open)):
            self.open(number)

    def check(self, *, is_mapped: bool = False) -> None:
        """Compare all files with what they were; a mapped file may have lost its name meanwhile."""
        for number, (path, identity) in enumerate(zip(self.paths, self.identities, strict=True)):
            with self._lock:
                source = self._open.get(number)
            try:
                found = source_type(path).find_identity(path) if source is None else source.identity()
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
            if not is_mapped or identity.is_same_source(found):
                identity.check(path, found)

    def close(self) -> None:
        """Close all files that nothing else holds; the others are closed when they are let go. May be called twice."""
        with self._lock:
            self._open.clear()


@cache
def _libc() -> Any:
    """The C library, with the types of its functions."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    # The offset is 64 bits wide on every 64-bit system.
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    )  # fmt: skip
    libc.munmap.restype = ctypes.c_int
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return libc
