"""VerifiedFile: a remote file whose regions are compared with their checksums as they arrive."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import RemoteDamagedError
from gpubeton.files.byte_source import ByteSource, SourceIdentity
from gpubeton.files.store_client import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self


@dataclass(frozen=True)
class Checksums:
    """The regions of a file, in its order; those without bytes are left out."""

    start: NDArray[np.uint64]  # (R,)
    stop: NDArray[np.uint64]  # (R,)
    sample: NDArray[np.uint64]  # (R,) in this file
    crc: NDArray[np.uint32]  # (R,)


class VerifiedFile(ByteSource):
    """Another source, whose regions are compared with their checksums whenever bytes of them are read."""

    def __init__(self, source: ByteSource, checksums: Checksums) -> None:
        super().__init__(source.name, source.size)
        self.num_readers = source.num_readers
        self._source, self._checksums = source, checksums

    @classmethod
    def open(cls, name: str, size: int, *, is_random: bool) -> Self:  # noqa: ARG003  it never opens
        raise TypeError(f"{name}: a VerifiedFile is made around an open source")

    @classmethod
    def find_identity(cls, name: str) -> SourceIdentity:
        raise TypeError(f"{name}: ask the source that a VerifiedFile is made around")

    def identity(self) -> SourceIdentity:
        return self._source.identity()

    def load(self, start: int, size: int) -> memoryview:
        # Whole regions: a checksum is that of all bytes.
        sums, stop = self._checksums, start + size
        # Of their type: for other numbers NumPy would convert the whole column.
        first = np.searchsorted(sums.stop, np.uint64(start), "right")
        rows = range(int(first), int(np.searchsorted(sums.start, np.uint64(stop))))
        begin = min(start, int(sums.start[rows[0]])) if rows else start
        end = max(stop, int(sums.stop[rows[-1]])) if rows else stop
        content = self._source.load(begin, end - begin)
        if self._find_damage(rows, content, begin) is not None:
            content = self._source.load(begin, end - begin)  # damaged on its way, as a rule
            if (damaged := self._find_damage(rows, content, begin)) is not None:
                raise self._describe(damaged, content, begin)
        return content[start - begin : stop - begin]

    def read_into(self, start: int, target: memoryview) -> int:
        size = max(0, min(len(target), self.size - start))
        target[:size] = self.load(start, size)
        return size

    def interrupt(self) -> None:
        self._source.interrupt()

    def close(self) -> None:
        self._source.close()

    def _find_damage(self, rows: range, content: memoryview, start: int) -> int | None:
        """Find the first of some regions that has another checksum."""
        sums = self._checksums
        for row in rows:
            part = content[int(sums.start[row]) - start : int(sums.stop[row]) - start]
            if zlib.crc32(part) != sums.crc[row]:
                return row
        return None

    def _describe(self, row: int, content: memoryview, start: int) -> RemoteDamagedError:
        begin, end = int(self._checksums.start[row]), int(self._checksums.stop[row])
        return RemoteDamagedError(
            f"{shown(self.name)}: sample {self._checksums.sample[row]}, bytes {begin} to {end} have the CRC-32 "
            f"{zlib.crc32(content[begin - start : end - start]):08x} in two answers of the store, expected "
            f"{self._checksums.crc[row]:08x}. The object is damaged, or a cache before it: run gpubeton verify "
            f"{shown(self.name)}, and upload the file again."
        )
