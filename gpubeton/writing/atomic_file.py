"""AtomicFile: a file that appears under its name when it is whole, or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpubeton.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Buffer, Self

__all__ = ["AtomicFile", "is_locked", "read_at", "sync_folder", "write_at"]


class AtomicFile:
    """A file that appears under its name when it is whole, or not at all.

    Until then it stands beside its name as ``.NAME.<16 digits>.partial``, locked.
    Leaving the ``with`` block without `commit` removes it. What a killed
    process leaves is no longer locked; the next writer to the folder removes it.
    The first 8 digits stand for the running system, as the locks of some file
    systems on a network hold for one computer alone: files of other names are
    removed only if they were made on this one since it was started, files of
    the same name always. (A file without a name, O_TMPFILE, would leave
    nothing behind, but cannot replace an older file in one step, and network
    file systems do not have it.)

    Parameters
    ----------
    path : str or path
        The name. A symbolic link is followed, so that its target is replaced.

    Raises
    ------
    StorageError
        If nothing can be created there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(path))
        if self.path.is_dir():
            raise StorageError(errno.EISDIR, f"{self.path}: is a folder; expected the name of a file, such as x.beton")
        # Long names leave no room for the additions in the 255 bytes that a file system allows.
        self._prefix = f".{os.fsdecode(os.fsencode(self.path.name)[:200])}."
        try:
            for leftover in self._find_leftovers():
                _remove_if_abandoned(leftover)
            self.temporary, self._descriptor = self._create()
        except OSError as error:
            raise StorageError(error.errno, f"{self.path}: no file can be written here: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._descriptor >= 0:
            self.temporary.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def write(self, offset: int, content: Buffer) -> None:
        """Write bytes at a place.

        Parameters
        ----------
        offset : int
            Where. What lies between the parts that are written reads as zeros.
        content : bytes-like
            The bytes, all of which are written.

        Raises
        ------
        StorageError
            If they cannot be, for example because the disk is full.
        """
        write_at(self._descriptor, offset, content, self.path)

    def commit(self) -> None:
        """Bring everything to the disk and give the file its name, in place of an older file.

        Raises
        ------
        StorageError
            If that fails; the older file is then untouched.
        """
        try:
            os.fsync(self._descriptor)
            self.temporary.replace(self.path)
            os.close(self._descriptor)
            self._descriptor = -1
            sync_folder(self.path.parent)
        except OSError as error:
            raise StorageError(error.errno, f"{self.path}: could not be completed: {error.strerror}") from error

    def _find_leftovers(self) -> Iterator[Path]:
        own_name, any_name = re.escape(self._prefix) + "[0-9a-f]{16}", rf"\..+\.{_system()}[0-9a-f]{{8}}"
        pattern = re.compile(rf"({own_name}|{any_name})\.partial", re.DOTALL)
        return (Path(entry) for entry in os.scandir(self.path.parent) if pattern.fullmatch(entry.name))

    def _create(self) -> tuple[Path, int]:
        while True:
            temporary = self.path.with_name(f"{self._prefix}{_system()}{secrets.token_hex(4)}.partial")
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            # Between these two lines another process may have taken the file for a leftover: then make another.
            if not is_locked(descriptor) and os.fstat(descriptor).st_nlink:
                return temporary, descriptor
            os.close(descriptor)


def write_at(descriptor: int, offset: int, content: Buffer, path: str | os.PathLike[str]) -> None:
    """Write all of some bytes at a place of an open file.

    Parameters
    ----------
    descriptor : int
        The file.
    offset : int
        Where.
    content : bytes-like
        The bytes.
    path : str or path
        Named in errors.

    Raises
    ------
    StorageError
        If they cannot be written, with the `errno` of the system.
    """
    rest = memoryview(content).cast("B")
    while rest:
        try:
            count = os.pwrite(descriptor, rest, offset)
        except OSError as error:
            raise StorageError(
                error.errno,
                f"{os.fspath(path)}: {len(rest)} bytes could not be written at {offset}: {error.strerror}. "
                "Nothing appears under this name, and an older file is untouched.",
            ) from error
        rest = rest[count:]
        offset += count


def read_at(descriptor: int, offset: int, size: int, path: str | os.PathLike[str]) -> bytes:
    """Read all of some bytes at a place of an open file.

    Parameters
    ----------
    descriptor : int
        The file.
    offset : int
        Where.
    size : int
        How many.
    path : str or path
        Named in errors.

    Returns
    -------
    bytes
        As many.

    Raises
    ------
    StorageError
        If they cannot be read, or the file ends before.
    """
    parts, rest = [], size
    while rest:
        try:
            part = os.pread(descriptor, rest, offset + size - rest)
        except OSError as error:
            raise StorageError(
                error.errno, f"{os.fspath(path)}: {rest} bytes could not be read at {offset}: {error.strerror}"
            ) from error
        if not part:
            raise StorageError(
                errno.EIO, f"{os.fspath(path)}: {size - rest} bytes at {offset}, expected {size}: the file ends before"
            )
        parts.append(part)
        rest -= len(part)
    return b"".join(parts)


def is_locked(descriptor: int) -> bool:
    """Tell whether another process has locked a file; if not, lock it.

    Parameters
    ----------
    descriptor : int
        The file. The lock stays for as long as it is open, also in processes forked from this one.

    Returns
    -------
    bool
        Whether it is another's.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks; `_remove_if_abandoned` removes nothing there either
    return False


@cache
def _system() -> str:
    """Give 8 digits for the operating system that runs here, which all of its containers share."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        name = os.uname().nodename.encode()
    return f"{zlib.crc32(name):08x}"


def _remove_if_abandoned(path: Path) -> None:
    try:
        # A pipe of such a name must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return  # gone meanwhile, or another user's
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            path.unlink(missing_ok=True)
    except OSError:
        pass  # still being written, or a file system without locks
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk.

    Parameters
    ----------
    folder : Path
        The folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
