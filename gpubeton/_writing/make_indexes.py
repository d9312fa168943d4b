"""Make indexes: entry points and checksums of what a file has, and the index of samples that stay where they are."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._bytes.open_files import open_bytes
from gpubeton._machine import worker_count
from gpubeton._writing.chunks import RegionSizes
from gpubeton._writing.file_builder import PageAllocator, make_descriptors
from gpubeton.errors import OptionError, StorageError
from gpubeton.fields import FloatField, IntField, RGBImageField
from gpubeton.fields.jpeg import START, decode_rgb, read_frame
from gpubeton.fields.pixels import size_of_file
from gpubeton.format.data_files import MAX_FILES, OFFSET_BITS, DataFile, first_offset
from gpubeton.format.dataset import open_dataset
from gpubeton.format.entry_points import EntryBlock, identity_of, image_fields, write_entry_points
from gpubeton.format.header import Header
from gpubeton.format.index import Index
from gpubeton.format.layout import (
    DESCRIPTOR_DTYPE,
    HEADER_DTYPE,
    IMAGE_DTYPE,
    PAGE_SIZE_DEFAULT,
    VERSION,
    ImageMode,
    metadata_dtype,
)
from gpubeton.format.regions import FieldRows

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from gpubeton._bytes import Progress
    from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
    from gpubeton._sources import LabelledSource, Places, Source
    from gpubeton.fields.base import Field

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
        found = (block for block, _, _ in find_all(index, name, 0, num_workers))
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
) -> Iterator[tuple[EntryBlock, NDArray[np.uint64], NDArray[np.bool_]]]:
    """Find the entry points of images of a field, from a sample on, CRC-32, (N,), or 0, and which are damaged, (N,)."""
    # Of `IMAGES_AT_ONCE` images of one of the files at a time.
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

        def find(start: int) -> tuple[EntryBlock, NDArray[np.uint64], NDArray[np.bool_]]:
            # The imports compile, or load machine code: writing without JPEGs does without.
            from gpubeton._cpu.jpeg.entries import find_entries
            from gpubeton._cpu.stored_bytes import compute_checksums

            rows = slice(start, start + IMAGES_AT_ONCE)
            address, memory = _load_regions(source, content, offset[rows], size[rows])
            checksums = np.zeros(len(address), np.uint64)
            if with_checksums:
                compute_checksums(address, size[rows], checksums)
            block = find_entries(address, size[rows])
            damaged = np.zeros(len(address), np.bool_)
            for row in np.flatnonzero((block.counts == 0) & (size[rows] > 0)):
                damaged[row] = _is_damaged(ctypes.string_at(int(address[row]), int(size[rows][row])))
            del memory  # it was in use until here
            return block, checksums, damaged

        yield from pool.map(find, range(first, len(size), IMAGES_AT_ONCE))


def _is_damaged(content: bytes) -> bool:
    """Return True if no library decodes a JPEG without entry points."""
    # Kinds that have none, such as progressive ones and PNG, are decoded whole each time: loaders notice themselves.
    frame = read_frame(content)
    if not content.startswith(START) or (frame is not None and frame.is_complete and not frame.is_baseline):
        return False
    try:
        decode_rgb(content)
    except Exception:  # noqa: BLE001  a library may raise anything about damaged data
        return True
    return False


def find_checksums(rows: NDArray[np.void], path: str, num_workers: int, identity: SourceIdentity) -> NDArray[np.uint32]:
    """Compute the CRC-32 of each region of a file of this machine, (R,), in the order of its allocation table."""
    from gpubeton._cpu.stored_bytes import compute_checksums  # see `find_all`

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


def _load_regions(
    source: ByteSource, content: NDArray[np.uint8] | None, offset: NDArray[np.uint64], size: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], object]:
    """Give the addresses of regions, (N,), and their memory: the mapped `content`, or what is loaded now."""
    if content is not None:
        return offset + np.uint64(content.ctypes.data), content
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


#: Images whose headers a thread reads at a time; of a store, where each takes a request.
_IMAGES_AT_ONCE, _REQUESTS_AT_ONCE = 256, 8
#: Threads that read headers, at least: they wait for disks and stores.
_READERS = 16
#: Bytes that are loaded of an image that is not mapped: nearly all headers are shorter.
_HEAD = 16 << 10


def make_index(
    source: LabelledSource,
    *,
    num_workers: int = -1,
    on_progress: Progress = lambda *_: None,
) -> tuple[Index, list[str]]:
    """Make the index of a source whose images stay where they are; name those whose headers cannot be read.

    Its metadata are those of the file that `gpubeton convert` makes of these images, if all are baseline JPEGs.
    """
    places = source.places()
    _check_places(source, places)
    fields: dict[str, Field] = {"image": RGBImageField(write_mode="jpg")}
    fields |= {name: IntField() if kind == "int" else FloatField() for name, kind in source.fields.items()}
    count = len(places.size)
    sides = _read_sides(places, num_workers, on_progress)
    row_size = metadata_dtype([field.metadata_type for field in fields.values()]).itemsize
    page_size = max(PAGE_SIZE_DEFAULT, 1 << (int(places.size.max()) - 1).bit_length())
    metadata_end = HEADER_DTYPE.itemsize + len(fields) * DESCRIPTOR_DTYPE.itemsize + count * row_size
    pages = PageAllocator(metadata_end, page_size)
    images = np.zeros(count, IMAGE_DTYPE)
    images["mode"], images["height"], images["width"] = ImageMode.JPG, *np.maximum(sides, 1).T
    images["data_ptr"] = pages.allocate(0, RegionSizes(np.ones(count, np.int64), places.size.astype(np.int64)))
    offsets = places.offset + (places.container.astype(np.uint64) << np.uint64(OFFSET_BITS))
    rows = [FieldRows(images, places.size.astype(np.uint32), offsets, has_regions=True)]
    rows += [FieldRows(np.array(source.columns[name], fields[name].metadata_type)) for name in source.fields]
    header = Header(VERSION, len(fields), page_size, count, pages.table_offset)
    names = tuple(source.class_names or ())
    descriptors = tuple(replace(field, type_id=int(field.type_id)) for field in make_descriptors(fields))
    index = Index(_files_of(places), header, descriptors, tuple(rows), class_names=names)
    return index, [source.name(sample) for sample in np.flatnonzero(sides[:, 0] == 0).tolist()]


def _check_places(source: Source, places: Places) -> None:
    """Refuse what an index cannot hold."""
    if len(places.containers) > MAX_FILES:
        raise OptionError(f"{places.containers[0][0]}: {len(places.containers)} files; expected at most {MAX_FILES}")
    if (np.diff(places.container) < 0).any():
        raise OptionError(
            f"{places.containers[0][0]}: its samples are not in the order of its files, so that it cannot be read in "
            "place. Save it in one order (of datasets: flatten_indices), or convert it: gpubeton convert"
        )
    ends = np.array([identity.size for _, identity in places.containers], np.uint64)[places.container]
    bad = np.flatnonzero((places.offset > ends) | (places.size > ends - np.minimum(places.offset, ends)))
    bad = bad if len(bad) else np.flatnonzero(places.size >= np.uint64(1 << 32))
    if len(bad):
        sample = int(bad[0])
        raise OptionError(
            f"{source.name(sample)}: {places.size[sample]} bytes at {places.offset[sample]} do not lie in its file of "
            f"{ends[sample]} bytes, or are more than 4 GiB ({len(bad)} such samples)"
        )


def _files_of(places: Places) -> tuple[DataFile, ...]:
    """Describe the containers as files of a dataset."""
    counts = np.bincount(places.container, minlength=len(places.containers)).tolist()
    starts = np.cumsum([0, *counts]).tolist()
    return tuple(
        DataFile(path, identity, PAGE_SIZE_DEFAULT, start, count, is_container=True)
        for (path, identity), start, count in zip(places.containers, starts, counts, strict=False)
    )


def _read_sides(places: Places, num_workers: int, on_progress: Progress) -> NDArray[np.int32]:
    """Read the height and width of all images, (N, 2), from their headers; 0 where there is none."""
    sides = np.zeros((len(places.size), 2), np.int32)
    done, remotes = 0, {identity.remote for _, identity in places.containers}
    requests = [remote.requests for remote in remotes if remote]
    with ThreadPoolExecutor(max(worker_count(num_workers), _READERS, *requests)) as threads:
        for number, (path, identity) in enumerate(places.containers):
            first, stop = np.searchsorted(places.container, [number, number + 1]).tolist()
            with open_bytes(path, identity, remote=identity.remote) as source:
                content = source.map() if source.is_mappable and source.size else None
                read = partial(_read_some, source, content, places, sides)
                count = _REQUESTS_AT_ONCE if identity.remote else _IMAGES_AT_ONCE
                parts = [slice(at, min(at + count, stop)) for at in range(first, stop, count)]
                for rows in threads.map(read, parts):
                    done += rows.stop - rows.start
                    on_progress(done, len(sides))
    return sides


def _read_some(
    source: ByteSource, content: NDArray[np.uint8] | None, places: Places, sides: NDArray[np.int32], rows: slice
) -> slice:
    """Read the height and width of some images of a container."""
    from gpubeton._cpu.jpeg.markers import probe_jpegs  # it compiles, or loads machine code
    from gpubeton._plan.routes import HEIGHT, PROBE_COLUMNS, WIDTH

    offset, size = places.offset[rows], places.size[rows]
    size = np.minimum(size, np.uint64(_HEAD)) if content is None else size
    address, memory = _load_regions(source, content, offset, size)
    probes = np.zeros((len(size), PROBE_COLUMNS), np.int32)
    probe_jpegs(address, size, probes)
    del memory  # it was in use until here
    sides[rows] = probes[:, [HEIGHT, WIDTH]]
    for sample in np.flatnonzero(sides[rows].min(axis=1) <= 0).tolist():
        sides[rows.start + sample] = _sides_of(source.read(int(offset[sample]), int(places.size[rows.start + sample])))
    return rows


def _sides_of(content: bytes) -> tuple[int, int]:
    """Read the height and width of an image file of any kind; 0 if it has no header that can be read."""
    try:
        return size_of_file(content)
    except Exception:  # noqa: BLE001  libraries raise all kinds; the bad-image policy decides when it is decoded
        return 0, 0
