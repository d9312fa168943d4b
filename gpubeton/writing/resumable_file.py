"""ResumableFile: a file whose writing continues after any interruption."""

from __future__ import annotations

import base64
import errno
import json
import os
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import StorageError
from gpubeton.writing.atomic_file import WrittenFile, check_target, checked_target, is_locked, short_name
from gpubeton.writing.encoder import Task
from gpubeton.writing.file_builder import ChunkPlace, RegionSizes, SkippedSample

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

#: Bytes that are read at a time.
_BLOCK = 16 << 20


@dataclass(frozen=True)
class FinishedChunk:
    """A chunk that is in the file."""

    task: Task
    regions: RegionSizes  # with checksums
    metadata: int  # CRC-32 of its rows of metadata
    identity: str  # of the samples that it was made from, see `Source.identity`

    def to_line(self) -> bytes:
        """Make the line of the journal."""
        if self.regions.checksums is None:
            raise ValueError("a chunk without checksums: they show whether it reached the disk")
        # The keys are a file format: an interrupted conversion may be finished by another build.
        return _line(
            {
                "rows": [self.task.start, self.task.stop],
                "counts": _packed(self.regions.counts.astype("<i8")),
                "sizes": _packed(self.regions.sizes.astype("<i8")),
                "checksums": _packed(self.regions.checksums.astype("<u4")),
                "refused": [[sample.index, sample.reason] for sample in self.regions.skipped],
                "remarks": self.regions.changes,
                "metadata": self.metadata,
                "identity": self.identity,
            }
        )

    @classmethod
    def from_entry(cls, entry: dict[str, Any]) -> FinishedChunk:
        """Read the JSON of a journal's line."""
        regions = RegionSizes(
            np.frombuffer(base64.b64decode(entry["counts"]), "<i8"),
            np.frombuffer(base64.b64decode(entry["sizes"]), "<i8"),
            np.frombuffer(base64.b64decode(entry["checksums"]), "<u4"),
            tuple(SkippedSample(*sample) for sample in entry["refused"]),
            entry.get("remarks", {}),  # older journals have none
        )
        return cls(Task(*entry["rows"]), regions, entry["metadata"], entry["identity"])


class ResumableFile(WrittenFile):
    """A file that appears under its name when it is complete; until then, finished chunks survive any interruption.

    In the same folder, ``.NAME.unfinished`` holds the bytes, and ``.NAME.journal`` lists the chunks in it and their
    checksums. Nothing has to reach the disk in any order: on resuming, the journal is compared with the file.
    Both stay if the ``with`` block ends without `commit`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        key: str,
        *,
        fresh: bool = False,
        overwrite: bool = True,
        seconds_to_wait: float = 30.0,
    ) -> None:
        """Open or create the unfinished file.

        `key` identifies its content: a journal with another key, or any journal if `fresh`, is discarded. The processes
        of a killed writer hold the lock until they have finished their chunk: `seconds_to_wait` is for them.
        """
        self.path, self.overwrite = checked_target(path), overwrite
        name = short_name(self.path)
        self.temporary = self.path.with_name(f".{name}.unfinished")
        self._journal_path = self.path.with_name(f".{name}.journal")
        try:
            self._descriptor = self._open_locked(seconds_to_wait)
            self._journal = os.open(self._journal_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND, 0o666)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(error.errno, f"{self.path}: no file can be written here: {error.strerror}") from error
        entries = [] if fresh else _read_journal(self._journal_path)
        self._entries = entries[1:] if entries[:1] == [{"key": key}] else []
        self.discarded = bool(entries) and entries[0] != {"key": key}  # the journal had another key
        self._key = key
        if not overwrite and self.path.exists():  # another process has made it, while this one waited for the lock
            remove_unfinished(self.path)
            self.__exit__()
            check_target(self.path, overwrite=False)

    def __exit__(self, *exception: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            os.close(self._journal)
            self._descriptor = -1

    def finished(self) -> Iterator[FinishedChunk]:
        """List the chunks of the journal from the first row on, up to the first gap; `holds` checks each of them."""
        chunks = sorted((FinishedChunk.from_entry(each) for each in self._entries), key=lambda each: each.task.start)
        row = 0
        for chunk in chunks:
            if chunk.task.start == row:
                yield chunk
                row = chunk.task.stop

    def holds(self, chunk: FinishedChunk, place: ChunkPlace, rows: tuple[int, int]) -> bool:
        """Check by its checksums that a chunk is in the file; `rows` is the offset and the size of its metadata."""
        regions = chunk.regions
        if self.checksum(*rows) != chunk.metadata or regions.checksums is None:
            return False
        pointers = regions.pointers(place.offset).tolist()
        wanted = zip(pointers, regions.sizes.tolist(), regions.checksums.tolist(), strict=True)
        return all(self.checksum(offset, size) == checksum for offset, size, checksum in wanted)

    def begin(self, kept: list[FinishedChunk], data_end: int, unused_rows: tuple[int, int]) -> None:
        """Keep the first chunks, whose regions end at `data_end`, and empty the rest of the file.

        `unused_rows` is the offset and the size of the metadata after theirs.
        """
        os.ftruncate(self._descriptor, data_end)
        if data_end > unused_rows[0]:
            self.write(unused_rows[0], bytes(min(unused_rows[1], data_end - unused_rows[0])))
        os.ftruncate(self._journal, 0)
        self._append([_line({"key": self._key}), *(chunk.to_line() for chunk in kept)])

    def record(self, chunk: FinishedChunk) -> None:
        """Add a chunk that is in the file to the journal."""
        self._append([chunk.to_line()])

    def checksum(self, offset: int, size: int) -> int:
        """Compute the CRC-32 of a part of the file; of less where the file ends."""
        found, stop = 0, offset + size
        while offset < stop and (part := os.pread(self._descriptor, min(_BLOCK, stop - offset), offset)):
            found = zlib.crc32(part, found)
            offset += len(part)
        return found

    def _clear(self) -> None:
        self._journal_path.unlink()

    def _append(self, lines: list[bytes]) -> None:
        rest = memoryview(b"".join(lines))
        try:
            while rest:
                rest = rest[os.write(self._journal, rest) :]
        except OSError as error:
            raise StorageError(error.errno, f"{self._journal_path}: could not be written: {error.strerror}") from error

    def _open_locked(self, seconds_to_wait: float) -> int:
        while True:
            descriptor = os.open(self.temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                _lock(descriptor, self.path, seconds_to_wait)
            except BaseException:
                os.close(descriptor)
                raise
            # Its writer may have completed it and given it its name in the meantime.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), self.temporary.stat()):
                    return descriptor
            os.close(descriptor)


def _lock(descriptor: int, path: Path, seconds_to_wait: float) -> None:
    give_up = time.monotonic() + seconds_to_wait
    while is_locked(descriptor):
        if time.monotonic() > give_up:
            raise StorageError(
                errno.EWOULDBLOCK, f"{path}: another process is writing this file. Wait for it, or choose another name."
            )
        time.sleep(0.05)


def remove_unfinished(path: Path) -> None:
    """Remove what the interrupted writer of a file has left."""
    for ending in ("unfinished", "journal"):
        path.with_name(f".{short_name(path)}.{ending}").unlink(missing_ok=True)


def _packed(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")


def _line(entry: dict[str, Any]) -> bytes:
    text = json.dumps(entry).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read_journal(path: Path) -> list[dict[str, Any]]:
    """Read a journal up to the first line that did not reach the disk completely."""
    entries: list[dict[str, Any]] = []
    with path.open("rb") as file:
        for line in file:
            text = line[9:].rstrip(b"\n")
            if not line.endswith(b"\n") or line[:8] != b"%08x" % zlib.crc32(text):
                break
            entries.append(json.loads(text))
    return entries
