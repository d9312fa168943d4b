"""Notes: how a file was made, stored where FFCV does not look.

They follow the last page, right before the allocation table, where a file of FFCV has nothing. FFCV finds everything by
the table and by pointers into the pages, and never reads the bytes between them.

::

    checksums   4 bytes each: CRC-32 of each region, in the order of the allocation table, then that of the descriptors
                and the metadata; all or the last one may be missing
    content     JSON, UTF-8, filled up with spaces to a multiple of 8 bytes
    trailer     32 bytes: "gpubeton", version (4), CRC-32 of the two above (4), bytes of the content (8),
                number of checksums (8)
    allocation table
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.open_files import open_bytes
from gpubeton._bytes.store_client import shown
from gpubeton.errors import NotesError
from gpubeton.format.header import header_of
from gpubeton.format.layout import ALLOCATION_DTYPE

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
    from gpubeton.format.header import Header

MOST_LEVELS = 100
"""Lists and mappings within each other that are shown or copied. Python's own limit depends on who calls."""

#: Flips all bits of a checksum. `gpubeton index` stores it so for a damaged image: loaders find that it differs.
DAMAGED = 0xFFFFFFFF

_MAGIC = b"gpubeton"
_VERSION = 1
_TRAILER_DTYPE = np.dtype(
    [("magic", "S8"), ("version", "<u4"), ("checksum", "<u4"), ("content_size", "<u8"), ("num_checksums", "<u8")]
)


@dataclass(frozen=True)
class Notes:
    """How a file was made. Made by `read_notes`."""

    content: Mapping[str, Any]  #: whatever JSON can hold; ``class_names`` is a list of str, if there are classes
    #: (R,) CRC-32 of each region, in the order of the file's allocation table, whose rows are sorted by pointer then.
    checksums: NDArray[np.uint32] | None = None
    metadata_checksum: int | None = None  #: CRC-32 of the descriptors and the metadata

    @property
    def class_names(self) -> tuple[str, ...] | None:
        r"""Names of the classes, whose position is the label; None if the notes name none.

        JSON can hold half of a surrogate pair, which no encoding takes: it becomes its escape, such as ``\ud800``.
        """
        names = self.content.get("class_names")
        if not isinstance(names, list | tuple):
            return None
        return tuple(str(name).encode("utf-8", "backslashreplace").decode("utf-8") for name in names)

    def to_bytes(self) -> bytes:
        """Encode the notes as the file stores them.

        Returns
        -------
        bytes
            A multiple of 4 of them. TypeError if JSON cannot hold the content.
        """
        # The replacement for a lone surrogate, from a file name that is not UTF-8, is what JSON writes for it.
        text = json.dumps(self.content, ensure_ascii=False, sort_keys=True).encode("utf-8", "backslashreplace")
        text += b" " * (-len(text) % 8)
        sums = np.empty(0, "<u4") if self.checksums is None else self.checksums.astype("<u4")
        if self.metadata_checksum is not None:
            sums = np.append(sums, np.array([self.metadata_checksum], "<u4"))
        body = sums.tobytes() + text
        trailer = np.array([(_MAGIC, _VERSION, zlib.crc32(body), len(text), len(sums))], _TRAILER_DTYPE)
        return body + trailer.tobytes()


def read_notes(path: str | os.PathLike[str], identity: SourceIdentity | None = None) -> Notes | None:
    """Read the notes of a ``.beton`` file.

    Parameters
    ----------
    path : str or path
        The file.
    identity : SourceIdentity, optional
        Identity of the file when its index was read; by default it may be any file.

    Returns
    -------
    Notes or None
        None if it has none, as files of FFCV's.

    Raises
    ------
    NotesError
        If they are damaged, or of a newer version.
    StorageError
        If the file has another identity.

    Examples
    --------
    >>> from gpubeton.dataset import convert, open_source
    >>> _ = convert(open_source("train"), "noted.beton", num_workers=1)
    >>> read_notes("noted.beton").class_names
    ('class_0', 'class_1', 'class_2')
    """
    with open_bytes(path, identity) as source:
        return notes_of(source)


def notes_of(source: ByteSource) -> Notes | None:
    """Read the notes of an open file; None if it has none."""
    header = header_of(source)
    rows = (source.size - header.alloc_table_ptr) // ALLOCATION_DTYPE.itemsize
    return notes_before(source, header.metadata_offset, header.alloc_table_ptr, rows)


def notes_before(source: ByteSource, first: int, stop: int, rows: int) -> Notes | None:
    """Read the notes, of a file with so many regions, that end at `stop` and begin at `first` or later."""
    name, end, size = shown(source.name), stop - _TRAILER_DTYPE.itemsize, _TRAILER_DTYPE.itemsize
    content = source.read(end, size) if first <= end <= source.size - size else b""
    trailer = decode_trailer(content, _MAGIC, _TRAILER_DTYPE)
    if trailer is None:
        return None
    version, content_size, num_checksums = (int(trailer[key]) for key in ("version", "content_size", "num_checksums"))
    if version != _VERSION:
        raise NotesError(
            f"{name}: the notes before the allocation table are of version {version}, expected {_VERSION}. "
            "They need a newer version of this library; the samples do not."
        )
    size = content_size + 4 * num_checksums
    if size > end - first or num_checksums not in (0, rows, rows + 1):
        raise NotesError(
            f"{name}: the notes before the allocation table claim {content_size} bytes and {num_checksums} "
            f"checksums for {rows} regions. They are damaged; compare the file with the original."
        )
    body = source.read(end - size, size)
    if zlib.crc32(body) != int(trailer["checksum"]):
        raise NotesError(
            f"{name}: the notes before the allocation table have the checksum {zlib.crc32(body):08x}, expected "
            f"{int(trailer['checksum']):08x}. They are damaged; compare the file with the original."
        )
    try:
        notes = json.loads(body[4 * num_checksums :])
    except (ValueError, RecursionError) as error:
        raise NotesError(f"{name}: the notes before the allocation table are no JSON: {error}") from error
    if not isinstance(notes, dict):
        raise NotesError(f"{name}: the notes before the allocation table hold a {type(notes).__name__}, not a mapping")
    if (levels := nesting(notes)) > MOST_LEVELS:
        raise NotesError(
            f"{name}: the notes before the allocation table are nested {levels} levels deep, expected at most "
            f"{MOST_LEVELS}. The samples do not need them; compare the file with the original."
        )
    sums = np.frombuffer(body, "<u4", num_checksums)
    of_metadata = int(sums[rows]) if num_checksums > rows else None
    return Notes(notes, sums[:rows] if rows and num_checksums else None, of_metadata)


def decode_trailer(content: bytes, magic: bytes, dtype: np.dtype[np.void]) -> np.void | None:
    """Decode the trailer of notes or of entry points; None if these bytes are none."""
    if len(content) < dtype.itemsize or not content.startswith(magic):
        return None
    row: np.void = np.frombuffer(content, dtype)[0]
    return row


def notes_size(content: bytes) -> int:
    """Give the bytes of the notes that end with `content`; 0 if it is the end of something else."""
    trailer = decode_trailer(content[-_TRAILER_DTYPE.itemsize :], _MAGIC, _TRAILER_DTYPE)
    if trailer is None:
        return 0
    return _TRAILER_DTYPE.itemsize + int(trailer["content_size"]) + 4 * int(trailer["num_checksums"])


def notes_offset(source: ByteSource, header: Header) -> int:
    """Find where the notes of a file begin; where its allocation table does, if it has none."""
    first, stop = header.metadata_offset, header.alloc_table_ptr
    start = max(first, stop - _TRAILER_DTYPE.itemsize)
    return max(first, stop - notes_size(source.read(start, max(0, stop - start))))


def nesting(value: Any) -> int:
    """Count how many lists and mappings are within each other."""
    levels, within = 0, [value]
    while within := [item for item in within if isinstance(item, list | dict)]:
        levels += 1
        within = [child for item in within for child in (item.values() if isinstance(item, dict) else item)]
    return levels
