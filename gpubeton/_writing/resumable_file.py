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

from gpubeton._bytes.descriptors import open_descriptor, read_at
from gpubeton._writing.encoder import Task
from gpubeton._writing.file_builder import ChunkPlace, RegionSizes, SkippedRow
from gpubeton._writing.targets import WrittenFile, check_target, is_locked, resolve_target, short_name
from gpubeton.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

#: Bytes that are read at a time.
_BLOCK = 16 << 20
#: Bytes of a sample's identity.
_IDENTITY = 16
_JOURNAL_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND


@dataclass(frozen=True)
class FinishedChunk:
    """A chunk that is in the file."""

    task: Task
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
                "counts": _packed(self.regions.counts.astype("<i8")),
                "sizes": _packed(self.regions.sizes.astype("<i8")),
                "checksums": _packed(self.regions.checksums.astype("<u4")),
                "skipped": [[sample.row, sample.reason] for sample in self.regions.skipped],
                "changes": self.regions.changes,
                "metadata": self.metadata,
                "identities": base64.b64encode(b"".join(self.identities)).decode("ascii"),
            }
        )

    @classmethod
    def from_entry(cls, entry: dict[str, Any]) -> FinishedChunk:
        """Read the JSON of a journal's line."""
        regions = RegionSizes(
            np.frombuffer(base64.b64decode(entry["counts"]), "<i8"),
            np.frombuffer(base64.b64decode(entry["sizes"]), "<i8"),
            np.frombuffer(base64.b64decode(entry["checksums"]), "<u4"),
            tuple(SkippedRow(*sample) for sample in entry["skipped"]),
            entry["changes"],
        )
        identities = base64.b64decode(entry["identities"])
        starts = range(0, len(identities), _IDENTITY)
        samples = tuple(identities[start : start + _IDENTITY] for start in starts)
        return cls(Task(*entry["rows"]), regions, entry["metadata"], samples)


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

    def checksum(self, offset: int, size: int) -> int:
        """Compute the CRC-32 of a part of the file; of less where the file ends."""
        checksum, stop = 0, offset + size
        while offset < stop and (block := read_at(self._descriptor, min(_BLOCK, stop - offset), offset)):
            checksum = zlib.crc32(block, checksum)
            offset += len(block)
        return checksum

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
        while True:
            descriptor = open_descriptor(self.temporary, os.O_RDWR | os.O_CREAT)
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


def _packed(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")


def _line(entry: dict[str, Any]) -> bytes:
    text = json.dumps(entry).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read_journal(path: Path) -> list[dict[str, Any]]:
    """Read a journal up to the first line that did not reach the disk completely."""
    entries: list[dict[str, Any]] = []
    if not path.exists():
        return entries
    with path.open("rb") as file:
        for line in file:
            text = line[9:].rstrip(b"\n")
            if not line.endswith(b"\n") or line[:8] != b"%08x" % zlib.crc32(text):
                break
            entries.append(json.loads(text))
    return entries
