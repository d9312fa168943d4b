"""Entry points: places inside JPEGs where decoding can begin, so that a crop needs a part of the data only.

They are in the file itself, right before the notes, or in ``FILE.index`` beside it: a block for each field of images.

::

    entries     10 bytes each, of all images; filled up with zeros to a multiple of 8 bytes
    first       8 bytes each: number of the first entry of each image, and of all entries
    seals       4 bytes each: of each image; filled up with zeros to a multiple of 8 bytes
    trailer     80 bytes: "gpubeton-entries", version (4), MCUs from entry to entry (4), name of the field (16),
                identity (16), number of images (8), number of entries (8), CRC-32 of the trailer up to here, `first`
                and `seals` (4), zeros (4)
"""

from __future__ import annotations

import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import EntryPointsError, FormatError, RemoteDeniedError
from gpubeton.files.open_files import open_bytes
from gpubeton.format.data_files import first_offset
from gpubeton.format.field_arguments import RGB, ImageKind
from gpubeton.format.file_notes import notes_offset
from gpubeton.format.header import decode_header
from gpubeton.format.layout import ENTRY_DTYPE, HEADER_DTYPE, MCUS_PER_ENTRY, FieldType, ImageMode, round_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from gpubeton.files.byte_source import ByteSource
    from gpubeton.format.header import Descriptor
    from gpubeton.format.index import Index

_MAGIC = b"gpubeton-entries"
_VERSION = 1
_TRAILER_DTYPE = np.dtype(
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
# Bytes of the trailer before its checksum.
_CHECKED = _TRAILER_DTYPE.itemsize - 8
_IDENTITY_DTYPE = np.dtype([("mode", "u1"), ("width", "<u2"), ("height", "<u2"), ("offset", "<u8"), ("size", "<u8")])


class EntryPoints:
    """Where in memory the entry points of some images are, from one file or several."""

    def __init__(
        self,
        addresses: NDArray[np.uint64],  # (N,) of the first entry of each image; 0 if it has none
        counts: NDArray[np.int32],  # (N,) number of its entries
        seals: NDArray[np.uint32],  # (N,) see `gpubeton.cpu.jpeg.intervals.seal_of`
        keep: object,  # owns the memory
    ) -> None:
        self.addresses, self.counts, self.seals, self.keep = addresses, counts, seals, keep

    def of(self, samples: NDArray[Any]) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint32]]:
        """Give address (N,), number of entries (N,) and seal (N,) of some images; address and number are 0 for none."""
        return self.addresses[samples], self.counts[samples], self.seals[samples]

    def leave_out(self, samples: NDArray[np.uint64]) -> None:
        """Use no entry points of these images from now on."""
        self.counts[samples] = 0


class EntryBlock(EntryPoints):
    """The entry points of images, one image after the other."""

    def __init__(
        self,
        first: NDArray[np.uint64],  # (N + 1,) number of the first entry of each image, and of all entries
        seals: NDArray[np.uint32],  # (N,)
        entries: NDArray[np.void],  # (M,) ENTRY_DTYPE, contiguous
    ) -> None:
        counts = np.diff(first)
        addresses = np.uint64(entries.ctypes.data) + first[:-1] * np.uint64(ENTRY_DTYPE.itemsize)
        addresses[counts == 0] = 0
        super().__init__(addresses, counts.astype(np.int32), seals, entries)
        self.first, self.entries = first, entries

    @property
    def nbytes(self) -> int:
        """Bytes in a file, but for the trailer."""
        return self.entries.nbytes + self.first.nbytes + self.seals.nbytes

    def take(self, images: NDArray[np.intp]) -> EntryBlock:
        """Copy those of some images."""
        counts = self.counts[images].astype(np.int64)
        first = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        rows = np.arange(first[-1]) + np.repeat(self.first[images].astype(np.int64) - first[:-1], counts)
        return EntryBlock(first.astype(np.uint64), self.seals[images], self.entries[rows])


def no_entry_points(count: int) -> EntryBlock:
    """Give the entry points of images that have none."""
    return EntryBlock(np.zeros(count + 1, np.uint64), np.zeros(count, np.uint32), np.zeros(0, ENTRY_DTYPE))


def image_fields(index: Index, file: int = 0) -> list[str]:
    """List the fields that store JPEGs in one of the files which the crop decoder may decode."""
    rows = index.files[file].rows
    return [
        descriptor.name
        for descriptor in index.descriptors
        if _is_rgb(descriptor) and bool((index.column(descriptor.name)["mode"][rows] == ImageMode.JPG).any())
    ]


def _is_rgb(descriptor: Descriptor) -> bool:
    if descriptor.type_id == FieldType.CUSTOM:
        return ImageKind.describes(descriptor.arguments) and ImageKind.from_bytes(descriptor.arguments) == RGB
    return descriptor.type_id == FieldType.RGB_IMAGE


# --- opening ----------------------------------------------------------------------------------------------------------


def index_path(path: str) -> str:
    """Name the file with the entry points of a file that has none itself."""
    address, separator, query = path.partition("?") if path.startswith(("https://", "http://")) else (path, "", "")
    return f"{address}.index{separator}{query}"


def remove_index(path: str) -> None:
    """Remove the entry points beside a file that was written again; a file of another kind stays."""
    with suppress(OSError, FormatError), open_bytes(index_path(path)) as source:
        if source.read(max(source.size - _TRAILER_DTYPE.itemsize, 0), len(_MAGIC)) == _MAGIC:
            os.unlink(source.name)  # noqa: PTH108  a name, as everywhere here


#: Files whose entry points are opened at the same time.
_NUM_THREADS = 8


def open_entry_points(index: Index) -> tuple[dict[str, EntryPoints], list[str]]:
    """Open the entry points of each field of images; describe those that cannot be used, which are left out."""
    with ThreadPoolExecutor(min(len(index.files), _NUM_THREADS)) as threads:
        opened = list(threads.map(partial(open_blocks, index), range(len(index.files))))
    faults = [fault for _, own in opened for fault in own]
    if len(opened) == 1:
        return {**opened[0][0]}, faults
    found = {}
    for name in sorted({name for blocks, _ in opened for name in blocks}):
        parts = [
            blocks.get(name) or no_entry_points(file.num_samples)
            for (blocks, _), file in zip(opened, index.files, strict=True)
        ]
        found[name] = EntryPoints(
            np.concatenate([part.addresses for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.seals for part in parts]),
            parts,
        )
    return found, faults


def open_blocks(index: Index, file: int = 0) -> tuple[dict[str, EntryBlock], list[str]]:
    """Open the entry points of one of the files, by field: those beside it, or else those in it; describe faults."""
    if not image_fields(index, file):
        return {}, []
    faults: list[str] = []
    found: dict[str, EntryBlock] = {}
    try:
        found = read_index(index, file)
    except (EntryPointsError, OSError) as error:
        faults.append(str(error))
    try:
        found = found or read_stored(index, file)
    except EntryPointsError as error:
        faults.append(str(error))
    return found, faults


def read_index(index: Index, file: int = 0) -> dict[str, EntryBlock]:
    """Read the entry points beside one of the files, by field; empty if there are none."""
    path = index.files[file].path
    try:
        source = open_bytes(index_path(path), remote=index.files[file].identity.remote)
    except (FileNotFoundError, RemoteDeniedError):  # stores that do not show their lists refuse missing objects
        return {}
    with source:
        return _Blocks(source, index, file, f"gpubeton index --overwrite {path}").read(0, source.size)


def read_stored(index: Index, file: int = 0) -> dict[str, EntryBlock]:
    """Read the entry points in one of the files itself, by field; empty if there are none."""
    path = index.files[file].path
    with index.files[file].open() as source:
        header = decode_header(path, source.read(0, HEADER_DTYPE.itemsize))
        blocks = _Blocks(source, index, file, f"gpubeton index {path}")
        return blocks.read(header.metadata_offset, notes_offset(source, header))


class _Blocks:
    """The entry points of one file of a dataset, in that file or in one beside it."""

    def __init__(self, source: ByteSource, index: Index, file: int, command: str) -> None:
        self._source, self._index, self._file, self._command = source, index, file, command
        self._names = image_fields(index, file)

    def read(self, start: int, stop: int) -> dict[str, EntryBlock]:
        """Read the blocks that end at `stop`, by field; from byte 0 on, there is nothing else."""
        blocks: dict[str, EntryBlock] = {}
        while stop > start or (start == 0 and not blocks):
            trailer = self._source.read(max(start, stop - _TRAILER_DTYPE.itemsize), _TRAILER_DTYPE.itemsize)
            if not (len(trailer) == _TRAILER_DTYPE.itemsize and trailer.startswith(_MAGIC)):
                if start > 0:
                    break
                raise self._error("are cut short, or this is another kind of file")
            row = np.frombuffer(trailer, _TRAILER_DTYPE)[0]
            blocks[row["name"].decode("ascii", "replace")], stop = self._read_one(row, start, stop)
        if start == 0 and set(blocks) != set(self._names):
            raise self._error(f"are those of {', '.join(sorted(blocks))} alone")
        return dict(reversed(blocks.items()))

    def _read_one(self, row: np.void, start: int, stop: int) -> tuple[EntryBlock, int]:
        """Read and check the block of a trailer; return it and where it begins."""
        if row["version"] != _VERSION or row["every"] != MCUS_PER_ENTRY:
            raise self._error(
                f"are of version {row['version']}, one every {row['every']} MCUs; expected {_VERSION} and "
                f"{MCUS_PER_ENTRY}"
            )
        name = row["name"].decode("ascii", "replace")
        images, count = int(row["images"]), int(row["entries"])
        sizes = ENTRY_DTYPE.itemsize * count, 8 * (images + 1), 4 * images
        end = stop - _TRAILER_DTYPE.itemsize
        begin = end - sum(round_up(size, 8) for size in sizes)
        if begin < start:
            raise self._error(f"of field {name!r} should take {stop - begin} bytes, but there are {stop - start}")
        middle = begin + round_up(sizes[0], 8)
        tables = self._source.read_array(middle, end)
        if zlib.crc32(tables.data, zlib.crc32(row.tobytes()[:_CHECKED])) != row["checksum"]:
            raise self._error(f"of field {name!r} have another checksum than expected: they are damaged")
        first, seals = tables[: sizes[1]].view("<u8"), tables[sizes[1] :].view("<u4")[:images]
        if name not in self._names or row["identity"].tobytes() != identity_of(self._index, name, self._file):
            raise self._error(f"of field {name!r} belong to another file, or to another state of this one")
        number = np.diff(first.astype(np.int64))
        if len(number) != self._index.files[self._file].num_samples or first[0] != 0 or first[-1] != count:
            raise self._error(f"of field {name!r}: {first[-1]} of {images} images")
        if (first[1:] < first[:-1]).any() or number.max(initial=0) >= 1 << 31:
            raise self._error(f"of field {name!r} are not in order")
        if self._source.is_mappable:
            entries = self._source.map()[begin : begin + sizes[0]]
        else:
            entries = self._source.read_array(begin, begin + sizes[0])
        return EntryBlock(first, seals, entries.view(ENTRY_DTYPE)), begin

    def _error(self, fault: str) -> EntryPointsError:
        return EntryPointsError(
            f"{self._source.name}: the entry points {fault}. They only make decoding faster. Make them again: "
            f"{self._command}"
        )


def identity_of(index: Index, name: str, file: int = 0) -> bytes:
    """Hash where one of the files has the images of a field, and their sizes."""
    rows = index.files[file].rows
    column, regions = index.column(name)[rows], index.regions(name)
    images = np.empty(len(column), _IDENTITY_DTYPE)
    for each in ("mode", "width", "height"):
        images[each] = column[each]
    images["offset"] = regions.offset[rows] - first_offset(file)
    images["size"] = regions.size[rows]
    return blake2b(images.data, digest_size=16).digest()


# --- writing ----------------------------------------------------------------------------------------------------------


def write_entry_points(
    write: Callable[[int, Buffer], object],  # called with an offset and bytes
    start: int,
    name: str,  # of the field
    identity: bytes,  # of its images
    blocks: Iterable[EntryBlock],  # of all images, in their order
) -> int:
    """Write a block from `start` on; return where it ends."""
    counts, seals, end = [], [], start
    for block in blocks:
        write(end, block.entries.tobytes())
        end += block.entries.nbytes
        counts.append(np.diff(block.first))
        seals.append(block.seals)
    number = (end - start) // ENTRY_DTYPE.itemsize
    first = np.concatenate([np.zeros(1, np.uint64), np.cumsum(np.concatenate(counts), dtype=np.uint64)])
    tables = first.tobytes() + _padded(np.concatenate(seals).tobytes())
    trailer = np.zeros(1, _TRAILER_DTYPE)
    trailer[0] = (_MAGIC, _VERSION, MCUS_PER_ENTRY, name.encode("ascii"), identity, len(first) - 1, number, 0, 0)
    trailer["checksum"] = zlib.crc32(tables, zlib.crc32(trailer.tobytes()[:_CHECKED]))
    rest = bytes(-(end - start) % 8) + tables + trailer.tobytes()
    write(end, rest)
    return end + len(rest)


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 8)
