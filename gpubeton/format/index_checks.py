"""Check an index that was stored: each region lies in the file of its sample, and no two share some of their bytes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._machine import count_cores
from gpubeton.errors import FormatError
from gpubeton.format.data_files import first_offset
from gpubeton.format.field_arguments import RGB, ImageKind
from gpubeton.format.layout import FILE_MODES, IMAGE_DTYPE, FieldType, ImageMode
from gpubeton.format.regions import FieldRows

if TYPE_CHECKING:
    from gpubeton.format.data_files import DataFile
    from gpubeton.format.header import Descriptor
    from gpubeton.format.index import Index

# Samples that are checked at once, so that their intermediate arrays fit into the processor's cache.
_SAMPLES_AT_ONCE = 1 << 16


def check_index(index: Index) -> None:
    """Check that every region lies in the file of its sample, and that images have as many bytes as they need."""

    def check(block: tuple[int, int]) -> None:
        number, start = block
        file = index.files[number]
        samples = slice(start, min(start + _SAMPLES_AT_ONCE, file.rows.stop))
        for descriptor, rows in zip(index.descriptors, index.rows, strict=True):
            if rows.has_regions:
                _check_rows(file, first_offset(number), descriptor, rows, samples)

    blocks = [
        (number, start)
        for number, file in enumerate(index.files)
        for start in range(file.rows.start, file.rows.stop, _SAMPLES_AT_ONCE)
    ]
    with ThreadPoolExecutor(count_cores()) as threads:
        for _ in threads.map(check, blocks):
            pass


def _check_rows(file: DataFile, first: np.uint64, descriptor: Descriptor, rows: FieldRows, samples: slice) -> None:
    part = FieldRows(
        rows.column[samples],
        None if rows.sizes is None else rows.sizes[samples],
        None if rows.offsets is None else rows.offsets[samples],
        rows.has_regions,
    )
    regions = part.regions(descriptor)
    assert regions is not None
    offset, size = regions.offset - first, regions.size  # one of another file becomes larger than any file
    end = np.uint64(file.size)
    is_good = (offset <= end) & (size <= end - np.minimum(offset, end))
    page = np.uint64(file.page_size.bit_length() - 1)
    is_good &= (size == 0) | file.is_container | (offset >> page == (offset + size - np.uint64(1)) >> page)
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


def check_overlaps(index: Index) -> None:
    """Refuse regions that share some of their bytes; several samples may have the same ones."""
    for name in index.names:
        if not index.has_regions(name):
            continue
        regions = index.regions(name)
        start, stop = regions.offset, regions.offset + regions.size
        if np.all(stop[:-1] <= start[1:]):
            continue
        order = np.lexsort((stop, start))
        start, stop = start[order], stop[order]
        is_new = np.append(True, (start[1:] != start[:-1]) | (stop[1:] != stop[:-1]))
        start, stop, order = start[is_new], stop[is_new], order[is_new]
        bad = np.flatnonzero((stop[:-1] > start[1:]) & (start[1:] < stop[1:]))
        if len(bad):
            first, second = order[bad[0]], order[bad[0] + 1]
            raise FormatError(
                f"samples {first} and {second}, field {name!r}: their values share bytes ({len(bad)} such pairs)"
            )
