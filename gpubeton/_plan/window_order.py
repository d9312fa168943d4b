"""The window order: samples shuffled so that each of several streams of them needs few of their pages at a time."""

# The pages are shuffled; their samples in this order are cut into one part for each stream. Within a stream a sample's
# key is the turn of its page plus a random number from 0 to `width` pages, so a page is in use for about `width` pages
# of the stream. The streams take turns: place p of the epoch is row p // streams of stream p % streams, so a rank of a
# world that divides `streams` has streams that no other rank reads, if it takes every world-th place. In other worlds,
# each batch of all ranks is sorted by stream and cut into one part for each rank, which shares streams with two others.
#
# The ranks of a node do not get neighboring streams. Streams share only the page at the border between two, which one
# needs at its end and the other at its start: at most `streams` - 1 pages of an epoch would be fetched once less, and
# only from a cache. No order of the streams makes neighbors of them for all numbers of ranks in a node, so the order
# would depend on it.
#
# The arrays that stay have an entry for each page, or one for each run of samples where the pages of a file are
# scattered. Shuffling the pages without any would be another order, for a tenth of a byte a sample.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._plan.order import WINDOW_STREAM, IdRange, Ids, LazyIds, Rank, ShuffledPages, id_dtype
from gpubeton._plan.philox import sort_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.format.page_runs import PageRuns

# Fractions of a page in a key.
_PAGE_BITS = 24
# Places of a block at least: numpy's calls for each stream cost more than the work for few samples.
_LEAST_BLOCK = 1 << 16


class WindowOrder:
    """The window order of an epoch, any part of which can be found at the cost of the part and of a window."""

    def __init__(self, ids: Ids | IdRange, runs: PageRuns, streams: int, width: int, seed: int, epoch: int) -> None:
        # `runs`: of the pages of the ids, one after the other
        self.streams, self.width, self.total = streams, width, len(ids)
        self._seed, self._epoch = seed, epoch
        self.dtype = id_dtype(ids.total if isinstance(ids, IdRange) else int(ids.max(initial=0)) + 1)
        self._shuffled = ShuffledPages(ids, runs, seed, epoch)
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
        size, rest = divmod(self.total, self.streams)
        begin, end = (number * size + min(number, rest) for number in (stream, stream + 1))  # as np.array_split cuts
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


@dataclass(frozen=True)
class Places:
    """Every `step`-th place of an epoch, from the first on."""

    count: int
    first: int = 0
    step: int = 1

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: slice) -> NDArray[np.int64]:
        return self.first + self.step * np.arange(*rows.indices(self.count))


@dataclass(frozen=True)
class StreamPlaces:
    """The places of a rank that has streams next to each other; places after the last are those of the next round."""

    # Of each batch of all ranks, so that after any of them the same samples are left as with any other ranks.

    rank: Rank
    streams: int
    batch_size: int  # of each rank
    first: int  # of all ranks
    total: int

    @property
    def step(self) -> int:
        """Places of all ranks for each of this rank."""
        return self.rank.world

    def __len__(self) -> int:
        return self.rank.share(max(self.total - self.first, 0))

    def __getitem__(self, rows: slice) -> NDArray[np.int64]:
        start, stop, _ = rows.indices(len(self))
        batch, world = self.batch_size, self.rank.world
        begin, end = start // batch * batch, min(-(-stop // batch) * batch, len(self))
        place = self.first + np.arange(begin * world, end * world)
        place = place[np.lexsort([place % self.streams, np.arange(len(place)) // (batch * world)])]
        whole = (end - begin) // batch * batch * world
        parts = (
            place[:whole].reshape(-1, world, batch)[:, self.rank.number],
            place[whole:].reshape(world, -1)[self.rank.number],
        )
        return np.concatenate([part.reshape(-1) for part in parts])[start - begin : stop - begin]


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
