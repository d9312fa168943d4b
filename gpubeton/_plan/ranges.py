"""Merge the byte ranges of a batch into few, large reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class RangePlan:
    """Byte ranges of a batch, and the position of each sample in them."""

    start: NDArray[np.uint64]  # (R,) first byte of each range; ascending
    stop: NDArray[np.uint64]  # (R,) the byte after its last; no range is empty
    source: NDArray[np.int64]  # (N,) the range of each sample, -1 for an empty sample
    position: NDArray[np.uint64]  # (N,) first byte of each sample within its range


def plan_ranges(offset: ArrayLike, size: ArrayLike, *, max_gap: int, max_read: int) -> RangePlan:
    """Merge ranges that are at most `max_gap` bytes apart, up to `max_read` bytes; `offset` and `size` are (N,)."""
    # Samples may repeat and overlap. One longer than `max_read` gets its own range.
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
    """Find the samples, ascending by `start`, that begin a range. Loops over ranges, not over samples."""
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
