"""LocalFile: a file that the operating system opens by its path, also one on a network file system."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import sys
import tempfile
import weakref
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
from gpubeton._bytes.descriptors import open_descriptor, read_into
from gpubeton.errors import FormatError, StorageError, TruncatedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
            "to; in a container, mount a tmpfs at /tmp. --scratch names a folder for shards alone.",
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
        if current.size != self.size:
            raise StorageError(
                f"{name}: {current.size} bytes, but {self.size} when it was opened. Something writes to the file while "
                "it is being read: wait until it is complete, and open it again, in training with a new Loader."
            )
        raise StorageError(
            f"{name}: modified at {current.mtime_ns / 1e9:.3f} s since 1970, but at {self.mtime_ns / 1e9:.3f} when it "
            "was opened. Something has written to the file since, so its samples may have changed: open it again, in "
            "training with a new Loader. To replace a file that is in use, write a new one and rename it."
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
                f"{name}: a folder, but not of .beton files; expected a .beton file. If it has images, open them with "
                "Loader.from_image_folder(...), or make a file of them: gpubeton convert"
            )
            error.errno = errno.EISDIR  # with a file name as well, the text would begin with "[Errno 21]"
            raise error
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{name}: not a regular file. A .beton file has to be readable at any offset.")
        return FileIdentity.from_stat(status)

    def identity(self) -> FileIdentity:
        return FileIdentity.from_stat(os.fstat(self.descriptor))

    def read_into(self, start: int, target: memoryview) -> int:
        done = 0
        while done < len(target) and (count := read_into(self.descriptor, target[done:], start + done)):
            done += count
        return done

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
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    # The offset is 64 bits wide on every 64-bit system.
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    )  # fmt: skip
    libc.munmap.restype = ctypes.c_int
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return libc
