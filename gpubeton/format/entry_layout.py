"""How entry points lie in a file: the trailer of a block, the fields of a file, checksums beside it.

`gpubeton.format.entry_points` describes the blocks.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpubeton._bytes.open_files import open_bytes
from gpubeton._bytes.store_client import shown
from gpubeton.errors import FormatError, NotesError, RemoteDeniedError
from gpubeton.format.file_notes import Notes, decode_trailer, notes_before, notes_of, notes_size
from gpubeton.format.layout import ENTRY_DTYPE, round_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton._bytes.byte_source import ByteSource

WITHIN, BESIDE, AFTER_CHECKSUMS = VERSIONS = 1, 2, 3  # where the block is

MAGIC = b"gpubeton-entries"
TRAILER_DTYPE = np.dtype(
    [
        ("magic", "S16"),
        ("version", "<u4"),
        ("every", "<u4"),
        ("name", "S16"),
        ("identity", "V16"),
        ("images", "<u8"),
        ("entries", "<u8"),
        ("checksum", "<u4"),
        ("zeros", "<u4"),
    ]
)
CHECKED = TRAILER_DTYPE.itemsize - 8  # bytes of the trailer before its checksum


def index_path(path: str) -> str:
    """Name the file with the entry points of a file that has none itself."""
    address, separator, query = path.partition("?") if path.startswith(("https://", "http://")) else (path, "", "")
    return f"{address}.index{separator}{query}"


def is_index(path: str) -> bool:
    """Whether a file ends as entry points or checksums do, be they of another file."""
    with suppress(OSError, FormatError), open_bytes(path) as source:
        end = source.read(max(source.size - TRAILER_DTYPE.itemsize, 0), TRAILER_DTYPE.itemsize)
        return end.startswith(MAGIC) or bool(notes_size(end))
    return False


def remove_index(path: str) -> None:
    """Remove the entry points beside a file that was written again; a file of another kind stays."""
    if is_index(index_path(path)):
        with suppress(OSError):
            os.unlink(index_path(path))  # noqa: PTH108  a name, as everywhere here


#: Notes with the checksums of a file, if there are any; and why they cannot be used.
NotesOrFault: TypeAlias = "tuple[Notes | None, str]"


def read_notes_within(source: ByteSource) -> NotesOrFault:
    """Read the notes of an open file."""
    try:
        return notes_of(source), ""
    except NotesError as error:
        return None, str(error)


def read_notes_beside(source: ByteSource, rows: NDArray[np.void]) -> NotesOrFault:
    """Read the checksums beside an open file, whose sorted allocation table is `rows`."""
    name = index_path(source.name)
    try:
        with open_bytes(name, remote=source.identity().remote) as beside:
            stop, _ = list_fields(beside, 0, beside.size)
            notes = notes_before(beside, 0, stop, len(rows))
    except (FileNotFoundError, RemoteDeniedError):
        return None, ""
    except (FormatError, OSError) as error:
        return None, str(error)
    fault = "belong to another file, or to another state of this one"
    if notes is None and stop == beside.size > 0:
        fault = "are cut short, or this is another kind of file"
    elif notes is None or notes.content.get("regions") == digest_of(rows):
        return notes, ""
    command = f"gpubeton index --overwrite {shown(source.name)}"
    return None, f"{shown(name)}: the checksums {fault}. Make them again: {command}"


def digest_of(rows: NDArray[np.void]) -> str:
    """Hash where all regions of a file are: its allocation table, sorted."""
    return blake2b(rows.view(np.uint8).data, digest_size=16).hexdigest()


def list_fields(source: ByteSource, start: int, stop: int) -> tuple[int, tuple[str, ...]]:
    """Go through the blocks that end at `stop`, the last one first; give where they begin, and their fields."""
    fields: list[str] = []
    while stop > start:
        place = max(start, stop - TRAILER_DTYPE.itemsize)
        row = decode_trailer(source.read(place, min(TRAILER_DTYPE.itemsize, stop - place)), MAGIC, TRAILER_DTYPE)
        if row is None:
            break
        begin = stop - block_size(row)
        stop = begin if begin >= start else place  # the trailer alone, which is refused when it is read
        fields.append(field_of(row))
        if begin < start:
            break
    return stop, tuple(reversed(fields))


def field_of(row: np.void) -> str:
    """Give the name of a block's field, by its trailer."""
    return str(row["name"], "ascii", "replace")


def block_sizes(row: np.void) -> tuple[int, int, int]:
    """Give the bytes of the three parts of a block by its trailer: entries, first and seals."""
    return ENTRY_DTYPE.itemsize * int(row["entries"]), 8 * (int(row["images"]) + 1), 4 * int(row["images"])


def block_size(row: np.void) -> int:
    """Give the bytes of a block, by its trailer."""
    return sum(round_up(size, 8) for size in block_sizes(row)) + TRAILER_DTYPE.itemsize
