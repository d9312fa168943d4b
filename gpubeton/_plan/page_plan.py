"""Decide which pages and ranges of files an epoch loads, in which order, and when each is let go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.file_list import FileListIdentity
from gpubeton.format.data_files import split_offsets
from gpubeton.pipeline.draw_ids import repeats_of, sample_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from gpubeton._plan.order import EpochBatches
    from gpubeton.format.data_files import DataFile
    from gpubeton.format.regions import Regions

MAX_REQUEST = 8 << 20
"""Most bytes of a request, if no region is larger than half of it."""
MAX_GAP = 256 << 10
"""Largest gap that is read through: it is cheaper than another request."""

# Samples whose ranges are merged, where pages are not loaded as a whole.
_SAMPLES_AHEAD = 1024
# Samples that are looked at together, for arrays of bounded size.
_CHUNK = 1 << 20
# Groups of batches from which the cost of an epoch is estimated.
_NUM_PROBES = 8
_NEVER = np.iinfo(np.int64).max


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
    if not len(start):
        return np.zeros(0, np.intp)
    reach = np.maximum.accumulate(stop)
    begins = np.append(0, np.flatnonzero(start[1:] - reach[:-1] > max_gap) + 1)  # of stretches without a gap
    ends = np.append(begins[1:], len(start))
    if (reach[ends - 1] - start[begins] <= max_read).all():  # as a rule
        return begins
    firsts: list[int] = []
    first = 0
    for end in ends.tolist():
        while first < end:
            firsts.append(first)
            too_far = int(np.searchsorted(reach[first:end], start[first] + max_read, side="right"))
            first += max(too_far, 1)
    return np.array(firsts, np.intp)


@dataclass(frozen=True)
class PageRange:
    """Bytes that one request loads: a page, pages that follow each other, or ranges within a page."""

    number: int  # in the epoch
    start: int  # global offset of its first byte
    stop: int
    first: int  # the batch that needs it first
    last: int  # the batch that needs it last


@dataclass(frozen=True, eq=False)
class Group:
    """What batches next to each other need first."""

    batches: range
    pages: list[PageRange]  # in the order in which they are needed
    ranges: RangePlan | None = None  # of the samples that are not in whole pages
    first_range: int = 0  # number of the page range that is range 0


@dataclass(frozen=True)
class TransferCost:
    """What an epoch asks for, estimated from some of its batches where pages are not whole."""

    samples: int
    requests: int
    fetched_bytes: int
    used_bytes: int

    @property
    def requests_per_1000(self) -> float:
        """Requests for each 1000 samples."""
        return 1000 * self.requests / max(self.samples, 1)

    @property
    def fetched_per_used(self) -> float:
        """Bytes that are loaded for each byte that is used."""
        return self.fetched_bytes / max(self.used_bytes, 1)


class PagePlan:
    """The page ranges of an epoch: a pure function of its samples, their regions and the page sizes of the files."""

    # A page of which half or more is used is loaded once as a whole, and stays until the last batch that uses it; of
    # others only ranges are loaded. So it is with all pages, if those in use at a time would take more than
    # `most_bytes`.

    # A block is a page, or the regions that begin in 4 MiB of a page larger than 8 MiB; or one of the objects that a
    # store has listed. The arrays have an entry for each block of the files.

    def __init__(
        self,
        batches: EpochBatches,
        regions: Sequence[Regions],
        files: Sequence[DataFile],
        *,
        first_batch: int = 0,
        in_work: int = 0,  # batches after a batch that are begun before its bytes are let go
        most_bytes: int | None = None,
    ) -> None:
        self._batches, self._regions = batches, regions
        self.first_batch, self._in_work = first_batch, in_work
        page_size = np.array([file.page_size for file in files])
        block_size = np.where(page_size <= MAX_REQUEST, page_size, MAX_REQUEST // 2)
        self._blocks_of_request = np.where(page_size <= MAX_REQUEST, MAX_REQUEST // block_size, 1)  # of each file
        self._shift = np.array([int(size).bit_length() - 1 for size in block_size], np.uint64)
        blocks = [(file.size >> int(shift)) + 1 for file, shift in zip(files, self._shift, strict=True)]
        self._starts: dict[int, NDArray[np.int64]] = {}  # of objects
        for number, file in enumerate(files):
            if isinstance(file.identity, FileListIdentity):
                self._starts[number] = file.identity.files.starts
                blocks[number] = max(1, len(self._starts[number]))
        self.has_objects = bool(self._starts)
        self._num_blocks, times = np.array(blocks), np.ones(len(blocks), np.int64)
        if batches.repeats_samples:  # then each time that its samples come has blocks for itself
            self._count_times(times, [file.first_sample for file in files])
        self._first_block = np.append(0, np.cumsum(self._num_blocks * times))
        self._measure_blocks()
        self._is_whole = self._used * 2 >= self._stop - self._start  # (blocks,)
        self._is_whole &= self._last >= 0
        self.whole_page_bytes = self._choose_whole()  # in use at a time, if pages are loaded as a whole
        if most_bytes is not None and self.whole_page_bytes > most_bytes:
            self._is_whole[:] = False
            self._choose_whole()
        self._has_ranges = bool((~self._is_whole & (self._last >= 0)).any())

    def _measure_blocks(self) -> None:
        """Find the extent of each block, the bytes used of it, and its first and last use in the epoch."""
        count = int(self._first_block[-1])
        self._first, self._last = np.full(count, _NEVER), np.full(count, -1)
        self._start, self._stop = np.full(count, _NEVER), np.zeros(count, np.int64)
        self._used = np.zeros(count, np.int64)
        begin = self.first_batch * self._batches.batch_size
        end = min(len(self._batches) * self._batches.batch_size, len(self._batches.order))
        for chunk in range(begin, end, _CHUNK):
            place = np.arange(chunk, min(chunk + _CHUNK, end))
            draw_ids = self._batches.draw_ids_at(slice(chunk, chunk + len(place)))
            samples, repeats = sample_ids(draw_ids), repeats_of(draw_ids)
            for regions in self._regions:
                size = regions.size[samples].astype(np.int64)
                is_solid = size > 0
                offset, size, at = regions.offset[samples][is_solid], size[is_solid], place[is_solid]
                block, start = self._blocks(offset, repeats[is_solid]), offset.astype(np.int64)
                np.minimum.at(self._first, block, at)
                np.maximum.at(self._last, block, at)
                np.minimum.at(self._start, block, start)
                np.maximum.at(self._stop, block, start + size)
                np.add.at(self._used, block, size)

    def _count_times(self, times: NDArray[np.int64], first_samples: list[int]) -> None:
        """Count how often the samples of each file, (F,), come in the epoch."""
        for chunk in range(0, len(self._batches.order), _CHUNK):
            draw_ids = self._batches.draw_ids_at(slice(chunk, chunk + _CHUNK))
            file = np.searchsorted(first_samples, sample_ids(draw_ids), side="right") - 1
            np.maximum.at(times, file, repeats_of(draw_ids) + 1)

    def _blocks(self, offset: NDArray[np.uint64], repeats: NDArray[np.int64]) -> NDArray[np.intp]:
        """Number the blocks of global offsets, (N,), of samples that come for the first time (0) or again, (N,)."""
        file, position = split_offsets(offset)
        block = (position >> self._shift[file]).astype(np.intp)
        for number, starts in self._starts.items():
            here = file == number
            block[here] = np.searchsorted(starts, position[here], "right") - 1
        numbers: NDArray[np.intp] = self._first_block[file] + repeats * self._num_blocks[file] + block
        return numbers

    def _choose_whole(self) -> int:
        """Make page ranges of the whole blocks in the order of their first use; return the bytes in use at a time."""
        blocks = np.flatnonzero(self._is_whole)
        blocks = blocks[np.argsort(self._first[blocks], kind="stable")]
        joined = self._joined(blocks)
        self._range_of = np.full(len(self._is_whole), -1, np.int32)
        self._range_of[blocks] = np.cumsum(~joined) - 1
        heads = np.flatnonzero(~joined)
        self._whole = np.zeros((4, 0), np.int64)  # start, stop, first and last batch of each
        if len(heads):
            first, last = (place // self._batches.batch_size for place in (self._first, self._last))
            columns = (np.minimum, self._start), (np.maximum, self._stop), (np.minimum, first), (np.maximum, last)
            self._whole = np.stack([choose.reduceat(column[blocks], heads) for choose, column in columns])
        return self._most_in_use(self._whole[1] - self._whole[0], *self._whole[2:])

    def _joined(self, blocks: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether each block is loaded together with the one before it, its neighbor in the file."""
        if len(blocks) < 2:
            return np.zeros(len(blocks), np.bool_)
        file = np.searchsorted(self._first_block, blocks, side="right") - 1
        # The first block of a file begins with its header, so that no region of another file is next to one there.
        follows = np.concatenate([[False], np.diff(blocks) == 1])
        run = np.arange(len(blocks)) - np.maximum.accumulate(np.where(follows, 0, np.arange(len(blocks))))
        joined: NDArray[np.bool_] = follows & (run % self._blocks_of_request[file] != 0)
        return joined

    def _most_in_use(self, amount: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64]) -> int:
        """Sum up an amount of each page range over those that are in memory together; return the largest sum."""
        if len(first) == 0:
            return 0
        first, last = first - self.first_batch, last - self.first_batch + self._in_work + 1
        length = int(last.max()) + 1
        change = np.bincount(first, amount, length) - np.bincount(last, amount, length)
        return int(np.cumsum(change).max())

    @cached_property
    def in_use(self) -> tuple[int, int]:
        """How many whole pages are in memory at a time at most, and their bytes; without those requested ahead."""
        size = self._whole[1] - self._whole[0]
        return self._most_in_use(np.ones_like(size), *self._whole[2:]), self._most_in_use(size, *self._whole[2:])

    @cached_property
    def ranges_in_use(self) -> tuple[int, int]:
        """The same for ranges, estimated from some batches."""
        counts, nbytes, step = [0], [0], self._batches_of_group
        for probe in self._probes():
            groups = range(probe, min(probe + step + self._in_work + 1, len(self._batches)), step)
            plans = [self._plan_ranges(self._group_at(first)) for first in groups]
            size = np.concatenate([(ranges.stop - ranges.start).astype(np.int64) for ranges, _, _ in plans])
            first, last = (np.concatenate(batches) for batches in zip(*(plan[1:] for plan in plans), strict=True))
            counts.append(self._most_in_use(np.ones_like(size), first, last))
            nbytes.append(self._most_in_use(size, first, last))
        return max(counts), max(nbytes)

    def _probes(self) -> range:
        """Choose the first batches of some groups, none if there are no ranges."""
        firsts = range(self.first_batch, len(self._batches), self._batches_of_group)
        return firsts[:: max(len(firsts) // _NUM_PROBES, 1)] if self._has_ranges else range(0)

    @property
    def _batches_of_group(self) -> int:
        return max(_SAMPLES_AHEAD // self._batches.batch_size, 1)

    def _group_at(self, first: int) -> range:
        """Give the batches of the group that begins with a batch."""
        return range(first, min(first + self._batches_of_group, len(self._batches)))

    def groups(self) -> Iterator[Group]:
        """Decide the page ranges of one group of batches after the other."""
        next_range = self._whole.shape[1]  # whole pages have the numbers below
        for first_batch in range(self.first_batch, len(self._batches), self._batches_of_group):
            batches = self._group_at(first_batch)
            begin, end = np.searchsorted(self._whole[2], (batches.start, batches.stop)).tolist()
            whole = _page_ranges(begin, *self._whole[:, begin:end])
            if not self._has_ranges:
                yield Group(batches, whole)
                continue
            ranges, first, last = self._plan_ranges(batches)
            pages = whole + _page_ranges(next_range, ranges.start, ranges.stop, first, last)
            yield Group(batches, sorted(pages, key=lambda page: page.first), ranges, next_range)
            next_range += len(ranges.start)

    def _plan_ranges(self, batches: range) -> tuple[RangePlan, NDArray[np.int64], NDArray[np.int64]]:
        """Merge the regions of a group that are not in whole pages; with the first and the last batch of each, (R,)."""
        start, stop = (number * self._batches.batch_size for number in (batches.start, batches.stop))
        draw_ids = self._batches.draw_ids_at(slice(start, stop))
        samples, repeats = sample_ids(draw_ids), np.tile(repeats_of(draw_ids), len(self._regions))
        place = np.arange(start, start + len(samples))
        offset = np.concatenate([regions.offset[samples] for regions in self._regions])
        size = np.concatenate([regions.size[samples] for regions in self._regions])
        size = np.where(self._is_whole[self._blocks(offset, repeats)], np.uint64(0), size)
        ranges = plan_ranges(offset, size, max_gap=MAX_GAP, max_read=MAX_REQUEST)
        batch = np.tile(place // self._batches.batch_size, len(self._regions))[ranges.source >= 0]
        source = ranges.source[ranges.source >= 0]
        first, last = np.full(len(ranges.start), _NEVER), np.full(len(ranges.start), -1)
        np.minimum.at(first, source, batch)
        np.maximum.at(last, source, batch)
        return ranges, first, last

    def find(
        self, group: Group, batch: int, offset: NDArray[np.uint64], is_filled: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Find the page range of the regions of a batch of a group, by their global offsets, (N,), which have bytes."""
        repeats = repeats_of(self._batches.draw_ids(batch))
        repeats, offset = np.tile(repeats, len(offset) // max(len(repeats), 1))[is_filled], offset[is_filled]
        number = self._range_of[self._blocks(offset, repeats)].astype(np.int64)
        if group.ranges is not None:
            among = np.searchsorted(group.ranges.start, offset, side="right") - 1
            number = np.where(number < 0, group.first_range + among, number)
        return number

    @cached_property
    def cost(self) -> TransferCost:
        """What the epoch asks for."""
        size = self._whole[1] - self._whole[0]
        requests, fetched = float(len(size)), float(size.sum())
        probes, num_groups = self._probes(), -(-(len(self._batches) - self.first_batch) // self._batches_of_group)
        for first in probes:
            ranges = self._plan_ranges(self._group_at(first))[0]
            requests += len(ranges.start) * num_groups / len(probes)
            fetched += int((ranges.stop - ranges.start).sum()) * num_groups / len(probes)
        samples = min(len(self._batches) * self._batches.batch_size, len(self._batches.order))
        samples -= self.first_batch * self._batches.batch_size
        return TransferCost(samples, round(requests), round(fetched), int(self._used.sum()))


def _page_ranges(first_number: int, *columns: NDArray[Any]) -> list[PageRange]:
    """Make numbered page ranges of columns (P,) each: start, stop, first batch, last batch."""
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [PageRange(number, *row) for number, row in enumerate(rows, start=first_number)]
