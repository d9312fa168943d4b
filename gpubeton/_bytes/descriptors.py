"""Descriptors of files: opened, read, written and locked, also where POSIX calls are missing.

The kernel drops locks when a process ends: nothing stays locked.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import threading
from contextlib import contextmanager, suppress
from io import FileIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    """Read bytes at an offset; return how many, 0 at the end of the file."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [target], start)
    content = read_at(descriptor, len(target), start)
    target[: len(content)] = content
    return len(content)


def read_at(descriptor: int, size: int, start: int) -> bytes:
    """Read up to `size` bytes at an offset."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, start)
    with _position:
        os.lseek(descriptor, start, os.SEEK_SET)
        return os.read(descriptor, size)


def write_some(descriptor: int, content: Buffer, start: int) -> int:
    """Write bytes at an offset; return how many were written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, content, start)
    with _position:
        os.lseek(descriptor, start, os.SEEK_SET)
        return os.write(descriptor, content)


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


def lock_file(descriptor: int, *, waits: bool) -> None:
    """Lock a file or folder until it is closed; `BlockingIOError` if another process has it and `waits` is not set."""
    if fcntl is None:
        raise OSError(errno.ENOLCK, "Windows has no locks that end with a process in any way: use Linux, macOS or WSL")
    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))


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
