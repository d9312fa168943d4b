"""Decide which source of a mixture serves each place of an epoch: any part of it, without the places before."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._plan.order import LazyIds
from gpubeton._plan.places import Rank
from gpubeton.pipeline.draw_ids import draw_ids, sample_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

GOLDEN = 0.6180339887498949
# Places of all ranks that are decided together.
_BLOCK = 1 << 16


def apportion(shares: Sequence[Fraction], total: int, most: Sequence[int]) -> list[int]:
    """Divide `total` by shares, within one of each, by largest remainders; at most `most` for each."""
    exact = [share * total for share in shares]
    counts = [min(math.floor(part), limit) for part, limit in zip(exact, most, strict=True)]
    # The second round is for those whose part is whole, if others have reached their limit.
    by_rest = sorted(range(len(counts)), key=lambda source: counts[source] - exact[source]) * 2
    for source in (source for source in by_rest if shares[source]):
        if sum(counts) < total and counts[source] < most[source]:
            counts[source] += 1
    return counts


class SourceTurns:
    """The source of each place of an epoch, in blocks in which each source has its share, or one sample more or less.

    The whole blocks divide a source's samples evenly: each has `a // b` of them, and `a % b` blocks have one more.
    """

    # Which blocks these are: the remainders of all sources, one after the other, are laid on a ring of as many places
    # as there are blocks. Each block takes the sources at one place of the ring, of each round. From block to block
    # the place moves on by about the golden section of the ring, so that any blocks in a row are spread evenly.

    # `counts`: of the samples of each source in the epoch; `shares`: 1 together; `block`: samples of a block.
    def __init__(self, counts: Sequence[int], shares: Sequence[Fraction], block: int) -> None:
        self.counts, self.block, self.total = counts, block, sum(counts)
        self._ring = max(self.total // block, 1)  # the whole blocks; 1 if there are none
        self._in_whole = np.array(apportion(shares, self.total // block * block, counts))  # samples of each source
        # Where the remainder of each source begins on the ring, counted through its rounds; and the end.
        self._bounds = np.append(0, np.cumsum(self._in_whole % self._ring))
        self._step = max(round(self._ring * GOLDEN), 1)
        while math.gcd(self._step, self._ring) > 1:
            self._step += 1

    def _before(self, block: int) -> NDArray[np.int64]:
        """Count the samples of each source before a block, (S,)."""
        below = [floor_sum(block, self._ring, self._step, -bound) for bound in self._bounds.tolist()]
        counts: NDArray[np.int64] = block * (self._in_whole // self._ring) - np.diff(below)
        return counts

    def _counts_of(self, blocks: range) -> NDArray[np.int64]:
        """Count the samples of each source in some blocks, (B, S)."""
        whole = np.arange(blocks.start, min(blocks.stop, self.total // self.block))
        bounds = self._bounds - 1 - (whole * self._step % self._ring)[:, None]
        counts = self._in_whole // self._ring + np.diff(bounds // self._ring, axis=1)
        return np.concatenate([counts, [np.subtract(self.counts, self._in_whole)]])[: len(blocks)]

    def at(self, start: int, stop: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Give the source of the places from `start` to `stop`, (N,), and how many it has served before, (N,)."""
        blocks = range(start // self.block, -(-stop // self.block))
        counts = self._counts_of(blocks)
        block, source = np.repeat(np.indices(counts.shape).reshape(2, -1), counts.reshape(-1), axis=1)
        size = counts[block, source]
        begins = np.cumsum(counts.reshape(-1)) - counts.reshape(-1)
        place = np.arange(len(size)) - np.repeat(begins, counts.reshape(-1))
        before = np.cumsum(counts, axis=0) - counts + self._before(blocks.start)
        # In a block, the samples of each source are spread evenly.
        order = np.lexsort([(2 * place + 1) / size, block])[start - blocks.start * self.block :][: stop - start]
        return source[order], (before[block, source] + place)[order]


def floor_sum(count: int, divisor: int, factor: int, offset: int) -> int:
    """Add up ``(factor * i + offset) // divisor`` for i from 0 to `count` - 1."""
    total = 0
    while count:
        total += count * (count - 1) // 2 * (factor // divisor) + count * (offset // divisor)
        factor, offset = factor % divisor, offset % divisor
        # What is left is a sum over as many terms as the largest quotient, with factor and divisor exchanged.
        count, offset = divmod(factor * count + offset, divisor)
        divisor, factor = factor, divisor
    return total


@dataclass(frozen=True, eq=False)
class MixedSource:
    """The samples of one source in an epoch of a mixture."""

    first_sample: int  # of the dataset
    size: int  # samples of a pass
    before: int  # samples that it served in the epochs before
    order: Callable[[int], NDArray[Any] | LazyIds]  # gives the ids of a pass, by its number, from 0 on
    streams: int  # of its order: neighbors take turns; 0 for an order without streams

    def draw_ids(self, served: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Give the draw ids of samples, (N,), by how many of the epoch this source has served before, which rises."""
        number, place = np.divmod(self.before + served, self.size)
        ids = np.zeros(len(number), np.uint64)
        for count in np.unique(number).tolist():
            of_pass, rows = self.order(count), number == count
            ids[rows] = of_pass.at(place[rows]) if isinstance(of_pass, LazyIds) else of_pass[place[rows]]
        return draw_ids(ids + np.uint64(self.first_sample), number - self.before // self.size)


@dataclass(frozen=True, eq=False)
class MixedIds(LazyIds):
    """The ids of an epoch of a mixture, or those of a rank, of which only the blocks used last are in memory."""

    turns: SourceTurns
    sources: Sequence[MixedSource]
    rank: Rank = field(default_factory=lambda: Rank(0, 1))
    batch_size: int = 1  # of each rank
    first: int = 0  # samples of all ranks before these
    _blocks: dict[int, NDArray[np.uint64]] = field(default_factory=dict, init=False)  # by number, the newest last

    def __len__(self) -> int:
        return self.rank.share(max(self.turns.total - self.first, 0))

    def __getitem__(self, places: slice) -> NDArray[np.uint64]:
        return sample_ids(self.draw_ids(places))

    @property
    def repeats_samples(self) -> bool:
        """Whether any source has more samples in the epoch than are left of its pass."""
        ends = zip(self.sources, self.turns.counts, strict=True)
        return any(source.before % source.size + count > source.size for source, count in ends if count)

    def draw_ids(self, places: slice) -> NDArray[np.uint64]:
        start, stop, step = places.indices(len(self))
        size = self._block_size
        numbers = range(start // size, -(-stop // size) if stop > start else 0)
        parts = [self._block(number)[max(start - number * size, 0) : stop - number * size] for number in numbers]
        return np.concatenate([np.zeros(0, np.uint64), *parts])[::step]

    def share(self, first: int, step: int, count: int) -> LazyIds:
        raise NotImplementedError("ranks share each batch: MixedIds(..., rank, batch_size, first)")

    @property
    def _block_size(self) -> int:
        """Samples of this rank in whole batches that are decided together."""
        return -(-_BLOCK // (self.batch_size * self.rank.world)) * self.batch_size

    def _block(self, number: int) -> NDArray[np.uint64]:
        """Give the draw ids of one block, (N,)."""
        ids = self._blocks.get(number)
        if ids is None:
            world, start = self.rank.world, number * self._block_size
            begin, end = (self.first + world * row for row in (start, min(start + self._block_size, len(self))))
            ids = self._ids_of(begin, min(end, self.turns.total), end)
            for old in list(self._blocks)[:-1]:  # two stay: bytes are asked for ahead of the batches that are made
                self._blocks.pop(old, None)
            self._blocks[number] = ids
        return ids

    def _ids_of(self, begin: int, stop: int, end: int) -> NDArray[np.uint64]:
        """Give the draw ids of this rank's places from `begin` to `end`; those from `stop` on are from the start."""
        source, served = self.turns.at(begin, stop)
        while end > stop:  # the last ranks get samples from the start of the epoch, so that all have as many
            again = self.turns.at(0, min(end - stop, self.turns.total))
            source, served = (np.append(*both) for both in zip((source, served), again, strict=True))
            end -= len(again[0])
        rows = self._rows(source, served)
        source, served, ids = source[rows], served[rows], np.zeros(len(rows), np.uint64)
        for number, mixed in enumerate(self.sources):
            chosen = np.flatnonzero(source == number)
            chosen = chosen[np.argsort(served[chosen], kind="stable")]
            ids[chosen] = mixed.draw_ids(served[chosen])
        return ids

    def _rows(self, source: NDArray[np.intp], served: NDArray[np.int64]) -> NDArray[np.intp]:
        """Choose this rank's samples of each batch of all ranks, (N,)."""
        # With streams, the same part of the streams of each source, as far as it goes, so that no other rank reads
        # their pages. Else neighbors, which have the shares of the mixture.
        row = np.arange(len(source))
        if self.rank.world == 1:
            return row
        numbers = np.array([(mixed.before, mixed.size, max(mixed.streams, 1)) for mixed in self.sources])
        before, size, streams = numbers[source].T
        part = (before + served) % size % streams / streams
        by_part = np.lexsort([part, row // (self.batch_size * self.rank.world)])
        return np.concatenate([np.sort(rows, axis=1).ravel() for rows in self.rank.cut(by_part, self.batch_size)])
