"""Find the entry points of the JPEGs in ``.beton`` files, and checksums of all values, with several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._bytes.open_files import open_bytes
from gpubeton._machine import worker_count
from gpubeton.errors import StorageError
from gpubeton.format.data_files import first_offset
from gpubeton.format.dataset import open_dataset
from gpubeton.format.entry_points import EntryBlock, identity_of, image_fields, write_entry_points
from gpubeton.format.layout import ImageMode

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
    from gpubeton.format.index import Index

#: Images that a thread takes at a time.
IMAGES_AT_ONCE = 64
#: Regions that a thread takes at a time.
_REGIONS_AT_ONCE = 4096


def index_file(
    path: str | os.PathLike[str],
    custom_types: Mapping[str, np.dtype[np.generic]],
    write: Callable[[int, Buffer], object],
    start: int,
    blocks_of: Callable[[Index, str], Iterable[EntryBlock]] | None = None,
    num_workers: int = -1,
) -> int:
    """Write the entry points of each field of a complete file from `start` on; return where they end."""
    # `custom_types` is the metadata of custom fields; `blocks_of` gives the entry points of a field, if they are known.
    index = open_dataset(path, custom_types)
    for name in image_fields(index):
        found = (block for block, _ in find_all(index, name, 0, num_workers))
        blocks = found if blocks_of is None else blocks_of(index, name)
        start = write_entry_points(write, start, name, identity_of(index, name), blocks)
    return start


def find_all(
    index: Index,
    name: str,
    file: int,
    num_workers: int = -1,
    first: int = 0,  # sample, in the file
    identity: SourceIdentity | None = None,  # None: the file may be unfinished, and its writer at work on its end
    *,
    with_checksums: bool = False,
) -> Iterator[tuple[EntryBlock, NDArray[np.uint64]]]:
    """Find the entry points of the images of a field in one of the files, from a sample on, and CRC-32, (N,), or 0."""
    # Of `IMAGES_AT_ONCE` images at a time.
    path, samples = index.files[file].path, index.files[file].rows
    regions, is_jpeg = index.regions(name), index.column(name)["mode"][samples] == ImageMode.JPG
    size = np.where(is_jpeg, regions.size[samples], np.uint64(0))
    offset = regions.offset[samples] - first_offset(file)
    remote = None if identity is None else identity.remote
    with (
        open_bytes(path, identity, remote=remote) as source,
        ThreadPoolExecutor(max(worker_count(num_workers), remote.requests if remote else 0)) as pool,
    ):
        end = int((offset + regions.size[samples]).max(initial=0))
        if end > source.size:
            raise StorageError(
                f"{source.name}: {source.size} bytes, but its samples ended at {end} when it was opened. The file was "
                "replaced or cut short: open it again."
            )
        content = source.map() if source.is_mappable else None

        def find(start: int) -> tuple[EntryBlock, NDArray[np.uint64]]:
            rows = slice(start, start + IMAGES_AT_ONCE)
            if content is not None:
                return _find(offset[rows] + np.uint64(content.ctypes.data), size[rows], with_checksums)
            address, loaded = load_regions(source, offset[rows], size[rows])
            block = _find(address, size[rows], with_checksums)
            del loaded  # it was in use until here
            return block

        yield from pool.map(find, range(first, len(size), IMAGES_AT_ONCE))


def find_checksums(rows: NDArray[np.void], path: str, num_workers: int, identity: SourceIdentity) -> NDArray[np.uint32]:
    """Compute the CRC-32 of each region of a file of this machine, (R,), in the order of its allocation table."""
    from gpubeton._cpu.stored_bytes import compute_checksums  # see `_find`

    checksums = np.zeros(len(rows), np.uint64)
    with (
        open_bytes(path, identity) as source,
        ThreadPoolExecutor(worker_count(num_workers)) as pool,
    ):
        content = source.map()
        address, size = rows["ptr"] + np.uint64(content.ctypes.data), np.ascontiguousarray(rows["size"])
        parts = [slice(start, start + _REGIONS_AT_ONCE) for start in range(0, len(rows), _REGIONS_AT_ONCE)]
        for _ in pool.map(lambda part: compute_checksums(address[part], size[part], checksums[part]), parts):
            pass
    return checksums.astype(np.uint32)


def load_regions(
    source: ByteSource, offset: NDArray[np.uint64], size: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], list[memoryview]]:
    """Load regions, those near each other at once; give their addresses, (N,), and the memory that they are in."""
    address, loaded = np.zeros(len(offset), np.uint64), []
    solid = np.flatnonzero(size)
    solid = solid[np.argsort(offset[solid])]
    gaps = offset[solid][1:].astype(np.int64) - (offset + size)[solid][:-1].astype(np.int64)
    for near in np.split(solid, np.flatnonzero(gaps > source.max_gap) + 1):
        if len(near):
            start = int(offset[near[0]])
            loaded.append(source.load(start, int((offset + size)[near].max()) - start))
            address[near] = offset[near] - np.uint64(start) + np.uint64(np.frombuffer(loaded[-1], np.uint8).ctypes.data)
    return address, loaded


def _find(
    address: NDArray[np.uint64], size: NDArray[np.uint64], with_checksums: bool
) -> tuple[EntryBlock, NDArray[np.uint64]]:
    # The import compiles, or loads machine code: writing without JPEGs does without.
    from gpubeton._cpu.jpeg.entries import find_entries
    from gpubeton._cpu.stored_bytes import compute_checksums

    checksums = np.zeros(len(size), np.uint64)
    if with_checksums:
        compute_checksums(address, size, checksums)
    return find_entries(address, size), checksums
