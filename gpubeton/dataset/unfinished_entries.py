"""Entry points that were found so far, in a file that survives any interruption."""

from __future__ import annotations

import os
import zlib
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpubeton._bytes import open_descriptor, read_at
from gpubeton._writing import find_all, is_locked, short_name, write_at
from gpubeton.errors import StorageError
from gpubeton.format.entry_points import EntryBlock, identity_of
from gpubeton.format.layout import ENTRY_DTYPE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from typing_extensions import Self

    from gpubeton._bytes import Progress
    from gpubeton.format import Index

__all__ = ["EntryRecord", "UnfinishedEntries", "unfinished_path"]

_RECORD_DTYPE = np.dtype(
    [("part", "<u4"), ("images", "<u4"), ("entries", "<u8"), ("checksum", "<u4"), ("zeros", "<u4")]
)


def unfinished_path(target: Path) -> Path:
    """Name the file with the entry points that were found so far."""
    # Not .unfinished: a long name is cut, so that a conversion's unfinished file would have the same one.
    return target.with_name(f".{short_name(target)}.entries")


class EntryRecord(NamedTuple):
    """The entry points of some images."""

    part: int
    block: EntryBlock
    checksums: NDArray[np.uint32]  # (N,) CRC-32 of the images; 0 if they were not asked for
    stop: int  # where it ends in the file

    def to_bytes(self) -> bytes:
        """Give what the file holds of it."""
        block = self.block
        content = block.counts.astype("<u4").tobytes() + block.seals.tobytes() + self.checksums.tobytes()
        content += block.entries.tobytes()
        header = np.array([(self.part, len(block.counts), len(block.entries), 0, 0)], _RECORD_DTYPE)
        header["checksum"] = zlib.crc32(content, zlib.crc32(header.tobytes()[:16]))
        return header.tobytes() + content


class UnfinishedEntries:
    """The entry points that were found so far, in ``.NAME.entries``; they survive any interruption."""

    # After the identity of the images, it has a record for some images at a time: a header, the number of entries, the
    # seal and the checksum of each image, and the entries. A part is a field of one of the files.

    def __init__(
        self, target: Path, index: Index, names: list[str], version: int, *, with_checksums: bool = False
    ) -> None:
        self._target, self.path = target, unfinished_path(target)
        self._index, self._with_checksums = index, with_checksums
        self.parts = [(file, name) for file in range(len(index.files)) for name in names]
        # With the time of the last change: checksums are those of the bytes at the end.
        key = blake2b(repr([file.identity for file in index.files]).encode(), digest_size=16)
        for file, name in self.parts:
            key.update(name.encode() + identity_of(index, name, file, version))
        self._key = key.digest()
        try:
            self._descriptor = open_descriptor(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StorageError(error.errno, f"{self._target}: no file can be written here: {error.strerror}") from error

    def __enter__(self) -> Self:
        if is_locked(self._descriptor):
            os.close(self._descriptor)
            raise StorageError(f"{self._target}: another process is writing this file. Wait for it.")
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._descriptor)

    def find(self, num_workers: int, on_progress: Progress) -> int:
        """Find the missing entry points; return the number of images of this call."""
        if read_at(self._descriptor, len(self._key), 0) != self._key:
            os.ftruncate(self._descriptor, 0)
            write_at(self._descriptor, 0, self._key, self.path)
        done, end = [0] * len(self.parts), len(self._key)
        for record in self.records():
            done[record.part] += len(record.block.counts)
            end = record.stop
        os.ftruncate(self._descriptor, end)
        index, resumed = self._index, sum(done)
        total = sum(index.files[file].num_samples for file, _ in self.parts)
        on_progress(resumed, total)
        finished = resumed
        for part, (file, name) in enumerate(self.parts):
            identity = index.files[file].identity
            for block, checksums in find_all(
                index, name, file, num_workers, done[part], identity, with_checksums=self._with_checksums
            ):
                content = EntryRecord(part, block, checksums.astype(np.uint32), 0).to_bytes()
                write_at(self._descriptor, end, content, self.path)
                end += len(content)
                finished += len(block.counts)
                on_progress(finished, total)
        return finished - resumed

    def records(self) -> Iterator[EntryRecord]:
        """Read the records in their order, up to the first that is not complete."""
        position = len(self._key)
        while len(header := read_at(self._descriptor, _RECORD_DTYPE.itemsize, position)) == _RECORD_DTYPE.itemsize:
            row = np.frombuffer(header, _RECORD_DTYPE)[0]
            part, images, entries = int(row["part"]), int(row["images"]), int(row["entries"])
            size = 12 * images + ENTRY_DTYPE.itemsize * entries
            if part >= len(self.parts) or size > os.fstat(self._descriptor).st_size:
                return
            content = read_at(self._descriptor, size, position + len(header))
            if len(content) < size or zlib.crc32(content, zlib.crc32(header[:16])) != row["checksum"]:
                return
            counts, seals, checksums = np.frombuffer(content[: 12 * images], "<u4").reshape(3, -1)
            first = np.concatenate([np.zeros(1, np.uint64), np.cumsum(counts, dtype=np.uint64)])
            position += len(header) + size
            block = EntryBlock(first, seals, np.frombuffer(content[12 * images :], ENTRY_DTYPE))
            yield EntryRecord(part, block, checksums, position)
