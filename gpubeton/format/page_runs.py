"""The page of each sample's first region, in the memory of a number for each page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import AllocationError
from gpubeton.format.data_files import first_offset
from gpubeton.format.index import read_table
from gpubeton.format.layout import PLAIN_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from gpubeton.format.index import Index

# Samples that are gone through at once, so that their intermediate arrays fit into the processor's cache.
_BLOCK = 1 << 16
# Larger than any offset.
_NOWHERE = np.uint64(2**64 - 1)


@dataclass(frozen=True, eq=False)
class PageRuns:
    """Pages of samples, which are kept once for samples that follow each other in one page."""

    start: NDArray[np.int64]  # (R + 1,) the first sample of each run; then the number of samples
    page: NDArray[np.int64]  # (R,)

    @classmethod
    def join(cls, blocks: Iterable[NDArray[np.int64]]) -> PageRuns:
        """Find the runs in the pages of all samples, which come block by block, (N,) each."""
        starts, pages, count = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        for block in blocks:
            first = _changes(block)
            starts.append(first + count)
            pages.append(block[first])
            count += len(block)
        start, page = np.concatenate(starts), np.concatenate(pages)
        first = _changes(page)  # a run may go on in the next block
        return cls(np.append(start[first], count), page[first])

    def of(self, samples: NDArray[np.uint64]) -> PageRuns:
        """Find the runs of other samples, (N,), in their order."""
        return PageRuns.join([self.page[np.searchsorted(self.start, samples.astype(np.int64), side="right") - 1]])

    def to_array(self) -> NDArray[np.int64]:
        """Give the page of each sample, (N,)."""
        return np.repeat(self.page, np.diff(self.start))


def _changes(values: NDArray[np.int64]) -> NDArray[np.intp]:
    """Find where values differ from those before them; the first does."""
    return np.flatnonzero(np.concatenate([np.ones(len(values[:1]), np.bool_), values[1:] != values[:-1]]))


def page_runs(index: Index) -> PageRuns:
    """Find the page of each sample's first region, counted through all files; -1 for samples without regions."""
    runs = PageRuns.join(_pages_by_block(index))
    if runs.page.max(initial=-1) < 0:
        raise AllocationError(
            f"{index.title}: no field has data pages, which a quasi-random order is about. Use a random order."
        )
    return runs


def _pages_by_block(index: Index) -> Iterator[NDArray[np.int64]]:
    """Find the page of each sample, some samples after others; -1 for those without regions."""
    first_page = 0
    for number, file in enumerate(index.files):
        for rows, samples, offset in _first_regions(index, number):
            pages = np.full(rows.stop - rows.start, -1, np.int64)
            pages[samples - rows.start] = (offset // np.uint64(file.page_size)).astype(np.int64) + first_page
            yield pages
        first_page += file.num_pages


def _first_regions(index: Index, number: int) -> Iterator[tuple[slice, NDArray[np.intp], NDArray[np.uint64]]]:
    """Find which samples of a file have regions, and the offset in the file of the first of each, (N,)."""
    # All samples of the file are looked at, a slice after the other.
    file = index.files[number]
    fields = [index.regions(name) for name in index.names if index.has_regions(name)]
    if len(fields) < sum(descriptor.type_id not in PLAIN_TYPES for descriptor in index.descriptors):
        # Only the class of a custom field knows which of its numbers are pointers.
        table, _ = read_table(index, number)
        solid = table[table["size"] > 0][::-1]  # of several assignments to one sample the last one stays
        yield file.rows, solid["sample_id"].astype(np.intp), solid["ptr"] - first_offset(number)
        return
    for start in range(file.rows.start, file.rows.stop, _BLOCK):
        rows = slice(start, min(start + _BLOCK, file.rows.stop))
        first = np.full(rows.stop - start, _NOWHERE)
        for regions in fields:
            np.minimum(first, regions.offset[rows], out=first, where=regions.size[rows] > 0)
        filled = np.flatnonzero(first != _NOWHERE)
        yield rows, filled + start, first[filled] - first_offset(number)
