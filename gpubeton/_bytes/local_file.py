"""Files of this machine: `LocalFile`, and descriptors that are opened, read, written and locked.

They work where POSIX calls are missing, too. The kernel drops locks when a process ends: nothing stays locked.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import struct
import sys
import tempfile
import threading
import weakref
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from io import FileIO
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
from gpubeton.errors import FormatError, StorageError, TruncatedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from typing_extensions import Buffer

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # to mypy, a module is never None

NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Numbers of the errors of file systems that cannot lock, as some of networks and of user space."""

_BINARY = getattr(os, "O_BINARY", 0)  # Windows changes the ends of lines without it
# Without it, opening a pipe waits for a process that writes to it.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)
# Without a call for both, only one thread at a time may move a file's position and use it.
_position = threading.Lock()
#: Metadata up to this size are read without a look at the disk: memory of this size does no harm.
_HARMLESS = 64 << 20
#: Metadata of which less than one byte in so many was written are refused. Compressed files do not shrink further.
_MAX_BYTES_PER_WRITTEN = 1000
#: Bytes of a hole that are read, to see that they are zeros.
_HOLE_PROBE = 4096
#: Receives one byte that a probe of the page cache reads; its value does not matter.
_CACHE_PROBE = bytearray(1)
_MAP_FAILED = ctypes.c_void_p(-1).value


def temporary_folder() -> str:
    """Find the folder for temporary files; `StorageError` that says what to set if none can be written to."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        raise StorageError(
            error.errno,
            f"temporary files cannot be written: {error.strerror}. Set TMPDIR to a folder that this user may write "
            "to; in a container, mount a tmpfs at /tmp.",
        ) from error


@dataclass(frozen=True)
class FileIdentity(SourceIdentity):
    """Identity of a file of this machine."""

    # The size alone does not do: files consist of whole pages, so two files of the same samples often have one size.
    device: int
    inode: int  # another file that takes over the name has another one
    mtime_ns: int  # last written, nanoseconds since 1970

    @classmethod
    def from_stat(cls, status: os.stat_result) -> FileIdentity:
        """Take what identifies a file from its status."""
        return cls(status.st_size, status.st_dev, status.st_ino, status.st_mtime_ns)

    def is_same_source(self, other: SourceIdentity) -> bool:
        return isinstance(other, FileIdentity) and (self.device, self.inode) == (other.device, other.inode)

    def check(self, name: str, current: SourceIdentity) -> None:
        if current == self:
            return
        if not isinstance(current, FileIdentity) or not self.is_same_source(current):
            inode = getattr(current, "inode", None)
            raise StorageError(
                f"{name}: another file (inode {inode}, {current.size} bytes) has this name now; when it was opened "
                f"it was inode {self.inode} of {self.size} bytes. The file was replaced: open it again, in training "
                "with a new Loader."
            )
        what = f"{current.size} bytes, but {self.size}"
        if current.size == self.size:
            what = f"modified at {current.mtime_ns / 1e9:.3f} s since 1970, but at {self.mtime_ns / 1e9:.3f}"
        raise StorageError(
            f"{name}: {what} when it was opened. Something has written to the file since, so its samples may have "
            "changed: wait until it is complete, and open it again, in training with a new Loader. To replace a file "
            "that is in use, write a new one and rename it."
        )


class LocalFile(ByteSource):
    """A file that the operating system opens by its path, also one on a network file system."""

    is_mappable = True
    is_local = True

    def __init__(self, name: str, size: int, descriptor: int) -> None:
        super().__init__(name, size)
        self.descriptor = descriptor

    @classmethod
    def open(cls, name: str, size: int, *, is_random: bool) -> LocalFile:
        source = cls(name, size, open_descriptor(name, os.O_RDONLY))
        if is_random and hasattr(os, "posix_fadvise"):
            # Each byte is asked for in time; reading ahead would read more in vain.
            os.posix_fadvise(source.descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return source

    @classmethod
    def find_identity(cls, name: str) -> FileIdentity:
        status = os.stat(name)  # noqa: PTH116  the error names the path as given
        if stat.S_ISDIR(status.st_mode):
            error = IsADirectoryError(
                f"{name}: a folder, but not of .beton files; expected a .beton file or an index. A Loader also reads "
                "a folder that has images; else index them (gpubeton index FOLDER -o NAME.index), or convert them"
            )
            error.errno = errno.EISDIR  # with a file name as well, the text would begin with "[Errno 21]"
            raise error
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{name}: not a regular file. A .beton file has to be readable at any offset.")
        return FileIdentity.from_stat(status)

    def identity(self) -> FileIdentity:
        return FileIdentity.from_stat(os.fstat(self.descriptor))

    def read_into(self, start: int, target: memoryview) -> int:
        return read_into(self.descriptor, target, start)

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

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
        if sys.platform != "linux":
            return np.frombuffer(mmap.mmap(self.descriptor, size, access=mmap.ACCESS_READ), np.uint8)
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
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.descriptor, start, size, os.POSIX_FADV_WILLNEED)


@cache
def _libc() -> Any:
    """The C library, with the types of its functions."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    # The offset is 64 bits wide on every 64-bit system.
    library.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    )  # fmt: skip
    library.munmap.restype = ctypes.c_int
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    if sys.platform == "linux":
        library.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return library


def open_descriptor(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a file; programs that this one starts do not inherit it."""
    return os.open(path, flags | _BINARY, mode)


def open_regular(path: str | os.PathLike[str]) -> FileIO:
    """Open a file for reading; refuse pipes and devices, whose bytes may never come."""
    file = FileIO(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("a pipe or device; expected a regular file")
    return file


def read_into(descriptor: int, target: memoryview, start: int) -> int:
    """Fill `target` with the bytes at an offset; return how many there are, less at the end of the file."""
    done = 0
    while rest := target[done:]:
        if hasattr(os, "preadv"):
            count = os.preadv(descriptor, [rest], start + done)
        else:
            content = read_at(descriptor, len(rest), start + done)
            count = len(content)
            rest[:count] = content
        if not count:
            break
        done += count
    return done


def read_at(descriptor: int, size: int, start: int) -> bytes:
    """Read up to `size` bytes at an offset."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, start)
    with _position:
        os.lseek(descriptor, start, os.SEEK_SET)
        return os.read(descriptor, size)


def write_all(descriptor: int, content: Buffer, start: int) -> None:
    """Write all bytes at an offset."""
    rest = memoryview(content).cast("B")
    while rest:
        if hasattr(os, "pwrite"):
            count = os.pwrite(descriptor, rest, start)
        else:
            with _position:
                os.lseek(descriptor, start, os.SEEK_SET)
                count = os.write(descriptor, rest)
        rest, start = rest[count:], start + count


def lock_byte(descriptor: int, position: int, *, is_shared: bool = False, waits: bool = True) -> bool:
    """Lock a byte for this open file until it is closed; False if another open file has it and `waits` is not set."""
    if not hasattr(fcntl, "F_OFD_SETLK"):
        raise OSError(errno.ENOLCK, "this operating system has no locks of open files, as Linux has them")
    kind = fcntl.F_RDLCK if is_shared else fcntl.F_WRLCK
    request = struct.pack("hhqqiq", kind, os.SEEK_SET, position, 1, 0, 0)
    try:
        # Locks of an open file (OFD): threads of one process exclude each other, too, if each has opened the file.
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW if waits else fcntl.F_OFD_SETLK, request)
    except (BlockingIOError, PermissionError):
        if waits:
            raise
        return False
    return True


def lock_file(descriptor: int) -> None:
    """Lock a file or folder until it is closed; `BlockingIOError` if another process has it."""
    if fcntl is None:
        raise OSError(errno.ENOLCK, "Windows has no locks that end with a process in any way: use Linux, macOS or WSL")
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(descriptor: int) -> None:
    """Unlock all bytes: a process that was forked meanwhile has the file open, and would keep the locks."""
    if not hasattr(fcntl, "F_OFD_SETLK"):
        return
    with suppress(OSError):  # a file system without locks
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqiq", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0, 0))


@contextmanager
def locked_byte(path: Path, position: int, *, waits: bool = True) -> Iterator[int | None]:
    """Open a file and lock a byte of it alone; gives the descriptor, None if the lock could not be had at once."""
    descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield descriptor if lock_byte(descriptor, position, waits=waits) else None
    finally:
        unlock(descriptor)
        os.close(descriptor)


def fallocate(descriptor: int, mode: int, start: int, size: int) -> bool:
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
