"""Orders of the samples of an epoch, and their batches.

Each of several ranks gets an equal share; samples are repeated where they cannot be shared evenly, as torch's
``DistributedSampler`` does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gpubeton._plan.philox import sort_keys
from gpubeton._plan.places import Places, Rank, StreamPlaces
from gpubeton.errors import OptionError
from gpubeton.pipeline.draw_ids import sample_ids

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from gpubeton.format.index import PageRuns

Ids: TypeAlias = "NDArray[np.uint64]"

_PAGE_STREAM, _SAMPLE_STREAM, _WEIGHTED_STREAM, WINDOW_STREAM, _NODE_STREAM = 1, 2, 3, 4, 5
_LOG_2 = 0.6931471805599453
_NUM_TERMS = 12  # of the logarithm's series: the next one is below 2**-64 of the first
_PAGE_BITS = 24  # fractions of a page in a key of the window order
_LEAST_BLOCK = 1 << 16  # places: numpy's calls for each stream cost more than the work for few samples


class LazyIds(ABC):
    """Ids in an order that has no array of them all; numpy makes one where it needs it."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, places: slice) -> NDArray[Any]:
        """Give the ids at some places that follow each other, (N,)."""

    @abstractmethod
    def share(self, first: int, step: int, count: int) -> LazyIds:
        """Give every step-th id, `count` of them, from place `first` on; the first id follows the last."""

    @property
    def repeats_samples(self) -> bool:
        """Whether `draw_ids` differ from the ids."""
        return False

    def at(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """Give the ids at some places, (N,), which rise."""
        return self[:][places]

    def draw_ids(self, places: slice) -> NDArray[Any]:
        """Give the ids at some places that follow each other, (N,); with their number if samples are repeated."""
        return self[places]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(np.uint64 if dtype is None else dtype, copy=False)


@dataclass(frozen=True)
class IdRange(LazyIds):
    """All ids from 0 on, or every `step`-th of them."""

    total: int  # ids there are; the first follows the last
    first: int = 0
    step: int = 1
    count: int = -1  # of this range; all, if it is negative

    def __len__(self) -> int:
        return self.total if self.count < 0 else self.count

    def __getitem__(self, places: slice | NDArray[Any]) -> Ids:
        """Give the ids at some places, (N,)."""
        if isinstance(places, slice):
            places = np.arange(*places.indices(len(self)))
        ids: Ids = (self.first + self.step * places).astype(np.uint64) % np.uint64(max(self.total, 1))
        return ids

    def at(self, places: NDArray[np.int64]) -> Ids:
        return self[places]

    def share(self, first: int, step: int, count: int) -> IdRange:
        """Give a range of all ids from place `first` on."""
        return IdRange(self.total, first, step, count)

    @cached_property
    def array(self) -> Ids:
        """The ids, (N,); it stays in memory, and cannot be changed."""
        ids = self[:]
        ids.setflags(write=False)
        return ids


def rows_of(ids: Ids | IdRange) -> slice | NDArray[np.int64]:
    """Give what selects the rows of ids from an array that has a row for each: all without a copy."""
    return slice(0, ids.total) if isinstance(ids, IdRange) and ids == IdRange(ids.total) else np.asarray(ids, np.int64)


def share(ids: NDArray[Any] | LazyIds, rank: Rank | None, first: int = 0) -> NDArray[Any] | LazyIds:
    """Give a rank its part of the ids of all ranks, (N,): every world-th from place `first` on."""
    # The ids are repeated from the start until all ranks have the same number. Without ranks: all from `first` on.
    if rank is None:
        rank = Rank(0, 1)
    rest = rank.share(max(len(ids) - first, 0))
    if isinstance(ids, LazyIds):
        return ids.share(first + rank.number, rank.world, rest)
    if rank.world == 1:
        return ids[first:]
    return ids[(first + rank.number + rank.world * np.arange(rest)) % max(len(ids), 1)]


def random(indices: ArrayLike | IdRange, seed: int, epoch: int, *, for_ranks: bool = False) -> NDArray[Any]:
    """Shuffle the ids, (N,), by `seed` + `epoch`: with numpy, or with torch for ranks. The same as FFCV's order."""
    # FFCV fixes the numbers, so that the whole order has to be made: of all ids in place, in `id_dtype`.
    ids = indices if isinstance(indices, IdRange) else np.asarray(indices, np.uint64)
    if for_ranks:
        import torch

        generator = torch.Generator()
        generator.manual_seed(seed + epoch)
        # Torch draws the same numbers for any dtype.
        dtype = torch.int32 if len(ids) <= 1 << 31 else torch.int64
        places = torch.randperm(len(ids), generator=generator, dtype=dtype).numpy()
        shuffled: NDArray[Any] = places.view(f"u{places.itemsize}") if isinstance(ids, IdRange) else ids[places]
        return shuffled
    if isinstance(ids, IdRange):
        shuffled = np.arange(len(ids), dtype=id_dtype(len(ids)))
        np.random.default_rng(seed + epoch).shuffle(shuffled)  # as its `permutation` does with a copy
        return shuffled
    return np.random.default_rng(seed + epoch).permutation(ids)


def id_dtype(total: int) -> np.dtype[Any]:
    """Give the smallest dtype that orders of so many ids are kept in."""
    return np.dtype(np.uint32 if total <= 1 << 32 else np.uint64)


def ids_and_runs(ids: ArrayLike | IdRange, runs: PageRuns) -> tuple[Ids | IdRange, PageRuns]:
    """Give ids, (N,), with the runs of their pages among those of all samples."""
    if isinstance(ids, IdRange):
        return ids, runs
    ids = np.asarray(ids, np.uint64)
    return ids, runs.of(ids)


def cut_for_nodes(
    runs: PageRuns, nodes: int
) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64], NDArray[np.intp]]:
    """Deal samples to virtual nodes, page by page: of each part of a run the run, first sample, size and node, (P,)."""
    # The pages are shuffled, the same way for all seeds and epochs, and their samples cut into equal parts. So a page
    # at a border belongs to two nodes, and each node has as many samples as any other, or one more.
    keys = sort_keys(0, 0, _NODE_STREAM, int(runs.page.max(initial=0)) + 1)
    order = np.argsort(keys[runs.page], kind="stable")
    end = np.cumsum(np.diff(runs.start)[order])
    total = int(runs.start[-1])
    last = part_begin(np.arange(1, nodes + 1), total, nodes)
    stop = np.union1d(end, last[last > 0])
    size, which = np.diff(stop, prepend=0), np.searchsorted(end, stop)
    run = order[which]
    return run, runs.start[run + 1] - (end[which] - stop) - size, size, np.searchsorted(last, stop)


def part_begin(number: ArrayLike, total: int, nodes: int) -> NDArray[np.int64]:
    """Give the first sample of parts, (N,), of which all have as many or one more: as np.array_split cuts."""
    number = np.asarray(number, np.int64)
    begin: NDArray[np.int64] = number * (total // nodes) + np.minimum(number, total % nodes)
    return begin


class ShuffledPages:
    """Samples by the turns of their pages, which are shuffled; in the memory of a number for each run of samples."""

    def __init__(self, ids: Ids | IdRange, runs: PageRuns, seed: int, epoch: int, nodes: int | None = None) -> None:
        # `runs`: of the pages of the ids, one after the other. `nodes`: the turns of one virtual node's pages come
        # before those of the next's; a page that two of them share has two.
        pages, page = np.unique(runs.page, return_inverse=True)
        shuffled = np.argsort(sort_keys(seed, epoch, _PAGE_STREAM, len(pages)), kind="stable")
        turn = np.empty(len(pages), np.intp)
        turn[shuffled] = np.arange(len(pages))
        turn, first, size = turn[page], runs.start[:-1], np.diff(runs.start)
        if nodes is not None:
            run, first, size, node = cut_for_nodes(runs, nodes)
            pages, turn = np.unique(node * len(pages) + turn[run], return_inverse=True)
        by_turn = np.argsort(turn, kind="stable")
        self.num_pages = len(pages)
        # Of each run, in the order of the turns, (R,):
        self.turn = turn[by_turn]
        self.begin = np.append(0, np.cumsum(size[by_turn]))  # (R + 1,) samples before it
        self._first = first[by_turn]
        self._ids = ids

    def runs_at(self, place: NDArray[np.int64]) -> NDArray[np.intp]:
        """Find the run of each place among the samples by turn, (N,)."""
        return np.searchsorted(self.begin, place, side="right") - 1

    def ids_at(self, place: NDArray[np.int64], run: NDArray[np.intp]) -> Ids:
        """Give the ids at some places among the samples by turn, (N,), of which the runs are known, (N,)."""
        return self._ids[self._first[run] + place - self.begin[run]]


def quasi_random(
    ids: Ids | IdRange, runs: PageRuns, batch_size: int, seed: int, epoch: int, rank: Rank | None = None
) -> Ids:
    """Shuffle the ids, (N,), so that few of their pages, `runs`, are needed at a time."""
    # The pages are shuffled and split into groups of at most ``2 * batch_size``; the shuffled samples of a group come
    # before those of the next. So at most ``2 * batch_size`` pages are open while a batch is made: a page is open from
    # the batch with the first of its samples to the batch with the last.
    #
    # Each rank gets a consecutive part of the shuffled pages. A page at the border of two parts is shared.
    if batch_size < 1:
        raise OptionError(f"batch_size is {batch_size}; expected at least 1")
    if runs.start[-1] != len(ids):
        raise OptionError(f"{runs.start[-1]} pages for {len(ids)} samples; expected the page of each sample")
    share = len(ids) if rank is None else rank.share(len(ids))
    first = 0 if rank is None else rank.number * share
    shuffled, place = ShuffledPages(ids, runs, seed, epoch), np.arange(first, first + share) % max(len(ids), 1)
    run = shuffled.runs_at(place)
    is_read = np.zeros(len(shuffled.turn), np.bool_)
    is_read[run] = True
    group = np.zeros(len(is_read), np.uint64)
    # Groups of nearly equal size, in shuffled order.
    distinct, ordinal = np.unique(shuffled.turn[is_read], return_inverse=True)
    group[is_read] = ordinal * -(-len(distinct) // (2 * batch_size)) // max(len(distinct), 1)
    # Groups in the upper bits, chance in the lower: one sort does both.
    keys = sort_keys(seed, epoch, _SAMPLE_STREAM, share, first)
    keys >>= np.uint64(24)
    keys |= (group << np.uint64(40))[run]
    chosen = np.argsort(keys, kind="stable")
    del keys  # three arrays are as large
    return shuffled.ids_at(place[chosen], run[chosen])


# --- the window order -------------------------------------------------------------------------------------------------
#
# Samples are shuffled so that each of several streams of them needs few of their pages at a time.
#
# The pages are shuffled; their samples in this order are cut into one part for each stream. Within a stream a sample's
# key is the turn of its page plus a random number from 0 to `width` pages, so a page is in use for about `width` pages
# of the stream. The streams take turns: place p of the epoch is row p // streams of stream p % streams, so a rank of a
# world that divides `streams` has streams that no other rank reads, if it takes every world-th place. In other worlds,
# each batch of all ranks is sorted by stream and cut into one part for each rank, which shares streams with two others.
#
# The ranks of a node do not get neighboring streams: these share only the page at their border, and no order of the
# streams makes neighbors of them for all numbers of ranks in a node.
#
# The arrays that stay have an entry for each page, or one for each run of samples where the pages of a file are
# scattered. Shuffling the pages without any would be another order, for a tenth of a byte a sample.


class WindowOrder:
    """The window order of an epoch, any part of which can be found at the cost of the part and of a window."""

    def __init__(
        self,
        ids: Ids | IdRange,
        runs: PageRuns,  # of the pages of the ids, one after the other
        streams: int,
        width: int,
        seed: int,
        epoch: int,
        *,
        keeps_pages: bool = False,  # whether a stream is a virtual node: it has the same pages in all epochs
    ) -> None:
        self.streams, self.width, self.total = streams, width, len(ids)
        self._seed, self._epoch = seed, epoch
        self.dtype = id_dtype(ids.total if isinstance(ids, IdRange) else int(ids.max(initial=0)) + 1)
        self._shuffled = ShuffledPages(ids, runs, seed, epoch, streams if keeps_pages else None)
        self.window = 2 * width * streams * -(-self.total // max(self._shuffled.num_pages, 1))  # samples, about

    def at(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """Give the ids at some places of the epoch, (N,), which rise in each stream."""
        stream, row = places % self.streams, places // self.streams
        by_stream = np.argsort(stream, kind="stable")
        ids = np.empty(len(places), self.dtype)
        for chosen in np.split(by_stream, np.flatnonzero(np.diff(stream[by_stream])) + 1):
            rows = row[chosen]
            ids[chosen] = self._rows(int(stream[chosen[0]]), int(rows[0]), int(rows[-1]) + 1)[rows - rows[0]]
        return ids

    def _rows(self, stream: int, start: int, stop: int) -> Ids:
        """Give the ids in some rows of a stream."""
        begin, end = part_begin([stream, stream + 1], self.total, self.streams).tolist()
        # Sorting by key moves no sample past those whose pages' turns are `width` or more away. So the samples of these
        # rows have turns less than that away from the turns of the rows before sorting; all others of the stream come
        # before `start` if their turns are lower, and after `stop` if they are higher.
        shuffled, turn = self._shuffled, self._shuffled.turn
        lowest, highest = turn[shuffled.runs_at(np.array([begin + start, begin + stop - 1]))]
        low = max(begin, int(shuffled.begin[np.searchsorted(turn, lowest - self.width + 1)]))
        high = min(end, int(shuffled.begin[np.searchsorted(turn, highest + self.width)]))
        place = np.arange(low, high)
        run = shuffled.runs_at(place)
        keys = sort_keys(self._seed, self._epoch, WINDOW_STREAM, high - low, low) >> np.uint64(64 - _PAGE_BITS)
        keys = keys * np.uint64(self.width) + (turn[run].astype(np.uint64) << np.uint64(_PAGE_BITS))
        chosen = np.argsort(keys, kind="stable")[start - (low - begin) : stop - (low - begin)]
        return shuffled.ids_at(place[chosen], run[chosen])


@dataclass(frozen=True, eq=False)
class WindowIds(LazyIds):
    """Ids in the window order, or those at some of its places, of which only the blocks used last are in memory."""

    order: WindowOrder
    places: Places | StreamPlaces
    _blocks: dict[int, NDArray[Any]] = field(default_factory=dict, init=False)  # blocks by number, the newest last

    @classmethod
    def all(cls, order: WindowOrder) -> WindowIds:
        """Give all ids."""
        return cls(order, Places(order.total))

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, places: slice) -> NDArray[Any]:
        start, stop, step = places.indices(len(self))
        size = self._block_size
        numbers = range(start // size, -(-stop // size) if stop > start else 0)
        parts = [self._block(number)[max(start - number * size, 0) : stop - number * size] for number in numbers]
        return np.concatenate([np.zeros(0, np.uint32), *parts])[::step]

    def at(self, places: NDArray[np.int64]) -> NDArray[Any]:
        assert self.places == Places(self.order.total), "places are those of all ids"
        return self.order.at(places)

    def share(self, first: int, step: int, count: int) -> WindowIds:
        """Give every step-th id, `count` of them, from place `first` on; the first id follows the last."""
        assert self.places == Places(self.order.total), "shares are of all ids"
        return WindowIds(self.order, Places(count, first, step))

    @property
    def _block_size(self) -> int:
        # As many as a window: then half of the samples that are sorted for a block are in it.
        return -(-max(self.order.window, _LEAST_BLOCK) // self.places.step)

    def _block(self, number: int) -> NDArray[Any]:
        """Give the ids of one block, (N,)."""
        ids = self._blocks.get(number)
        if ids is None:
            start = number * self._block_size
            turn, place = np.divmod(self.places[start : start + self._block_size], self.order.total)
            ids = np.empty(len(place), self.order.dtype)
            # Repeated samples are from the start of the epoch, a window for itself.
            for number_of_turn in np.unique(turn):
                ids[turn == number_of_turn] = self.order.at(place[turn == number_of_turn])
            for old in list(self._blocks)[:-1]:  # two stay: bytes are asked for ahead of the batches that are made
                self._blocks.pop(old, None)
            self._blocks[number] = ids
        return ids


# --- weights ----------------------------------------------------------------------------------------------------------


def draw_weighted(
    weights: NDArray[np.float64], num_samples: int, seed: int, epoch: int, *, replacement: bool
) -> NDArray[np.intp]:
    """Draw positions 0 to N - 1 with chances in proportion to their weights; a weight of 0 is never drawn."""
    # Only exactly rounded operations are used, so that every machine, and so every rank, draws the same.
    positive = np.flatnonzero(weights)
    needed = min(num_samples, 1) if replacement else num_samples
    if len(positive) < needed:
        raise OptionError(
            f"{num_samples} samples are to be drawn with{'' if replacement else 'out'} replacement, but of "
            f"{len(weights)} only {len(positive)} have a weight above 0; expected at least {needed}. "
            + ("Give some of them a weight." if replacement else "Draw fewer, or with replacement=True.")
        )
    if replacement:
        scaled = weights[positive] / weights.max(initial=1e-300)  # no sum of large weights overflows
        return positive[choose(scaled, _uniform(seed, epoch, num_samples))]
    # Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006): the times of the first events
    # with these rates, in order.
    with np.errstate(over="ignore"):  # the smallest weights' times are infinite: these come last
        times = minus_log(_uniform(seed, epoch, len(weights))[positive]) / weights[positive]
    return positive[np.argsort(times, kind="stable")[:num_samples]]


def choose(weights: NDArray[np.float64], numbers: NDArray[np.float64]) -> NDArray[np.intp]:
    """Choose a position for each number from 0 to 1; each position has a share of them as large as its weight."""
    sums = np.cumsum(weights)
    places: NDArray[np.intp] = np.searchsorted(sums, numbers * sums[-1:].sum(), side="right")
    return np.minimum(places, len(sums) - 1)  # rounding may take the largest numbers to the sum itself


def _uniform(seed: int, epoch: int, count: int) -> NDArray[np.float64]:
    """Draw numbers above 0 and below 1: odd multiples of 2**-53."""
    return ((sort_keys(seed, epoch, _WEIGHTED_STREAM, count) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def minus_log(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute minus the logarithm of positive numbers; ``np.log`` differs between machines in its last bit."""
    mantissa, exponent = np.frexp(numbers)
    is_small = mantissa < 0.5**0.5
    mantissa = np.where(is_small, 2 * mantissa, mantissa)
    ratio = (mantissa - 1) / (mantissa + 1)
    square, series = ratio * ratio, np.zeros_like(ratio)
    for term in reversed(range(_NUM_TERMS)):
        series = series * square + 1 / (2 * term + 1)
    logarithm: NDArray[np.float64] = 2 * ratio * series + (exponent - is_small) * _LOG_2
    return -logarithm


# --- batches ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EpochBatches:
    """The samples of an epoch, split into batches."""

    order: NDArray[np.uint64] | NDArray[np.uint32] | LazyIds  # (N,) sample ids in the order of the epoch
    batch_size: int  # samples
    drop_last: bool  # whether a last batch of fewer samples is left out

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise OptionError(f"batch_size is {self.batch_size}; expected at least 1")

    def __len__(self) -> int:
        whole, rest = divmod(len(self.order), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def samples(self, batch: int, count: int = 1) -> NDArray[np.uint64]:
        """Give the sample ids of one batch, or of up to `count` together; the last one may be smaller."""
        return sample_ids(self.draw_ids(batch, count))

    def draw_ids(self, batch: int, count: int = 1) -> NDArray[np.uint64]:
        """Give the same with the numbers of repeated samples, see `gpubeton.pipeline.draw_ids`."""
        if not 0 <= batch < len(self):
            raise IndexError(f"batch {batch} of an epoch of {len(self)} batches; expected 0 to {len(self) - 1}")
        return self.draw_ids_at(slice(batch * self.batch_size, min(batch + count, len(self)) * self.batch_size))

    def draw_ids_at(self, places: slice) -> NDArray[np.uint64]:
        """Give those at some places of the epoch, (N,)."""
        ids = self.order.draw_ids(places) if isinstance(self.order, LazyIds) else self.order[places]
        return ids.astype(np.uint64, copy=False)

    @property
    def repeats_samples(self) -> bool:
        """Whether samples may come again, with other draws."""
        return isinstance(self.order, LazyIds) and self.order.repeats_samples
