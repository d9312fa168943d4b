"""Entry points: places inside JPEGs where decoding can begin, so that a crop needs a part of the data only.

They are in the file itself, right before the notes, or in ``FILE.index`` beside it: a block for each field of images.

::

    entries     10 bytes each, of all images; filled up with zeros to a multiple of 8 bytes
    first       8 bytes each: number of the first entry of each image, and of all entries
    seals       4 bytes each: of each image; filled up with zeros to a multiple of 8 bytes
    trailer     80 bytes: "gpubeton-entries", version (4), MCUs from entry to entry (4), name of the field (16),
                identity (16), number of images (8), number of entries (8), CRC-32 of the trailer up to here, `first`
                and `seals` (4), zeros (4)

``FILE.index`` of a file with checksums in its notes has version 2, whose identity has those of the images, too. That of
another file begins with checksums, in the form of notes whose content names the allocation table, and has version 3.
"""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gpubeton._bytes.open_files import open_bytes, source_type
from gpubeton._bytes.store_client import shown
from gpubeton.errors import EntryPointsError, FormatError, RemoteDeniedError
from gpubeton.format.data_files import EntryPlace, first_offset
from gpubeton.format.entry_layout import (
    AFTER_CHECKSUMS,
    BESIDE,
    CHECKED,
    MAGIC,
    TRAILER_DTYPE,
    VERSIONS,
    WITHIN,
    block_size,
    block_sizes,
    field_of,
    index_path,
    list_fields,
)
from gpubeton.format.field_arguments import RGB, ImageKind
from gpubeton.format.file_notes import decode_trailer, notes_offset, notes_size
from gpubeton.format.header import header_of
from gpubeton.format.layout import ENTRY_DTYPE, MCUS_PER_ENTRY, FieldType, ImageMode, round_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
    from gpubeton.format.data_files import DataFile
    from gpubeton.format.header import Descriptor
    from gpubeton.format.index import Index


_IDENTITY = [("mode", "u1"), ("width", "<u2"), ("height", "<u2"), ("offset", "<u8"), ("size", "<u8")]
_NUM_THREADS = 8  # files whose entry points are opened at the same time


class EntryPoints:
    """Where in memory the entry points of some images are, from one file or several."""

    comes_late = False
    """Whether `of` may have to wait for other machines."""

    def __init__(
        self,
        addresses: NDArray[np.uint64],  # (N,) of the first entry of each image; 0 if it has none
        counts: NDArray[np.int32],  # (N,) number of its entries
        seals: NDArray[np.uint32],  # (N,) see `gpubeton._cpu.jpeg.intervals.seal_of`
        keep: object,  # owns the memory
    ) -> None:
        self.addresses, self.counts, self.seals, self.keep = addresses, counts, seals, keep

    def of(self, samples: NDArray[Any]) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint32], object]:
        """Give address, number of entries and seal of some images, (N,) each, 0 for none; and what owns the memory."""
        return self.addresses[samples], self.counts[samples], self.seals[samples], self.keep

    def prepare(self, samples: NDArray[Any]) -> None:
        """Begin to load those of some images, (N,); returns at once."""

    @property
    def summary(self) -> str:
        """Count the images that have some; may wait as `of` does."""
        return f"{int((self.counts > 0).sum()):,} JPEGs with entry points"

    def interrupt(self) -> None:
        """End the waiting in `of`, with an error; called from any thread."""

    def leave_out(self, samples: NDArray[np.uint64]) -> None:
        """Use no entry points of these images from now on."""
        self.counts[samples] = 0


class EntryBlock(EntryPoints):
    """The entry points of images, one image after the other; or their tables alone, of entries in another `place`."""

    def __init__(
        self,
        first: NDArray[np.uint64],  # (N + 1,) number of the first entry of each image, and of all entries
        seals: NDArray[np.uint32],  # (N,)
        entries: NDArray[np.void],  # (M,) ENTRY_DTYPE, contiguous
        place: tuple[str, SourceIdentity] | None = None,  # the file that has the entries, which are not in memory
        begin: int = 0,  # where that file has them
    ) -> None:
        counts = np.diff(first)
        addresses = np.uint64(entries.ctypes.data) + first[:-1] * np.uint64(ENTRY_DTYPE.itemsize)
        addresses[(counts == 0) | (place is not None)] = 0
        super().__init__(addresses, counts.astype(np.int32), seals, entries)
        self.first, self.entries, self.place, self.begin = first, entries, place, begin

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
    return [name for name in rgb_fields(index) if bool((index.column(name)["mode"][rows] == ImageMode.JPG).any())]


def rgb_fields(index: Index) -> list[str]:
    """List the fields that may store such JPEGs."""
    return [descriptor.name for descriptor in index.descriptors if _is_rgb(descriptor)]


def _is_rgb(descriptor: Descriptor) -> bool:
    if descriptor.type_id == FieldType.CUSTOM:
        return ImageKind.describes(descriptor.arguments) and ImageKind.from_bytes(descriptor.arguments) == RGB
    return descriptor.type_id == FieldType.RGB_IMAGE


# --- opening ----------------------------------------------------------------------------------------------------------


def open_entry_points(index: Index) -> tuple[dict[str, EntryPoints], list[dict[str, EntryBlock]], list[str]]:
    """Open the entry points of each field of images; describe those that cannot be used, which are left out."""
    # Those of files whose `DataFile.entry_place` is known are not opened: they count as images without entry points. Of
    # other files that are not on this machine only the tables are read, which are given for each file, too. Those in an
    # index file of this machine are opened at once.

    def open_file(number: int) -> tuple[dict[str, EntryBlock], list[str]]:
        file = index.files[number]
        return open_blocks(index, number, tables_only=not (file.is_container or source_type(file.path).is_local))

    opened: list[tuple[dict[str, EntryBlock], list[str]]] = [({}, [])] * len(index.files)
    unknown = [number for number, file in enumerate(index.files) if _has_to_open(file)]
    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        # The end of the program waits for threads of an executor: one file, as most datasets are, needs none.
        results = (threads.map if len(unknown) > 1 else map)(open_file, unknown)
        for number, result in zip(unknown, results, strict=True):
            opened[number] = result
    tables = [{name: block for name, block in blocks.items() if block.place is not None} for blocks, _ in opened]
    faults = [fault for _, faults_of_file in opened for fault in faults_of_file]
    if len(opened) == 1:
        return {**opened[0][0]}, tables, faults
    joined = {}
    for name in sorted({name for blocks, _ in opened for name in blocks}):
        parts = [
            blocks.get(name) or no_entry_points(file.num_samples)
            for (blocks, _), file in zip(opened, index.files, strict=True)
        ]
        joined[name] = EntryPoints(
            np.concatenate([part.addresses for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.seals for part in parts]),
            parts,
        )
    return joined, tables, faults


def _has_to_open(file: DataFile) -> bool:
    """Whether the entry points of a file have to be looked for, or lie in an index of this machine."""
    place = file.entry_place
    return not file.is_container if place is None else place.path is not None and source_type(place.path).is_local


def open_blocks(index: Index, file: int = 0, *, tables_only: bool = False) -> tuple[dict[str, EntryBlock], list[str]]:
    """Open the entry points of one of the files, by field: those beside it, or else those in it; describe faults."""
    faults: list[str] = []
    blocks: dict[str, EntryBlock] = {}
    if image_fields(index, file):
        try:
            blocks = read_beside(index, file, tables_only=tables_only)
        except (FormatError, OSError) as error:
            faults.append(str(error))
        try:
            blocks = blocks or read_within(index, file, tables_only=tables_only)
        except EntryPointsError as error:
            faults.append(str(error))
    return blocks, faults


def read_beside(index: Index, file: int = 0, *, tables_only: bool = False) -> dict[str, EntryBlock]:
    """Read the entry points beside one of the files, or of a container in its index, by field; empty if none."""
    described = index.files[file]
    path, place = index_path(described.path), described.entry_place
    if described.is_container:
        if place is None or place.path is None or not place.fields:
            return {}
        path = place.path
    try:
        source = open_bytes(path, remote=described.identity.remote)
    except (FileNotFoundError, RemoteDeniedError):  # stores that do not show their lists refuse missing objects
        if described.is_container:
            raise
        return {}
    with source:
        start, stop = (place.start, place.stop) if place and described.is_container else (0, source.size)
        return BlockReader(index, file, is_beside=True).read(source, start, stop, tables_only=tables_only)


def read_within(index: Index, file: int = 0, *, tables_only: bool = False) -> dict[str, EntryBlock]:
    """Read the entry points in one of the files itself, by field; empty if there are none."""
    if index.files[file].is_container:
        return {}
    with index.files[file].open() as source:
        start, stop, _ = find_stored(source)
        return BlockReader(index, file).read(source, start, stop, tables_only=tables_only)


def find_place(path: str, identity: SourceIdentity) -> EntryPlace:
    """Find where the entry points of a file are: beside it, or else in it."""
    with (
        suppress(FileNotFoundError, RemoteDeniedError),
        open_bytes(index_path(path), remote=identity.remote) as source,
    ):
        version = getattr(source.identity(), "etag", None)
        return EntryPlace(list_fields(source, 0, source.size)[1], 0, source.size, (source.size, version))
    with open_bytes(path, identity) as source:
        start, stop, fields = find_stored(source)
        return EntryPlace(fields, start, stop)


def find_stored(source: ByteSource) -> tuple[int, int, tuple[str, ...]]:
    """Find the bytes from where to where are entry points of an open file, and the fields that they are of."""
    header = header_of(source)
    stop = notes_offset(source, header)
    start, fields = list_fields(source, header.metadata_offset, stop)
    return start, stop, fields


#: `first` and `seals` of a block, and where its entries begin.
_Tables: TypeAlias = "tuple[NDArray[np.uint64], NDArray[np.uint32], int]"


class BlockReader:
    """Reads and checks the entry points of one file of a dataset, in that file or in one beside it."""

    def __init__(self, index: Index, file: int, *, is_beside: bool = False) -> None:
        self._index, self._file, self._is_beside = index, file, is_beside
        self._names = image_fields(index, file)

    def read(self, source: ByteSource, start: int, stop: int, *, tables_only: bool) -> dict[str, EntryBlock]:
        """Read and check the blocks in a part of a file, or their tables alone, by field."""
        if not tables_only:
            return self.parse(source.view(start, stop))
        tables = self._check(lambda first, last: source.read_array(start + first, start + last), stop - start)
        place, entries = (source.name, source.identity()), np.zeros(0, ENTRY_DTYPE)
        return {
            name: EntryBlock(first, seals, entries, place, start + begin)
            for name, (first, seals, begin) in tables.items()
        }

    def parse(self, content: NDArray[np.uint8]) -> dict[str, EntryBlock]:
        """Check the blocks, by field."""
        tables = self._check(lambda start, stop: content[start:stop], len(content))
        size = ENTRY_DTYPE.itemsize
        return {
            name: EntryBlock(first, seals, content[begin : begin + size * int(first[-1])].view(ENTRY_DTYPE))
            for name, (first, seals, begin) in tables.items()
        }

    def _check(self, part: Callable[[int, int], NDArray[np.uint8]], stop: int) -> dict[str, _Tables]:
        """Check the blocks, by field; `part` gives bytes of the `stop` that they take, and is not asked for entries."""
        try:
            return self._read_tables(part, stop)
        except EntryPointsError as error:
            file = self._index.files[self._file]
            name, command = index_path(file.path), f"gpubeton index --overwrite {shown(file.path)}"
            if file.entry_place is not None and file.entry_place.path is not None:
                name, command = file.entry_place.path, "gpubeton index"
            elif not self._is_beside:
                name, command = file.path, f"gpubeton index {shown(file.path)}"
            raise EntryPointsError(
                f"{shown(name)}: the entry points {error}. They only make decoding faster. Make them again: {command}"
            ) from None

    def _read_tables(self, part: Callable[[int, int], NDArray[np.uint8]], stop: int) -> dict[str, _Tables]:
        blocks: dict[str, _Tables] = {}
        has_checksums = False
        while stop > 0 or (self._is_beside and not blocks):
            content = part(max(0, stop - TRAILER_DTYPE.itemsize), stop).tobytes()
            row = decode_trailer(content, MAGIC, TRAILER_DTYPE)
            if has_checksums and notes_size(content) == stop:
                break
            if row is None:
                raise EntryPointsError("are cut short, or this is another kind of file")
            tables = self._read_one(row, part, stop)
            blocks[field_of(row)], stop = tables, tables[2]
            has_checksums = self._is_beside and row["version"] == AFTER_CHECKSUMS
            if has_checksums and stop == 0:
                raise EntryPointsError("are cut short")
        if self._is_beside and set(blocks) != set(self._names):
            raise EntryPointsError(f"are those of {', '.join(sorted(blocks))} alone")
        return dict(reversed(blocks.items()))

    def _read_one(self, row: np.void, part: Callable[[int, int], NDArray[np.uint8]], stop: int) -> _Tables:
        """Read and check the tables of the block of a trailer."""
        if row["version"] not in VERSIONS or row["every"] != MCUS_PER_ENTRY:
            raise EntryPointsError(
                f"are of version {row['version']}, one every {row['every']} MCUs; expected {VERSIONS} and "
                f"{MCUS_PER_ENTRY}"
            )
        name, images, count, sizes = field_of(row), int(row["images"]), int(row["entries"]), block_sizes(row)
        begin = stop - block_size(row)
        if begin < 0:
            raise EntryPointsError(f"of field {name!r} should take {stop - begin} bytes, but there are {stop}")
        # A copy: they may lie at any address.
        tables = part(begin + round_up(sizes[0], 8), stop - TRAILER_DTYPE.itemsize).copy()
        if zlib.crc32(tables.data, zlib.crc32(row.tobytes()[:CHECKED])) != row["checksum"]:
            raise EntryPointsError(f"of field {name!r} have another checksum than expected: they are damaged")
        first, seals = tables[: sizes[1]].view("<u8"), tables[sizes[1] :].view("<u4")[:images]
        identity = self._index, name, self._file, int(row["version"])
        if name not in self._names or row["identity"].tobytes() != identity_of(*identity):
            raise EntryPointsError(f"of field {name!r} belong to another file, or to another state of this one")
        number = np.diff(first.astype(np.int64))
        if len(number) != self._index.files[self._file].num_samples or first[0] != 0 or first[-1] != count:
            raise EntryPointsError(f"of field {name!r}: {first[-1]} of {images} images")
        if (first[1:] < first[:-1]).any() or number.max(initial=0) >= 1 << 31:
            raise EntryPointsError(f"of field {name!r} are not in order")
        return first, seals, begin


def identity_of(index: Index, name: str, file: int = 0, version: int = WITHIN) -> bytes:
    """Hash offsets and sizes of the images of a field in one of the files; for `BESIDE` also their checksums."""
    rows = index.files[file].rows
    column, regions = index.column(name)[rows], index.regions(name)
    images = np.zeros(len(column), _IDENTITY if version != BESIDE else [*_IDENTITY, ("checksum", "<u4")])
    if version == BESIDE and regions.checksums is not None:
        images["checksum"] = regions.checksums[rows]
    for key in ("mode", "width", "height"):
        images[key] = column[key]
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
    version: int = WITHIN,
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
    tables = first.tobytes() + np.concatenate(seals).tobytes()
    tables += bytes(-len(tables) % 8)
    trailer = np.zeros(1, TRAILER_DTYPE)
    trailer[0] = (MAGIC, version, MCUS_PER_ENTRY, name.encode("ascii"), identity, len(first) - 1, number, 0, 0)
    trailer["checksum"] = zlib.crc32(tables, zlib.crc32(trailer.tobytes()[:CHECKED]))
    rest = bytes(-(end - start) % 8) + tables + trailer.tobytes()
    write(end, rest)
    return end + len(rest)
