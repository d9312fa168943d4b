"""Targets: files that appear under their names when they are complete, on this machine or in an object store."""

from __future__ import annotations

import base64
import errno
import json
import os
import platform
import re
import secrets
import stat
import sys
import time
import zlib
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.local_file import lock_file, open_descriptor, read_at, write_all
from gpubeton._bytes.object_store import head_object, list_objects, put_object
from gpubeton._writing.chunks import ChunkPlace, RegionSizes, SkippedRow
from gpubeton.errors import OptionError, RemoteExistsError, StorageError
from gpubeton.format.entry_layout import remove_index
from gpubeton.format.layout import HEADER_DTYPE, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer, Self

    from gpubeton._bytes.store_client import RemoteOptions


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

    def checksum(self, offset: int, size: int, checksum: int = 0) -> int:
        """Compute the CRC-32 of a part of the file, after bytes with that `checksum`; of less where the file ends."""
        stop = offset + size
        while offset < stop and (block := read_at(self._descriptor, min(_BLOCK, stop - offset), offset)):
            checksum = zlib.crc32(block, checksum)
            offset += len(block)
        return checksum

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
            if hasattr(os, "O_DIRECTORY"):  # Windows opens no folders
                folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
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
            same_name, any_name = re.escape(self._prefix) + "[0-9a-f]{16}", rf"\..+\.{_system()}[0-9a-f]{{8}}"
            pattern = re.compile(rf"({same_name}|{any_name})\.partial", re.DOTALL)
            for leftover in filter(lambda entry: pattern.fullmatch(entry.name), os.scandir(self.path.parent)):
                remove_if_abandoned(Path(leftover))
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
    try:
        write_all(descriptor, content, offset)
    except OSError as error:
        raise StorageError(
            error.errno,
            f"{os.fspath(path)}: {memoryview(content).nbytes} bytes could not be written at {offset}: "
            f"{error.strerror}. No new file appears under this name, and an older file is unchanged.",
        ) from error


def is_locked(descriptor: int) -> bool:
    """Whether another process has locked a file; if not, lock it until it is closed here and in forked processes."""
    try:
        lock_file(descriptor)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks; `remove_if_abandoned` removes nothing there either
    return False


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
        lock_file(descriptor)
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


#: Bytes that are read at a time.
_BLOCK = 16 << 20
#: Bytes of a sample's identity.
_IDENTITY = 16
#: Arrays of a chunk in the journal.
_COLUMNS = ("counts", "<i8"), ("sizes", "<i8"), ("checksums", "<u4")
_JOURNAL_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND


@dataclass(frozen=True)
class FinishedChunk:
    """A chunk that is in the file."""

    task: range  # its rows
    regions: RegionSizes  # with checksums
    metadata: int  # CRC-32 of its rows of metadata
    identities: tuple[bytes, ...]  # 16 bytes for each sample that it was made from, also for those left out

    def to_line(self) -> bytes:
        """Make the line of the journal."""
        if self.regions.checksums is None:
            raise ValueError("a chunk without checksums: they show whether it reached the disk")
        # The keys are a file format: an interrupted conversion may be finished by another build.
        return _line(
            {
                "rows": [self.task.start, self.task.stop],
                **{key: _packed(getattr(self.regions, key).astype(dtype).tobytes()) for key, dtype in _COLUMNS},
                "skipped": [[sample.row, sample.reason] for sample in self.regions.skipped],
                "changes": self.regions.changes,
                "metadata": self.metadata,
                "identities": _packed(b"".join(self.identities)),
            }
        )

    @classmethod
    def from_entry(cls, entry: dict[str, Any]) -> FinishedChunk:
        """Read the JSON of a journal's line."""
        counts, sizes, checksums = (np.frombuffer(base64.b64decode(entry[key]), dtype) for key, dtype in _COLUMNS)
        skipped = tuple(SkippedRow(*sample) for sample in entry["skipped"])
        regions = RegionSizes(counts, sizes, checksums, skipped, entry["changes"])
        identities = base64.b64decode(entry["identities"])
        starts = range(0, len(identities), _IDENTITY)
        samples = tuple(identities[start : start + _IDENTITY] for start in starts)
        return cls(range(*entry["rows"]), regions, entry["metadata"], samples)


class ResumableFile(WrittenFile):
    """A file that appears under its name when it is complete; until then, finished chunks survive any interruption."""

    # In the same folder, ``.NAME.unfinished`` holds the bytes, and ``.NAME.journal`` lists the chunks in it and their
    # checksums. Nothing has to reach the disk in any order: on resuming, the journal is compared with the file. Both
    # stay if the ``with`` block ends without `commit`.

    def __init__(
        self,
        path: str | os.PathLike[str],
        key: str,
        *,
        fresh: bool = False,
        overwrite: bool = True,
        seconds_to_wait: float = 30.0,
    ) -> None:
        """Open or create the unfinished file."""
        # `key` identifies how samples are encoded, and how many there are: a journal with another key, or any if
        # `fresh`, is discarded. The processes of a killed writer hold the lock until they have finished their chunk:
        # `seconds_to_wait` is for them.
        self.path, self.overwrite = resolve_target(path), overwrite
        name = short_name(self.path)
        self.temporary = self.path.with_name(f".{name}.unfinished")
        self._journal_path = self.path.with_name(f".{name}.journal")
        self._new_journal_path = self.path.with_name(f".{name}.journal.new")
        try:
            self._descriptor = self._open_locked(seconds_to_wait)
            self._journal = open_descriptor(self._journal_path, _JOURNAL_FLAGS)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(error.errno, f"{self.path}: no file can be written here: {error.strerror}") from error
        self._key = key
        entries = [] if fresh else _read_journal(self._journal_path)
        self.has_other_key = bool(entries) and entries[0].get("key") != key
        # Chunks from the first row on, up to the first gap; `holds` checks each.
        self.finished = [] if self.has_other_key else _first_chunks(entries[1:])
        if not overwrite and self.path.exists():  # another process has made it, while this one waited for the lock
            _remove_unfinished(self.path)
            self.__exit__()
            check_target(self.path, overwrite=False)

    def __exit__(self, *exception: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            os.close(self._journal)
            self._descriptor = -1

    def holds(self, chunk: FinishedChunk, place: ChunkPlace, rows: tuple[int, int]) -> bool:
        """Check by its checksums that a chunk is in the file; `rows` is the offset and the size of its metadata."""
        regions = chunk.regions
        if self.checksum(*rows) != chunk.metadata or regions.checksums is None:
            return False
        pointers = regions.pointers(place.offset).tolist()
        expected = zip(pointers, regions.sizes.tolist(), regions.checksums.tolist(), strict=True)
        return all(self.checksum(offset, size) == checksum for offset, size, checksum in expected)

    def begin(self, chunks: list[FinishedChunk], data_end: int, unused: tuple[int, int]) -> None:
        """Keep the first chunks, whose regions end at `data_end`, and empty the rest of the file."""
        # `unused` is the offset and the size of the part after their metadata and before the first page.
        os.ftruncate(self._descriptor, data_end)
        if data_end > unused[0]:
            self.write(unused[0], bytes(min(unused[1], data_end - unused[0])))
        # Under another name first: an interruption, or a full disk, leaves the older journal.
        older, journal, self._journal_path = self._journal, self._journal_path, self._new_journal_path
        self._journal = os.open(self._journal_path, _JOURNAL_FLAGS | os.O_TRUNC, 0o666)
        os.close(older)
        self._append([_line({"key": self._key}), *(chunk.to_line() for chunk in chunks)])
        self._journal_path = self._journal_path.replace(journal)

    def record(self, chunk: FinishedChunk) -> None:
        """Add a chunk that is in the file to the journal."""
        self._append([chunk.to_line()])

    def _clear(self) -> None:
        _remove_unfinished(self.path)

    def _append(self, lines: list[bytes]) -> None:
        rest = memoryview(b"".join(lines))
        try:
            while rest:
                rest = rest[os.write(self._journal, rest) :]
        except OSError as error:
            raise StorageError(error.errno, f"{self._journal_path}: could not be written: {error.strerror}") from error

    def _open_locked(self, seconds_to_wait: float) -> int:
        deadline = time.monotonic() + seconds_to_wait
        while True:
            descriptor = open_descriptor(self.temporary, os.O_RDWR | os.O_CREAT)
            try:
                while is_locked(descriptor):
                    if time.monotonic() > deadline:
                        what = "another process is writing this file. Wait for it, or choose another name."
                        raise StorageError(errno.EWOULDBLOCK, f"{self.path}: {what}")
                    time.sleep(0.05)
            except BaseException:
                os.close(descriptor)
                raise
            # Its writer may have completed it and given it its name in the meantime.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), self.temporary.stat()):
                    return descriptor
            os.close(descriptor)


def _remove_unfinished(path: Path) -> None:
    """Remove what the interrupted writers of a file have left."""
    for ending in ("unfinished", "journal", "journal.new"):
        path.with_name(f".{short_name(path)}.{ending}").unlink(missing_ok=True)


def _first_chunks(entries: list[dict[str, Any]]) -> list[FinishedChunk]:
    """Sort the chunks of a journal, and leave out those after a gap."""
    chunks: list[FinishedChunk] = []
    row = 0
    for chunk in sorted(map(FinishedChunk.from_entry, entries), key=lambda chunk: chunk.task.start):
        if chunk.task.start == row:
            chunks.append(chunk)
            row = chunk.task.stop
    return chunks


def _packed(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _line(entry: dict[str, Any]) -> bytes:
    text = json.dumps(entry).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read_journal(path: Path) -> list[dict[str, Any]]:
    """Read a journal up to the first line that did not reach the disk completely."""
    entries: list[dict[str, Any]] = []
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            text = line[9:].rstrip(b"\n")
            if not line.endswith(b"\n") or line[:8] != b"%08x" % zlib.crc32(text):
                break
            entries.append(json.loads(text))
    return entries
