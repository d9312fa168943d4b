"""Check the regions of a stored index: those of a manifest, or of an index of containers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._machine import count_cores
from gpubeton.errors import FormatError
from gpubeton.format.data_files import first_offset
from gpubeton.format.layout import IMAGE_DTYPE
from gpubeton.format.regions import SAMPLES_AT_ONCE, FieldPlace, check_images

if TYPE_CHECKING:
    from gpubeton.format.header import Descriptor
    from gpubeton.format.index import Index


def check_index(index: Index) -> None:
    """Check that every region lies in the file of its sample, and that images have as many bytes as they need."""

    def check(block: tuple[int, int]) -> None:
        number, start = block
        for descriptor in index.descriptors:
            if index.has_regions(descriptor.name):
                _check_stored(index, number, descriptor, start)

    blocks = [
        (number, start)
        for number, file in enumerate(index.files)
        for start in range(file.rows.start, file.rows.stop, SAMPLES_AT_ONCE)
    ]
    with ThreadPoolExecutor(count_cores()) as threads:
        for _ in threads.map(check, blocks):
            pass


def _check_stored(index: Index, number: int, descriptor: Descriptor, start: int) -> None:
    """Check the regions of some samples of a file, from `start` on."""
    file, regions = index.files[number], index.regions(descriptor.name)
    samples = slice(start, min(start + SAMPLES_AT_ONCE, file.rows.stop))
    column, size = index.column(descriptor.name)[samples], regions.size[samples]
    offset = regions.offset[samples] - first_offset(number)  # one of another file becomes larger than any file
    end = np.uint64(file.size)
    is_good = (offset <= end) & (size <= end - np.minimum(offset, end))
    page = np.uint64(file.page_size.bit_length() - 1)
    is_good &= (size == 0) | file.is_container | (offset >> page == (offset + size - np.uint64(1)) >> page)
    if not is_good.all():
        bad = np.flatnonzero(~is_good)
        raise FormatError(
            f"sample {start + int(bad[0])}, field {descriptor.name!r}: a region that is not in a page of {file.path} "
            f"({len(bad)} such samples)"
        )
    if column.dtype == IMAGE_DTYPE:
        check_images(FieldPlace(file.path, descriptor.name, first=start - file.first_sample), descriptor, column, size)


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
