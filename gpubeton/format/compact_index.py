"""The columns of an index as one file, which all processes of a machine map.

::

    column      metadata of the first field, one row after the other
    sizes       4 bytes each: of its regions, where the metadata have none
    offsets     8 bytes each: of its regions, where the metadata have others for empty ones
    checksums   4 bytes each: CRC-32 of its regions, where the files have them; 0 if one is not known
    ...         the same of the next fields

Each begins at a multiple of 64 bytes, and is missing if the field has none. Which there are, of which length, follows
from the description of the fields, see `gpubeton.format.manifest`. Offsets are global ones.
"""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._machine import count_cores
from gpubeton.errors import FormatError
from gpubeton.format.data_files import first_offset
from gpubeton.format.field_arguments import RGB, ImageKind
from gpubeton.format.layout import FILE_MODES, IMAGE_DTYPE, PLAIN_TYPES, FieldType, ImageMode, round_up
from gpubeton.format.regions import FieldRows, pointers_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from gpubeton.format.data_files import DataFile
    from gpubeton.format.header import Descriptor
    from gpubeton.format.index import Index

BLOCK = 8 << 20
"""Bytes that have a checksum."""

_ALIGNMENT = 64
_MORE = ("sizes", np.dtype("<u4")), ("offsets", np.dtype("<u8")), ("checksums", np.dtype("<u4"))
# Samples that are checked at once, so that their intermediate arrays fit into the processor's cache.
_SAMPLES_AT_ONCE = 1 << 16


def form_of(rows: FieldRows) -> str:
    """Name what the compact index has of a field: regions, sizes, offsets, checksums."""
    more = "".join(f"+{name}" for name, _ in _MORE if getattr(rows, name) is not None)
    return "regions" * rows.has_regions + more


def _possible_forms(descriptor: Descriptor, kind: np.dtype[Any]) -> tuple[str, ...]:
    """List the forms that a field of a kind may have."""
    if descriptor.type_id in PLAIN_TYPES:
        return ("",)
    if descriptor.type_id == FieldType.CUSTOM:
        has_pointers = pointers_in(descriptor, np.zeros(1, kind)) is not None
        is_image = ImageKind.describes(descriptor.arguments) and kind == IMAGE_DTYPE
        return ("regions+sizes",) if is_image else ("", "regions+sizes") if has_pointers else ("",)
    return ("regions+sizes",) if descriptor.type_id == FieldType.RGB_IMAGE else ("regions", "regions+offsets")


def blocks_of(index: Index) -> Iterator[bytes]:
    """Give the bytes of the file, `BLOCK` at a time."""
    waiting = bytearray()
    for array in chain.from_iterable(own.arrays for own in index.rows):
        waiting += bytes(-len(waiting) % _ALIGNMENT)  # a block is a multiple of it
        content = array.reshape(-1).view(np.uint8).data
        start = 0
        while start < len(content):
            part = content[start : start + BLOCK - len(waiting)]
            waiting += part
            start += len(part)
            if len(waiting) == BLOCK:
                yield bytes(waiting)
                waiting.clear()
    if waiting:
        yield bytes(waiting)


def read_rows(
    content: NDArray[np.uint8],
    descriptors: Sequence[Descriptor],
    kinds: Sequence[np.dtype[Any]],  # metadata dtype of each field
    forms: Sequence[str],
    num_samples: int,
) -> tuple[FieldRows, ...]:
    """Read the columns as views of the file's bytes; FormatError if these do not fit."""
    found, place = [], 0
    for descriptor, kind, form in zip(descriptors, kinds, forms, strict=True):
        possible = _possible_forms(descriptor, kind)
        if form not in (*possible, *(f"{own}+checksums" for own in possible if own)):
            raise FormatError(f"field {descriptor.name!r} of type {descriptor.type_id} in the form {form!r}")
        arrays: list[NDArray[Any] | None] = []
        for dtype in (kind, *(own if name in form else None for name, own in _MORE)):
            if dtype is None:
                arrays.append(None)
                continue
            start = round_up(place, _ALIGNMENT)
            place = start + num_samples * dtype.itemsize
            if place > len(content):
                raise FormatError(f"{len(content)} bytes, which are too few for {num_samples} samples")
            flat = content[start:place].view(dtype.base)
            arrays.append(flat.reshape(num_samples, *dtype.shape) if dtype.shape else flat)
        column, sizes, offsets, checksums = arrays
        assert column is not None
        found.append(FieldRows(column, sizes, offsets, form != "", checksums))
    if place != len(content):
        raise FormatError(f"{len(content)} bytes, expected {place} for {num_samples} samples")
    return tuple(found)


def checksums_of(content: NDArray[np.uint8]) -> list[int]:
    """Compute the CRC-32 of each block."""
    with ThreadPoolExecutor(count_cores()) as threads:
        return list(threads.map(lambda at: zlib.crc32(content[at : at + BLOCK].data), range(0, len(content), BLOCK)))


def check_index(index: Index) -> None:
    """Check that every region lies in the file of its sample, and that images have as many bytes as they need."""

    def check(place: tuple[int, int]) -> None:
        number, start = place
        file = index.files[number]
        samples = slice(start, min(start + _SAMPLES_AT_ONCE, file.rows.stop))
        for descriptor, own in zip(index.descriptors, index.rows, strict=True):
            if own.has_regions:
                _check_rows(file, first_offset(number), descriptor, own, samples)

    places = [
        (number, start)
        for number, file in enumerate(index.files)
        for start in range(file.rows.start, file.rows.stop, _SAMPLES_AT_ONCE)
    ]
    with ThreadPoolExecutor(count_cores()) as threads:
        for _ in threads.map(check, places):
            pass


def _check_rows(file: DataFile, first: np.uint64, descriptor: Descriptor, own: FieldRows, samples: slice) -> None:
    part = FieldRows(
        own.column[samples],
        None if own.sizes is None else own.sizes[samples],
        None if own.offsets is None else own.offsets[samples],
        own.has_regions,
    )
    regions = part.regions(descriptor)
    assert regions is not None
    offset, size = regions.offset - first, regions.size  # one of another file becomes larger than any file
    end = np.uint64(file.size)
    is_good = (offset <= end) & (size <= end - np.minimum(offset, end))
    page = np.uint64(file.page_size.bit_length() - 1)
    is_good &= (size == 0) | (offset >> page == (offset + size - np.uint64(1)) >> page)
    mode = np.ascontiguousarray(part.column["mode"]) if part.column.dtype == IMAGE_DTYPE else None
    if mode is not None and descriptor.type_id == FieldType.RGB_IMAGE and (mode == ImageMode.JPG).all():
        is_good &= (part.column["height"] > 0) & (part.column["width"] > 0)  # of a JPEG the size tells no more
    elif mode is not None:
        height, width = (np.ascontiguousarray(part.column[name]) for name in ("height", "width"))
        kind = ImageKind.from_bytes(descriptor.arguments) if descriptor.type_id == FieldType.CUSTOM else None
        # numpy 1 would compute a number times uint16 as uint16, of which 256 times 256 is 0.
        pixels = (kind or RGB).pixel_size * width.astype(np.uint64) * height.astype(np.uint64)
        files = (ImageMode.JPG,) if kind is None else FILE_MODES
        is_good &= (pixels > 0) & (np.isin(mode, files) | (size == pixels))
        if kind is not None:
            is_good &= np.isin(mode, kind.modes)
    if not is_good.all():
        bad = np.flatnonzero(~is_good)
        raise FormatError(
            f"sample {samples.start + int(bad[0])}, field {descriptor.name!r}: a region that is not in a page of "
            f"{file.path}, or has not the size of its image ({len(bad)} such samples)"
        )
