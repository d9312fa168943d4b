"""ResumableFile: a file whose writing can be interrupted by anything, and gone on with."""

from __future__ import annotations

import base64
import errno
import json
import os
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import StorageError
from gpubeton.writing.atomic_file import is_locked, sync_folder, write_at
from gpubeton.writing.extent import Extent, Refusal
from gpubeton.writing.tasks import Placed, Task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from numpy.typing import NDArray
    from typing_extensions import Buffer, Self

__all__ = ["Finished", "ResumableFile"]

#: Bytes that are read at a time.
_PART = 16 << 20

#: How long the processes of a killed writer may take to notice: no longer than for the chunk that they have in hand.
_SECONDS_TO_WAIT = 30.0


@dataclass(frozen=True)
class Finished:
    """A chunk that is in the file.

    Parameters
    ----------
    task : Task
        Which samples.
    extent : Extent
        Sizes and checksums of their regions.
    metadata : int
        CRC-32 of their rows of metadata.
    identity : str
        What the samples were made from, see `Source.identity`.
    """

    task: Task
    extent: Extent
    metadata: int
    identity: str

    def to_line(self) -> bytes:
        """Give the line of the journal.

        Returns
        -------
        bytes
            A checksum and JSON, with a line's end.
        """
        if self.extent.checksums is None:
            raise ValueError("without checksums nobody can tell whether a chunk reached the disk")
        entry = {
            "rows": [self.task.start, self.task.stop],
            "counts": _packed(self.extent.counts.astype("<i8")),
            "sizes": _packed(self.extent.sizes.astype("<i8")),
            "checksums": _packed(self.extent.checksums.astype("<u4")),
            "refused": [[refusal.index, refusal.reason] for refusal in self.extent.refused],
            "remarks": self.extent.remarks,
            "metadata": self.metadata,
            "identity": self.identity,
        }
        return _line(entry)

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Finished:
        """Read what `to_line` gave.

        Parameters
        ----------
        entry : dict
            The JSON.

        Returns
        -------
        Finished
            The chunk.
        """
        extent = Extent(
            np.frombuffer(base64.b64decode(entry["counts"]), "<i8"),
            np.frombuffer(base64.b64decode(entry["sizes"]), "<i8"),
            np.frombuffer(base64.b64decode(entry["checksums"]), "<u4"),
            tuple(Refusal(*refusal) for refusal in entry["refused"]),
            entry.get("remarks", {}),  # older journals have none
        )
        return cls(Task(*entry["rows"]), extent, entry["metadata"], entry["identity"])


class ResumableFile:
    """A file that appears under its name when it is whole; until then, what is finished stays, whatever happens.

    It stands beside its name as ``.NAME.unfinished``, with ``.NAME.journal``, which names the chunks that are in it
    and their checksums. Nothing has to reach the disk in any order: what a journal promises is compared with the file
    when it is gone on with. In a ``with`` block; both stay if it ends without `commit`.

    Parameters
    ----------
    path : str or path
        The name. A symbolic link is followed.
    key : str
        What the file is to hold. A journal with another key belongs to another file, and is thrown away.
    fresh : bool
        Whether anything that is there is thrown away.

    Attributes
    ----------
    temporary : Path
        Where it stands until it is whole.

    Raises
    ------
    StorageError
        If nothing can be created there, or another process is writing it.
    """

    def __init__(self, path: str | os.PathLike[str], key: str, *, fresh: bool = False) -> None:
        self.path = Path(os.path.realpath(path))
        if self.path.is_dir():
            raise StorageError(errno.EISDIR, f"{self.path}: is a folder; expected the name of a file, such as x.beton")
        name = os.fsdecode(os.fsencode(self.path.name)[:200])
        self.temporary = self.path.with_name(f".{name}.unfinished")
        self._journal_path = self.path.with_name(f".{name}.journal")
        try:
            self._descriptor = self._open_locked()
            self._journal = os.open(self._journal_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND, 0o666)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(error.errno, f"{self.path}: no file can be written here: {error.strerror}") from error
        entries = [] if fresh else _read_journal(self._journal_path)
        self._entries = entries[1:] if entries[:1] == [{"key": key}] else []
        self.begins_anew = bool(entries) and not self._entries and entries[0] != {"key": key}
        self._key = key

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            os.close(self._journal)
            self._descriptor = -1

    def finished(self) -> Iterator[Finished]:
        """List the chunks that the journal names, from the first row on, without a gap.

        Yields
        ------
        Finished
            The next chunk. Whether it is really there, `holds` tells.
        """
        chunks = sorted((Finished.of(entry) for entry in self._entries), key=lambda chunk: chunk.task.start)
        row = 0
        for chunk in chunks:
            if chunk.task.start == row:
                yield chunk
                row = chunk.task.stop

    def holds(self, chunk: Finished, placed: Placed, rows: tuple[int, int]) -> bool:
        """Tell whether a chunk is in the file, by its checksums.

        Parameters
        ----------
        chunk : Finished
            The chunk.
        placed : Placed
            Where it is to be.
        rows : tuple of int
            Where its metadata begins, and its bytes.

        Returns
        -------
        bool
            Whether every byte is there.
        """
        if self.checksum(*rows) != chunk.metadata or chunk.extent.checksums is None:
            return False
        pointers = chunk.extent.pointers(placed.offset).tolist()
        wanted = zip(pointers, chunk.extent.sizes.tolist(), chunk.extent.checksums.tolist(), strict=True)
        return all(self.checksum(offset, size) == checksum for offset, size, checksum in wanted)

    def begin(self, kept: list[Finished], data_end: int, unused_rows: tuple[int, int]) -> None:
        """Keep some of the finished chunks, and make the rest of the file empty.

        Parameters
        ----------
        kept : list of Finished
            Those that are to stay; the first ones.
        data_end : int
            Where their regions end; 0 without any.
        unused_rows : tuple of int
            Where the metadata behind theirs begins, and its bytes.
        """
        os.ftruncate(self._descriptor, data_end)
        if data_end > unused_rows[0]:
            self.write(unused_rows[0], bytes(min(unused_rows[1], data_end - unused_rows[0])))
        os.ftruncate(self._journal, 0)
        lines = [_line({"key": self._key}), *(chunk.to_line() for chunk in kept)]
        write_journal(self._journal, b"".join(lines), self._journal_path)

    def note(self, chunk: Finished) -> None:
        """Put a chunk that is in the file into the journal.

        Parameters
        ----------
        chunk : Finished
            The chunk.
        """
        write_journal(self._journal, chunk.to_line(), self._journal_path)

    def checksum(self, offset: int, size: int) -> int:
        """Compute the CRC-32 of a part of the file.

        Parameters
        ----------
        offset, size : int
            The part.

        Returns
        -------
        int
            Its checksum, of what is there of it.
        """
        found, stop = 0, offset + size
        while offset < stop and (part := os.pread(self._descriptor, min(_PART, stop - offset), offset)):
            found = zlib.crc32(part, found)
            offset += len(part)
        return found

    def write(self, offset: int, content: Buffer) -> None:
        """Write bytes at a place.

        Parameters
        ----------
        offset : int
            Where.
        content : bytes-like
            The bytes, all of which are written.

        Raises
        ------
        StorageError
            If they cannot be.
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
            self._journal_path.unlink()
            sync_folder(self.path.parent)
        except OSError as error:
            raise StorageError(error.errno, f"{self.path}: could not be completed: {error.strerror}") from error

    def _open_locked(self) -> int:
        while True:
            descriptor = os.open(self.temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                _lock(descriptor, self.path)
            except BaseException:
                os.close(descriptor)
                raise
            # Meanwhile its writer may have completed it and given it its name.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), self.temporary.stat()):
                    return descriptor
            os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    """Lock a file; its lock may for a moment be held by the processes of a writer that was killed."""
    give_up = time.monotonic() + _SECONDS_TO_WAIT
    while is_locked(descriptor):
        if time.monotonic() > give_up:
            raise StorageError(
                errno.EWOULDBLOCK, f"{path}: another process is writing this file. Wait for it, or choose another name."
            )
        time.sleep(0.05)


def write_journal(descriptor: int, lines: bytes, path: Path) -> None:
    """Append lines to a journal.

    Parameters
    ----------
    descriptor : int
        The journal, open for appending.
    lines : bytes
        Whole lines.
    path : Path
        Named in errors.

    Raises
    ------
    StorageError
        If they cannot be written.
    """
    rest = memoryview(lines)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError as error:
        raise StorageError(error.errno, f"{path}: could not be written: {error.strerror}") from error


def _packed(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")


def _line(entry: dict[str, Any]) -> bytes:
    text = json.dumps(entry).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read_journal(path: Path) -> list[dict[str, Any]]:
    """Read a journal up to the first line that did not reach the disk as it was."""
    entries: list[dict[str, Any]] = []
    with path.open("rb") as file:
        for line in file:
            text = line[9:].rstrip(b"\n")
            if not line.endswith(b"\n") or line[:8] != b"%08x" % zlib.crc32(text):
                break
            entries.append(json.loads(text))
    return entries
