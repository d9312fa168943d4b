"""Mixed: the order of a mixture, in which each source keeps an order for itself."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton._plan.mixture import MixedIds, MixedSource, SourceTurns, apportion
from gpubeton._plan.order import IdRange, Rank
from gpubeton.errors import OptionError
from gpubeton.traversal_order.base import GlobalOrder, OrderedLoader, TraversalOrder
from gpubeton.traversal_order.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._plan.order import LazyIds
    from gpubeton.format.page_runs import PageRuns

_STREAMS = 64  # of the order Window, by default


class MixtureRules(NamedTuple):
    """What a mixture takes from which source."""

    names: Sequence[str]
    weights: Callable[[int], Sequence[float]]  # of an epoch
    constant_from: int | None  # the epoch from which on weights stay the same; None if it is not known
    samples: int | None  # of an epoch
    block: int | None  # samples in which shares are exact; None for a batch of all ranks
    repeats: bool  # whether sources begin anew, and go on over epochs


class _Epoch(NamedTuple):
    shares: tuple[Fraction, ...]
    counts: tuple[int, ...]
    before: tuple[int, ...]  # samples of each source in the epochs before


class Mixed(GlobalOrder):
    """The samples of several sources in turn, each in an order of its own samples."""

    # What was computed is kept in one dict, so that the attributes tell what the order depends on.

    def __init__(
        self,
        loader: OrderedLoader,
        rules: MixtureRules,
        starts: Sequence[int],  # the first sample of each source, then the number of all
        order: type[TraversalOrder],
        arguments: Mapping[str, Any],
    ) -> None:
        super().__init__(loader)
        if not (issubclass(order, GlobalOrder) and order.__module__.startswith("gpubeton.")) or "nodes" in arguments:
            raise OptionError(
                f"a mixture: order is {order.__name__} with {dict(arguments)}; expected 'sequential', 'random', "
                "'window' without nodes, or Weighted or Balanced, which each source has for its samples. Take one of "
                "these, or put what you need into Loader(indices=...)"
            )
        self.rules, self.starts, self.kind, self.arguments = rules, starts, order, arguments
        self.begun: tuple[int, int] | None = None  # the epoch that another loader began, and samples of its blocks
        self._memo: dict[Any, Any] = {}
        self.epoch(0)  # raises if the weights do not fit

    def num_ids(self, epoch: int) -> int:
        return sum(self.epoch(epoch).counts)

    def global_ids(self, epoch: int) -> MixedIds:
        return self._ids(epoch, Rank(0, 1), 0)

    def _share(self, ids: NDArray[Any] | LazyIds, first: int) -> NDArray[Any] | LazyIds:
        assert isinstance(ids, MixedIds), "ids are those of `global_ids`"
        return MixedIds(ids.turns, ids.sources, self.rank or Rank(0, 1), self.loader.batch_size, first)

    def _sampled(self, epoch: int) -> None:
        if self.sampler is not None:
            raise OptionError("a mixture: its order has a sampler; expected none, as the mixture chooses the samples")

    def block_of(self, epoch: int, batch_size: int) -> int:
        """Samples of a block of an epoch: of a batch of all ranks, unless the mixture or another loader decides."""
        if self.begun is not None and self.begun[0] == epoch:
            return self.begun[1]
        return self.rules.block or batch_size * (1 if self.rank is None else self.rank.world)

    def describe(self, epoch: int) -> str:
        """Describe what a state has to agree with: the mixture in an epoch, and what came before."""
        shares, counts, before = self.epoch(epoch)
        return (
            f"weights {', '.join(str(float(share)) for share in shares)} of {sum(counts)} samples an epoch, "
            f"{'repeated' if self.rules.repeats else 'not repeated'}, after {', '.join(map(str, before))}"
            + (f", by {self.rules.block}" if self.rules.block else "")
        )

    def _ids(self, epoch: int, rank: Rank, first: int) -> MixedIds:
        shares, counts, before = self.epoch(epoch)
        turns = SourceTurns(counts, shares, self.block_of(epoch, self.loader.batch_size))
        streams = [
            getattr(self._order(number, epoch), "streams", 0) if counts[number] else 0 for number in range(len(counts))
        ]
        sources = [
            MixedSource(start, max(self._size(number), 1), before[number], self._passes(number), streams[number])
            for number, start in enumerate(self.starts[:-1])
        ]
        return MixedIds(turns, sources, rank, self.loader.batch_size, first)

    # --- how many of which source

    def epoch(self, epoch: int) -> _Epoch:
        """Decide the samples of each source in an epoch, and count those before."""
        epochs: list[_Epoch] = self._of_ids("epochs", list)
        sizes = [self._size(number) for number in range(len(self.rules.names))]
        known = epoch if self.rules.constant_from is None else min(epoch, self.rules.constant_from)
        while len(epochs) <= known:
            before = tuple(size * len(epochs) for size in sizes)  # if each epoch is a pass
            if self.rules.repeats and epochs:
                before = tuple(map(sum, zip(epochs[-1].before, epochs[-1].counts, strict=True)))
            shares = self._shares(len(epochs), sizes)
            epochs.append(_Epoch(shares, tuple(self._counts(shares, sizes)), before))
        last = epochs[known]
        added = zip(last.before, last.counts if self.rules.repeats else sizes, strict=True)
        return last._replace(before=tuple(count + more * (epoch - known) for count, more in added))

    def _shares(self, epoch: int, sizes: Sequence[int]) -> tuple[Fraction, ...]:
        weights, names = self.rules.weights(epoch), self.rules.names
        if len(weights) != len(names) or not all(isfinite(weight) and weight >= 0 for weight in weights):
            raise OptionError(
                f"a mixture: the weights of epoch {epoch} are {list(weights)}; expected {len(names)} finite numbers of "
                "at least 0, one for each source"
            )
        if not any(weights):
            raise OptionError(f"a mixture: all weights of epoch {epoch} are 0; expected one above it")
        for name, size, weight in zip(names, sizes, weights, strict=True):
            if weight and not size:
                raise OptionError(
                    f"a mixture: {name} has the weight {weight}, but no sample among the loader's indices; expected "
                    "some. Leave the source out, or give it the weight 0"
                )
        exact = [Fraction(str(float(weight))) for weight in weights]  # 0.7 is seven tenths
        return tuple(weight / sum(exact) for weight in exact)

    def _counts(self, shares: Sequence[Fraction], sizes: Sequence[int]) -> list[int]:
        total = sum(sizes) if self.rules.samples is None else self.rules.samples
        most: Sequence[int] = [total] * len(sizes)
        if not self.rules.repeats:
            most = sizes
            total = min(total, *(int(size / share) for size, share in zip(sizes, shares, strict=True) if share))
        counts = apportion(shares, total, most)
        for name, share, count in zip(self.rules.names, shares, counts, strict=True):
            if share and not count and self.rules.repeats:
                raise OptionError(
                    f"a mixture: {name} has {float(share):.2g} of {total} samples of an epoch, which is none; expected "
                    "at least one. Give samples= a larger number, or leave the source out"
                )
        return counts

    # --- the order of each source

    def _of_ids(self, name: Any, make: Callable[[], Any]) -> Any:
        """Give a value that was made for the present indices and seed, or make it."""
        memo = self._memo
        if memo.get("ids") is not self.ids or memo.get("seed") != self.seed:
            memo.clear()
            memo.update(ids=self.ids, seed=self.seed)
        if name not in memo:
            memo[name] = make()
        return memo[name]

    def _size(self, number: int) -> int:
        """Samples of a pass of a source."""
        size: int = self._of_ids(("size", number), lambda: self._make_order(number, _STREAMS).num_ids(0))
        return size

    def page_runs(self) -> PageRuns:
        """Give the pages of all samples."""
        runs: PageRuns = self._of_ids("runs", self.loader.reader.index.page_runs)
        return runs

    def _order(self, number: int, epoch: int) -> GlobalOrder:
        """Give the order of a source in passes that begin in an epoch: its share of the streams is that of samples."""
        arguments, streams = self.arguments, None
        if issubclass(self.kind, Window):
            share = self.epoch(epoch).shares[number]
            streams = max(round(arguments.get("streams", _STREAMS) * share), 1)
        made: GlobalOrder = self._of_ids(("order", number, streams), lambda: self._make_order(number, streams))
        return made

    def _make_order(self, number: int, streams: int | None) -> GlobalOrder:
        start, stop = self.starts[number : number + 2]
        ids: NDArray[np.uint64] | IdRange = IdRange(stop - start)
        if not isinstance(self.ids, IdRange) or self.ids != IdRange(self.starts[-1]):
            array = np.asarray(self.ids, np.uint64)
            ids = array[(array >= start) & (array < stop)] - np.uint64(start)
        arguments = {**self.arguments, "streams": streams} if issubclass(self.kind, Window) else self.arguments
        order = self.kind(_SourceView(self, ids, start, stop), **arguments)
        assert isinstance(order, GlobalOrder)
        return order

    def _passes(self, number: int) -> Callable[[int], NDArray[Any] | LazyIds]:
        def ids_of_pass(count: int) -> NDArray[Any] | LazyIds:
            kept: dict[int, Any] = self._of_ids(("passes", number), dict)
            ids = kept.get(count)
            if ids is None:
                epochs: list[_Epoch] = self._of_ids("epochs", list)
                begins = bisect_right([epoch.before[number] for epoch in epochs], count * self._size(number)) - 1
                ids = self._order(number, begins).global_ids(count)
                for old in list(kept)[:-1]:  # an epoch may begin in one pass and end in the next
                    kept.pop(old, None)
                kept[count] = ids
            return ids

        return ids_of_pass


class _SourceView:
    """What the order of a source sees of a loader: the source alone."""

    distributed = False

    def __init__(self, mixed: Mixed, ids: NDArray[np.uint64] | IdRange, start: int, stop: int) -> None:
        self._mixed, self._ids, self._rows = mixed, ids, slice(start, stop)
        self.seed, self.batch_size, self.num_samples = mixed.seed, mixed.loader.batch_size, stop - start

    @property
    def indices(self) -> NDArray[np.uint64]:
        return self._ids.array if isinstance(self._ids, IdRange) else self._ids

    @property
    def reader(self) -> Any:
        return self

    @property
    def index(self) -> Any:
        return self

    def page_runs(self) -> PageRuns:
        return self._mixed.page_runs().cut(self._rows)

    def column(self, name: str) -> NDArray[Any]:
        values: NDArray[Any] = self._mixed.loader.reader.index.column(name)[self._rows]
        return values
