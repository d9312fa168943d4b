"""Placement: decides where in the pages each sample goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import PageSizeError
from gpubeton.format.layout import ALLOCATION_DTYPE, PAGE_SIZE_MAX, PAGE_SIZE_MIN, round_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.writing.extent import Extent

__all__ = ["Placement", "checked_page_size"]


def checked_page_size(page_size: int) -> int:
    """Check the size of pages.

    Parameters
    ----------
    page_size : int
        Bytes of a page.

    Returns
    -------
    int
        The same.

    Raises
    ------
    PageSizeError
        If the format knows no such pages.
    """
    if not PAGE_SIZE_MIN <= page_size < PAGE_SIZE_MAX or page_size & (page_size - 1):
        raise PageSizeError(
            f"page_size is {page_size}, expected a power of two from {PAGE_SIZE_MIN} up to {PAGE_SIZE_MAX // 2}"
        )
    return page_size


class Placement:
    """Fills pages with samples, one after the other, and keeps the allocation table.

    All regions of a sample stand in one page: a sample that does not fit in
    what is left of a page begins the next. That is where FFCV's writer with a
    single process puts them. Decides only; writes nothing.

    Parameters
    ----------
    metadata_end : int
        Where the metadata ends. Pages begin at the next multiple of `page_size`.
    page_size : int
        Bytes of a page.

    Examples
    --------
    >>> from gpubeton.writing.extent import Extent
    >>> placement = Placement(metadata_end=1000, page_size=4096)
    >>> placement.place(0, Extent.of([[3000], [1000], [500]])).tolist()
    [4096, 7096, 8192]
    >>> placement.table_offset, placement.table["size"].tolist()
    (12288, [3000, 1000, 500])
    """

    def __init__(self, metadata_end: int, page_size: int) -> None:
        self._metadata_end = metadata_end
        self._page_size = page_size
        # No page has been begun: the first sample finds no room left.
        self._position = self._page_end = round_up(metadata_end, page_size)
        self._rows: list[NDArray[np.void]] = []

    @property
    def position(self) -> int:
        """Where the next sample goes, if it fits in what is left of the page."""
        return self._position

    @property
    def table_offset(self) -> int:
        """Where the allocation table goes: behind the last page, or behind the metadata if there is none."""
        return self._page_end if self._rows else self._metadata_end

    @property
    def table(self) -> NDArray[np.void]:
        """The allocation table so far: ALLOCATION_DTYPE, shape (R,)."""
        return np.concatenate([np.empty(0, ALLOCATION_DTYPE), *self._rows])

    def place(self, first_row: int, extent: Extent) -> NDArray[np.uint64]:
        """Decide where the next samples go.

        Parameters
        ----------
        first_row : int
            Row of the file of the first of them.
        extent : Extent
            Sizes of their regions.

        Returns
        -------
        ndarray of uint64, shape (N,)
            Where the first region of each sample begins.

        Raises
        ------
        ValueError
            If a sample is larger than a page.
        """
        room = extent.room_of_samples
        if room.max(initial=0) > self._page_size:
            raise ValueError(f"a sample of {room.max()} bytes in pages of {self._page_size}")
        ends = np.concatenate([[0], np.cumsum(room)])
        offset = np.empty(len(extent.counts), np.uint64)
        done = 0
        while True:
            left = self._page_end - self._position
            fitting = int(np.searchsorted(ends, ends[done] + left, side="right")) - 1
            offset[done:fitting] = self._position + ends[done:fitting] - ends[done]
            self._position += int(ends[fitting] - ends[done])
            done = fitting
            if done == len(offset):
                break
            self._position = self._page_end
            self._page_end += self._page_size
        if len(extent.sizes):
            rows = np.empty(len(extent.sizes), ALLOCATION_DTYPE)
            rows["sample_id"] = first_row + extent.owners
            rows["ptr"] = extent.pointers(offset)
            rows["size"] = extent.sizes
            self._rows.append(rows)
        return offset
