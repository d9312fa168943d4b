"""Mixed: the order of a mixture, in which each source keeps an order for itself."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton._plan.mixture import MixedIds, MixedSource, SourceTurns, apportion
from gpubeton._plan.order import IdRange
from gpubeton._plan.places import Rank
from gpubeton.errors import OptionError
from gpubeton.traversal_order.base import GlobalOrder, OrderedLoader, TraversalOrder
from gpubeton.traversal_order.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._plan.order import LazyIds
    from gpubeton.format.index import PageRuns

_STREAMS = 64  # of the order Window, by default


class MixtureRules(NamedTuple):
    """What a mixture takes from which source."""

    names: Sequence[str]
    weights: Callable[[int], Sequence[float]]  # of an epoch
    constant_from: int | None  # the epoch from which on weights stay the same; None if it is not known
    samples: int | None  # of an epoch
    block: int | None  # samples in which shares are exact; None for a batch of all ranks
    repeats: bool  # whether sources begin anew, and go on over epochs


def order_of(
    kind: type[TraversalOrder],
    loader: OrderedLoader,
    arguments: Mapping[str, Any],
    mixture: tuple[MixtureRules, Sequence[int]] | None,
) -> TraversalOrder:
    """Make the order of a loader, or of a mixture, each of whose sources has such an order."""
    return kind(loader, **arguments) if mixture is None else Mixed(loader, *mixture, kind, arguments)


class _Epoch(NamedTuple):
    shares: tuple[Fraction, ...]
    counts: tuple[int, ...]
    before: tuple[int, ...]  # samples of each source in the epochs before


class Mixed(GlobalOrder):
    """The samples of several sources in turn, each in an order of its own samples."""

    def __init__(
        self,
        loader: OrderedLoader,
        rules: MixtureRules,
        starts: Sequence[int],  # the first sample of each source, then the number of all
        kind: type[TraversalOrder],
        arguments: Mapping[str, Any],
    ) -> None:
        super().__init__(loader)
        if not (issubclass(kind, GlobalOrder) and kind.__module__.startswith("gpubeton.")) or "nodes" in arguments:
            raise OptionError(
                f"a mixture: order is {kind.__name__} with {dict(arguments)}; expected 'sequential', 'random', "
                "'window' without nodes, or Weighted or Balanced, which each source has for its samples. Take one of "
                "these, or put what you need into Loader(indices=...)"
            )
        self.rules, self.kind, self.arguments = rules, kind, arguments
        self.begun: tuple[int, int] | None = None  # the epoch that another loader began, and samples of its blocks
        self._first_ids, self.epochs = self.ids, list[_Epoch]()  # the epochs that are decided
        self._sources = [_Source(self, number, slice(*rows)) for number, rows in enumerate(pairwise(starts))]
        self.epoch(0)  # raises if a source has too few samples

    def num_ids(self, epoch: int) -> int:
        return sum(self.epoch(epoch).counts)

    def global_ids(self, epoch: int) -> MixedIds:
        if self.sampler is not None or self.ids is not self._first_ids:
            raise OptionError(
                "a mixture: its order got a sampler or indices; expected none, as the mixture chooses the samples. Set "
                "the indices of the loader"
            )
        shares, counts, before = self.epoch(epoch)
        turns = SourceTurns(counts, shares, self.block_of(epoch, self.loader.batch_size))
        sources = [
            MixedSource(source.rows.start, max(source.size, 1), first, source.ids_of_pass, source.streams(epoch))
            for source, first in zip(self._sources, before, strict=True)
        ]
        return MixedIds(turns, sources)

    def _share(self, ids: NDArray[Any] | LazyIds, first: int) -> NDArray[Any] | LazyIds:
        assert isinstance(ids, MixedIds), "ids are those of `global_ids`"
        return MixedIds(ids.turns, ids.sources, self.rank or Rank(0, 1), self.loader.batch_size, first)

    def _sampled(self, epoch: int) -> None:
        return None

    def block_of(self, epoch: int, batch_size: int) -> int:
        """Samples of a block of an epoch: of a batch of all ranks, unless the mixture or another loader decides."""
        if self.begun is not None and self.begun[0] == epoch:
            return self.begun[1]
        return self.rules.block or batch_size * (1 if self.rank is None else self.rank.world)

    def check_next(self, order: TraversalOrder) -> None:
        """Raise OptionError if an order that follows is not that of a mixture."""
        if not isinstance(order, Mixed):
            raise OptionError(
                f"the order of a mixture is {order!r}; expected an option or its name: the mixture puts the sources "
                "together. Set loader.order"
            )

    def describe(self, epoch: int) -> str:
        """Describe what a state has to agree with: the mixture in an epoch, and what came before."""
        shares, counts, before = self.epoch(epoch)
        weights, after = (", ".join(map(str, values)) for values in (map(float, shares), before))
        repeated = "repeated" if self.rules.repeats else "not repeated"
        block = f", by {self.rules.block}" if self.rules.block else ""
        return f"weights {weights} of {sum(counts)} samples an epoch, {repeated}, after {after}{block}"

    def epoch(self, epoch: int) -> _Epoch:
        """Decide the samples of each source in an epoch, and count those before."""
        epochs, sizes = self.epochs, [source.size for source in self._sources]
        listed = epoch if self.rules.constant_from is None else min(epoch, self.rules.constant_from)
        while len(epochs) <= listed:
            before = tuple(size * len(epochs) for size in sizes)  # if each epoch is a pass
            if self.rules.repeats and epochs:
                before = tuple(map(sum, zip(epochs[-1].before, epochs[-1].counts, strict=True)))
            weights = [Fraction(str(weight)) for weight in self.rules.weights(len(epochs))]  # 0.7 is seven tenths
            shares = tuple(weight / sum(weights) for weight in weights)
            epochs.append(_Epoch(shares, tuple(self._counts(shares, sizes)), before))
        last = epochs[listed]
        added = zip(last.before, last.counts if self.rules.repeats else sizes, strict=True)
        return last._replace(before=tuple(count + more * (epoch - listed) for count, more in added))

    @cached_property
    def page_runs(self) -> PageRuns:
        """The pages of all samples."""
        return self.loader.reader.index.page_runs()

    def _counts(self, shares: Sequence[Fraction], sizes: Sequence[int]) -> list[int]:
        total = sum(sizes) if self.rules.samples is None else self.rules.samples
        if not self.rules.repeats:
            total = min(total, *(int(size / share) for size, share in zip(sizes, shares, strict=True) if share))
        counts = apportion(shares, total, [total * (size > 0) for size in sizes] if self.rules.repeats else sizes)
        for name, share, size, count in zip(self.rules.names, shares, sizes, counts, strict=True):
            if share and (not size or (not count and self.rules.repeats)):
                raise OptionError(
                    f"a mixture: {name} has {size} samples among the loader's indices, and of the {total} of an epoch "
                    f"its share is {float(share * total):.2g}; expected at least one of each. Give samples= a larger "
                    "number, or leave the source out"
                )
        return counts


class _Source:
    """One of the sources; for the order of its samples, a loader of them alone."""

    distributed = False

    def __init__(self, mixed: Mixed, number: int, rows: slice) -> None:
        self.rows, self.seed, self.batch_size = rows, mixed.seed, mixed.loader.batch_size
        self.num_samples = rows.stop - rows.start
        self.reader = self.index = self
        self._mixed, self._number = mixed, number
        self._ids: NDArray[np.uint64] | IdRange = IdRange(self.num_samples)
        if not isinstance(mixed.ids, IdRange):
            chosen = np.asarray(mixed.ids, np.uint64)
            self._ids = chosen[(chosen >= rows.start) & (chosen < rows.stop)] - np.uint64(rows.start)
        self._order = cache(self._make_order)
        self.ids_of_pass = lru_cache(2)(self._ids_of_pass)  # an epoch may begin in one pass and end in the next
        self.size = self._order(1).num_ids(0)  # samples of a pass

    @property
    def indices(self) -> NDArray[np.uint64]:
        return self._ids.array if isinstance(self._ids, IdRange) else self._ids

    def page_runs(self) -> PageRuns:
        return self._mixed.page_runs.cut(self.rows)

    def column(self, name: str) -> NDArray[Any]:
        values: NDArray[Any] = self._mixed.loader.reader.index.column(name)[self.rows]
        return values

    def streams(self, epoch: int) -> int:
        """Give the streams of its order in passes that begin in an epoch: its share of them; 0 without streams."""
        total = self._mixed.arguments.get("streams", _STREAMS) if issubclass(self._mixed.kind, Window) else 0
        return max(round(total * self._mixed.epoch(epoch).shares[self._number]), min(total, 1))

    def _ids_of_pass(self, number: int) -> NDArray[Any] | LazyIds:
        """Give the ids of a pass, from 0 on in this source, in their order."""
        served = [epoch.before[self._number] for epoch in self._mixed.epochs]
        return self._order(self.streams(bisect_right(served, number * self.size) - 1)).global_ids(number)

    def _make_order(self, streams: int) -> GlobalOrder:
        arguments = {**self._mixed.arguments, **({"streams": streams} if issubclass(self._mixed.kind, Window) else {})}
        order = self._mixed.kind(self, **arguments)  # type: ignore[arg-type]  # it has what orders ask for
        assert isinstance(order, GlobalOrder)
        return order
