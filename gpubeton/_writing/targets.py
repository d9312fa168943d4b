"""Targets: files that appear under their names when they are complete, on this machine or in an object store."""

from __future__ import annotations

import errno
import os
import platform
import re
import secrets
import stat
import sys
import zlib
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._bytes.descriptors import lock_file, open_descriptor, write_some
from gpubeton._bytes.object_store import head_object, list_objects, put_object
from gpubeton.errors import OptionError, RemoteExistsError, StorageError
from gpubeton.format.entry_points import remove_index
from gpubeton.format.layout import HEADER_DTYPE, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer, Self

    from gpubeton._bytes.remote_options import RemoteOptions


class WrittenFile(ABC):
    """A file that is written under another name, and gets its own when it is complete."""

    path: Path  # its own name
    temporary: Path
    overwrite = True  # whether an older file of that name may be replaced
    _descriptor: int  # -1: closed

    def __enter__(self) -> Self:
        return self

    def write(self, offset: int, content: Buffer) -> None:
        """Write all bytes at an offset; gaps between written parts read as zeros."""
        write_at(self._descriptor, offset, content, self.path)

    def commit(self) -> None:
        """Bring everything to the disk and give the file its name, in place of an older file and its index."""
        check_target(self.path, overwrite=self.overwrite)  # a file may have appeared meanwhile
        try:
            os.fsync(self._descriptor)
            if sys.platform == "win32":  # Windows renames and removes no open file
                self._close()
            self.temporary.replace(self.path)
            remove_index(os.fspath(self.path))
            self._clear()
            sync_folder(self.path.parent)
        except OSError as error:
            raise StorageError(error.errno, f"{self.path}: could not be completed: {error.strerror}") from error

    @abstractmethod
    def _close(self) -> None:
        """Close all that is open."""

    def _clear(self) -> None:
        """Remove or close all that is needed no longer, now that the file has its name."""
        self._close()


class AtomicFile(WrittenFile):
    """A file that appears under its name when it is complete; without `commit` it is removed."""

    # Until then it has the name ``.NAME.<16 digits>.partial`` in the same folder, and is locked. The file of a killed
    # process is no longer locked: the next writer to the folder removes it. The first 8 digits identify the running
    # system, because on some network file systems locks hold for one computer only: files of other names are removed
    # only if they were made on this computer since it was started, files of the same name always.

    # A file without a name (O_TMPFILE) would leave nothing, but cannot replace an older file in one step, and network
    # file systems do not have it.

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        self.path, self.overwrite = resolve_target(path), overwrite
        self._prefix = f".{short_name(self.path)}."
        try:
            for leftover in self._find_leftovers():
                remove_if_abandoned(leftover)
            self.temporary, self._descriptor = self._create()
        except OSError as error:
            raise StorageError(error.errno, f"{self.path}: no file can be written here: {error.strerror}") from error

    def __exit__(self, *exception: object) -> None:
        if self._descriptor >= 0:
            self._close()
            self.temporary.unlink(missing_ok=True)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _find_leftovers(self) -> Iterator[Path]:
        same_name, any_name = re.escape(self._prefix) + "[0-9a-f]{16}", rf"\..+\.{_system()}[0-9a-f]{{8}}"
        pattern = re.compile(rf"({same_name}|{any_name})\.partial", re.DOTALL)
        return (Path(entry) for entry in os.scandir(self.path.parent) if pattern.fullmatch(entry.name))

    def _create(self) -> tuple[Path, int]:
        while True:
            temporary = self.path.with_name(f"{self._prefix}{_system()}{secrets.token_hex(4)}.partial")
            descriptor = open_descriptor(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            # Between these two lines another process may have taken the file for a leftover: then make another.
            if not is_locked(descriptor) and os.fstat(descriptor).st_nlink:
                return temporary, descriptor
            os.close(descriptor)


def resolve_target(path: str | os.PathLike[str]) -> Path:
    """Follow symbolic links, so that their target is replaced; refuse folders, devices and pipes."""
    if re.match("(s3|gs|az|https?):/", os.fspath(path)):
        raise OptionError(
            f"{os.fspath(path)}: files are written on this machine, expected a path. Upload the file then, or "
            "convert to shards, which are uploaded: gpubeton convert SOURCE s3://bucket/folder/ --shards N"
        )
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise StorageError(errno.EISDIR, f"{target}: is a folder; expected the name of a file, such as x.beton")
    if target.exists() and not target.is_file():
        raise StorageError(
            errno.EINVAL, f"{target}: is a device or a pipe; expected the name of a file, such as x.beton"
        )
    return target


def check_target(
    path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]] = (), *, overwrite: bool
) -> None:
    """Refuse a target that exists, unless `overwrite`, and a target that is an input, by this or another name."""
    target = resolve_target(path)
    try:
        status = target.stat()
    except FileNotFoundError:
        return
    for source in inputs:
        with suppress(OSError):
            if os.path.samestat(status, os.stat(source)):  # noqa: PTH116  there may be millions, as text
                what = f"{os.fspath(path)}: is an input, {os.fspath(source)}"
                raise OptionError(f"{what}; expected another file to write")
    if not overwrite:
        several = ". Several tar files are one argument: 'train-{000..146}.tar', or their folder"
        raise OptionError(
            f"{os.fspath(path)}: exists. Choose another name, or replace the file: --overwrite (overwrite=True)"
            f"{several if target.suffix == '.tar' else ''}"
        )


def is_beton(path: Path) -> bool:
    """Whether a file is a .beton file, by its name or its header; an empty file, as `tempfile` makes them, is one."""
    with path.open("rb") as file:
        header = file.read(HEADER_DTYPE.itemsize)
    if path.suffix == ".beton" or not header:
        return True
    if len(header) < HEADER_DTYPE.itemsize:
        return False
    version, fields, page_size, *_ = np.frombuffer(header, HEADER_DTYPE)[0].item()
    return bool(version == VERSION and fields and page_size.bit_count() == 1)


def short_name(path: Path) -> str:
    """Shorten a file name: with our additions it has to fit into the 255 bytes that file systems allow."""
    return os.fsdecode(os.fsencode(path.name)[:200])


def write_at(descriptor: int, offset: int, content: Buffer, path: str | os.PathLike[str]) -> None:
    """Write all bytes at an offset of an open file; `path` is named in errors."""
    rest = memoryview(content).cast("B")
    while rest:
        try:
            count = write_some(descriptor, rest, offset)
        except OSError as error:
            raise StorageError(
                error.errno,
                f"{os.fspath(path)}: {len(rest)} bytes could not be written at {offset}: {error.strerror}. "
                "No new file appears under this name, and an older file is unchanged.",
            ) from error
        rest = rest[count:]
        offset += count


def is_locked(descriptor: int) -> bool:
    """Whether another process has locked a file; if not, lock it until it is closed here and in forked processes."""
    try:
        lock_file(descriptor, waits=False)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks; `remove_if_abandoned` removes nothing there either
    return False


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folders
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@cache
def _system() -> str:
    """Make 8 digits from the boot id of the running system, which all containers on it share."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        name = platform.node().encode()
    return f"{zlib.crc32(name):08x}"


def remove_if_abandoned(path: Path) -> None:
    """Remove an unfinished file, unless a process writes it."""
    if not hasattr(os, "O_NOFOLLOW"):  # Windows has no locks either
        return
    try:
        # O_NONBLOCK: a pipe of such a name must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return  # removed in the meantime, or another user's
    try:
        lock_file(descriptor, waits=False)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            path.unlink(missing_ok=True)
    except OSError:
        pass  # still being written, or a file system without locks
    finally:
        os.close(descriptor)


class TargetFolder:
    """A folder, or the prefix of an object store; each file appears whole."""

    def __init__(self, name: str, remote: RemoteOptions | None = None) -> None:
        self.name = name.rstrip("/") + "/" if "://" in name else os.path.abspath(name)  # noqa: PTH100  a text
        self.remote = remote
        self.path = None if "://" in name else Path(self.name)  # None in an object store

    def address(self, name: str) -> str:
        """Give the URL or the path of a file."""
        return self.name + name if self.path is None else os.fspath(self.path / name)

    def names(self) -> set[str]:
        """List the files that are there."""
        if self.path is None:
            return {url.removeprefix(self.name) for url, *_ in list_objects(self.name, self.remote)}
        return {file.name for file in self.path.iterdir()} if self.path.is_dir() else set()

    def holds(self, name: str) -> bool:
        """Whether a file is there."""
        if self.path is not None:
            return (self.path / name).exists()
        try:
            head_object(self.address(name), self.remote)
        except FileNotFoundError:
            return False
        return True

    def upload(self, name: str, file: Path, *, overwrite: bool = False) -> None:
        """Put a file of this machine there, or leave the one that is there already."""
        with suppress(RemoteExistsError):
            put_object(self.address(name), file, self.remote, overwrite=overwrite)
