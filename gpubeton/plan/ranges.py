"""Ranges: which spans of the file are read for a batch, few and large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class RangePlan:
    """Byte ranges of a batch, and where each sample lies in them.

    Parameters
    ----------
    start, stop : ndarray of uint64, shape (R,)
        First byte of each range in the file, and the byte after its last; ascending and not empty.
    source : ndarray of int64, shape (N,)
        Range in which each sample lies, -1 for a sample of no bytes.
    position : ndarray of uint64, shape (N,)
        First byte of each sample within its range.
    """

    start: NDArray[np.uint64]
    stop: NDArray[np.uint64]
    source: NDArray[np.int64]
    position: NDArray[np.uint64]


def plan_ranges(offset: ArrayLike, size: ArrayLike, *, max_gap: int, max_read: int) -> RangePlan:
    """Merge the byte ranges of one batch into few, large reads.

    Decides only: opens no file, allocates nothing on the GPU.

    Parameters
    ----------
    offset : array_like of uint64, shape (N,)
        First byte of each sample in the file, in batch order. Samples may repeat and overlap.
    size : array_like of uint64, shape (N,)
        Length of each sample in bytes.
    max_gap : int
        Bytes between two samples that are read along rather than skipped.
    max_read : int
        Longest range in bytes; a sample that is longer has a range of its own.

    Returns
    -------
    RangePlan
        The ranges, in the file's order.

    Raises
    ------
    OptionError
        If `offset` and `size` differ in shape, `max_gap` is negative or `max_read` is not positive.

    Examples
    --------
    >>> plan = plan_ranges(np.array([90_000, 0], "u8"), np.array([10, 4_000], "u8"), max_gap=64, max_read=1 << 20)
    >>> list(zip(plan.start.tolist(), plan.stop.tolist()))
    [(0, 4000), (90000, 90010)]
    """
    offset, size = np.asarray(offset, np.uint64), np.asarray(size, np.uint64)
    if offset.shape != size.shape or offset.ndim != 1:
        raise OptionError(f"offset and size have shapes {offset.shape} and {size.shape}; expected one of each a sample")
    if max_gap < 0 or max_read < 1:
        raise OptionError(f"max_gap is {max_gap} and max_read {max_read}; expected at least 0 and at least 1")
    filled = np.flatnonzero(size)
    order = filled[np.argsort(offset[filled], kind="stable")]
    start = offset[order].astype(np.int64)
    stop = start + size[order].astype(np.int64)
    first = _first_of_ranges(start, stop, max_gap, max_read)
    source = np.full(len(offset), -1, np.int64)
    position = np.zeros(len(offset), np.uint64)
    if len(order):
        number = np.zeros(len(order), np.int64)
        number[first[1:]] = 1
        source[order] = np.cumsum(number)
        position[order] = start - start[first][source[order]]
        stop = np.maximum.reduceat(stop, first)
    return RangePlan(start[first].astype(np.uint64), stop.astype(np.uint64), source, position)


def _first_of_ranges(
    start: NDArray[np.int64], stop: NDArray[np.int64], max_gap: int, max_read: int
) -> NDArray[np.intp]:
    """The samples, ascending by `start`, that begin a range. Loops over ranges, not over samples."""
    reach = np.maximum.accumulate(stop)
    after_gap = np.flatnonzero(start[1:] - reach[:-1] > max_gap) + 1
    firsts: list[int] = []
    ends = [*after_gap.tolist(), len(start)]
    first = 0
    for end in ends:
        while first < end:
            firsts.append(first)
            too_far = int(np.searchsorted(reach[first:end], start[first] + max_read, side="right"))
            first += max(too_far, 1)
    return np.array(firsts, np.intp)
