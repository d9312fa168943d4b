"""SmallReads: the headers of an archive, wherever it is."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpubeton._bytes.byte_source import ByteSource

#: Bytes of a block, and of one that follows soon after the last: then images are small, and many fit into it.
_BLOCK, _LONG = 64 << 10, 1 << 20


class SmallReads(io.RawIOBase):
    """Small parts of a file, in ascending order as a rule: of its map, or of blocks, so that few requests are made."""

    def __init__(self, source: ByteSource) -> None:
        self.name, self.size = source.name, source.size
        self._source, self._start, self._position = source, 0, 0
        self._block = memoryview(b"")
        if source.is_mappable and source.size:
            self._block = memoryview(source.map().data)

    def at(self, start: int, size: int) -> bytes:
        """Give the bytes from `start` on, fewer where the file ends."""
        place = start - self._start
        if place < 0 or place + size > len(self._block):
            is_near = 0 <= place - len(self._block) <= self._source.max_gap and len(self._block) > 0
            self._start, place = start, 0
            count = max(0, min(max(size, _LONG if is_near else _BLOCK), self.size - start))
            self._block = self._source.load(start, count)
        return bytes(self._block[place : place + size])

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position."""
        self._position = offset + (0, self._position, self.size)[whence]
        if self._position < 0:
            raise ValueError(f"a position of {self._position}; expected at least 0")
        return self._position

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]  # the base class has no types of buffers
        """Read from the position on."""
        content = self.at(self._position, min(len(target), max(0, self.size - self._position)))
        target[: len(content)] = content
        self._position += len(content)
        return len(content)
