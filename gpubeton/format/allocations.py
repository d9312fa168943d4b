"""The allocation table: where the regions of a ``.beton`` file are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import AllocationError, RegionError, RegionOverlapError, TruncatedError
from gpubeton.format.layout import ALLOCATION_DTYPE, round_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.format.header import Header

__all__ = ["Allocations"]


@dataclass(frozen=True)
class Allocations:
    """The checked allocation table of a file.

    Parameters
    ----------
    rows : ndarray of ALLOCATION_DTYPE, shape (R,)
        Every row, sorted by pointer. FFCV's writer leaves them in the order in
        which its processes ended.
    ptr, size, sample_id : ndarray of uint64, shape (S,)
        Columns of the rows that are not empty; `ptr` is contiguous. Their
        pointers are all different.
    """

    rows: NDArray[np.void]
    ptr: NDArray[np.uint64]
    size: NDArray[np.uint64]
    sample_id: NDArray[np.uint64]

    @classmethod
    def check(cls, path: str, header: Header, metadata_end: int, table: NDArray[np.uint8]) -> Allocations:
        """Check a table and sort it.

        Parameters
        ----------
        path : str
            Named in errors.
        header : Header
            Says how large pages are and where the table begins.
        metadata_end : int
            Where the metadata ends; pages begin at the next multiple of the page size.
        table : ndarray of uint8, shape (bytes,)
            Everything from `header.alloc_table_ptr` to the end of the file. It becomes the memory of `rows`.

        Returns
        -------
        Allocations
            All rows lie in the data pages and none overlap.

        Raises
        ------
        TruncatedError
            If the last row is not complete.
        AllocationError
            If a row belongs to no sample.
        RegionError
            If a region lies outside the data pages or crosses into the next page.
        RegionOverlapError
            If two regions share bytes.
        """
        if len(table) % ALLOCATION_DTYPE.itemsize:
            raise TruncatedError(
                f"{path}: the allocation table has {len(table)} bytes, which is not a multiple of "
                f"{ALLOCATION_DTYPE.itemsize}. The file was cut short, or something was appended to it."
            )
        rows = table.view(ALLOCATION_DTYPE)
        _sort(rows)
        rows.setflags(write=False)
        _check_samples(path, header, rows)
        _check_places(path, header, metadata_end, rows)
        is_solid = rows["size"] > 0
        solid = rows if is_solid.all() else rows[is_solid]
        # Only pointers are searched, which is faster in contiguous memory.
        solid_rows = cls(rows, np.ascontiguousarray(solid["ptr"]), solid["size"], solid["sample_id"])
        _check_overlaps(path, solid_rows)
        return solid_rows

    def find(self, ptr: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Find the rows that begin at given places.

        Parameters
        ----------
        ptr : ndarray of uint64, shape (N,)
            Offsets in the file.

        Returns
        -------
        ndarray of intp, shape (N,)
            Positions in `ptr`, `size` and `sample_id`; -1 where no region begins.
        """
        if len(self.ptr) == 0:
            return np.full(len(ptr), -1, np.intp)
        row = np.minimum(np.searchsorted(self.ptr, ptr), len(self.ptr) - 1)
        row[self.ptr[row] != ptr] = -1
        return row


def _sort(rows: NDArray[np.void]) -> None:
    """Sort rows by pointer, where they are."""
    ptr = np.ascontiguousarray(rows["ptr"])
    if np.all(ptr[:-1] <= ptr[1:]):
        return
    # FFCV's table is one sorted run per process, which a stable sort merges ten times faster than others sort it.
    order = np.argsort(ptr, kind="stable")
    numbers = rows.view("<u8").reshape(-1, 3)
    numbers[:] = numbers[order]


def _check_samples(path: str, header: Header, rows: NDArray[np.void]) -> None:
    bad = np.flatnonzero(rows["sample_id"] >= np.uint64(header.num_samples))
    if len(bad):
        row = rows[bad[0]]
        raise AllocationError(
            f"{path}: the allocation table names sample {row['sample_id']}, but there are {header.num_samples} samples "
            f"({len(bad)} such rows). Something was appended to the file, or the number of samples in its header is "
            "wrong."
        )


def _check_places(path: str, header: Header, metadata_end: int, rows: NDArray[np.void]) -> None:
    """Every region has to lie between the metadata and the table, and within one page."""
    start, stop = round_up(metadata_end, header.page_size), header.alloc_table_ptr
    ptr, size = rows["ptr"], rows["size"]
    # Written without ptr + size, which may pass 2**64.
    fits = (size <= np.uint64(stop)) & (ptr <= np.uint64(stop) - np.minimum(size, np.uint64(stop)))
    # FFCV gives an empty region the pointer 0 when nothing was written before it.
    fits &= (size == 0) | (ptr >= np.uint64(min(start, stop)))
    bad = np.flatnonzero(~fits)
    if len(bad):
        row = rows[bad[0]]
        raise RegionError(
            f"{path}: sample {row['sample_id']}: a region of {row['size']} bytes at {row['ptr']} lies outside the data "
            f"pages {start}..{stop} ({len(bad)} such regions). The allocation table is damaged; "
            "compare the file with the original."
        )
    shift = np.uint64(header.page_size.bit_length() - 1)
    last = ptr + np.maximum(size, np.uint64(1)) - np.uint64(1)
    bad = np.flatnonzero((size > 0) & (ptr >> shift != last >> shift))
    if len(bad):
        row = rows[bad[0]]
        raise RegionError(
            f"{path}: sample {row['sample_id']}: a region of {row['size']} bytes at {row['ptr']} crosses the end of "
            f"its page of {header.page_size} bytes ({len(bad)} such regions). The page size in the header is wrong."
        )


def _check_overlaps(path: str, allocations: Allocations) -> None:
    ptr, size = allocations.ptr, allocations.size
    bad = np.flatnonzero(ptr[:-1] + size[:-1] > ptr[1:])
    if len(bad):
        first, second = int(bad[0]), int(bad[0]) + 1
        raise RegionOverlapError(
            f"{path}: the region of sample {allocations.sample_id[first]} (bytes {ptr[first]}.."
            f"{ptr[first] + size[first]}) and that of sample {allocations.sample_id[second]} (from {ptr[second]}) "
            f"share bytes ({len(bad)} such pairs). The allocation table is damaged; compare the file with the original."
        )
