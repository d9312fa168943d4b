"""Descriptors of files: opened, read and written at an offset, also where POSIX calls are missing."""

from __future__ import annotations

import os
import stat
import threading
from io import FileIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

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
