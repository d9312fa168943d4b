"""EpochPages: which pages of an epoch are requested when, and how long they stay in memory."""

from __future__ import annotations

import itertools
import os
from collections import defaultdict, deque
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from gpubeton._bytes.load_pool import Transfer, has_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from gpubeton._engine.region_loader import LoadedRange, RegionLoader
    from gpubeton._plan.page_plan import Group, PagePlan, PageRange

    Prefetched = dict[tuple[int, int], Future[LoadedRange]]
    """Ranges of the next epoch that were requested, by start and stop."""


class EpochPages:
    """The page ranges of one epoch, requested in the order in which its batches need them. Used by one thread."""

    # Memory: the ranges of the batches that were fetched and not released, those that later batches use again, and
    # `at_once` ranges ahead of them. A fetch holds its ranges; this object holds each up to the fetch of the last batch
    # that needs it.

    def __init__(
        self,
        plan: PagePlan,
        loader: RegionLoader,
        prefetched: Mapping[tuple[int, int], Future[LoadedRange]],  # by the epoch before
        plan_next: Callable[[], PagePlan] | None,  # the epoch that probably follows; called by a thread
    ) -> None:
        self.transfer = Transfer()
        self._plan, self._loader = plan, loader
        self._prefetched = {place: load for place, load in prefetched.items() if not has_failed(load)}
        self.from_others = WeakSet(self._prefetched.values())  # loaded by the threads of the epoch before
        self._next = None if plan_next is None else NextEpoch(plan_next)
        self._process = os.getpid()
        self._undecided = plan.groups()
        self._groups: deque[Group] = deque()  # of the batches that were not fetched
        self._coming: deque[PageRange] = deque()  # that were not requested
        self._ahead: deque[PageRange] = deque()  # that were requested ahead of the batch that needs them first
        self._loads: dict[int, Future[LoadedRange]] = {}  # by the numbers of ranges
        self._last_uses: defaultdict[int, list[int]] = defaultdict(list)  # ranges that end with a batch
        self._request_for(plan.first_batch - 1)
        self._prefetched.clear()  # pages that are not needed soon

    @property
    def first_batch(self) -> int:
        """The batch that every epoch waits for."""
        return self._plan.first_batch

    def of_batch(
        self, offset: NDArray[np.uint64], size: NDArray[np.uint64], batch: int
    ) -> tuple[list[Future[LoadedRange]], NDArray[np.int64]]:
        """Give the ranges of the next batch, and for each region, (N,), which of them it is in; -1 if it is empty."""
        self._request_for(batch)
        is_filled = size > 0
        which = np.full(len(offset), -1)
        loads: list[Future[LoadedRange]] = []
        if is_filled.any():
            while batch not in self._groups[0].batches:
                self._groups.popleft()
            numbers = self._plan.find(self._groups[0], batch, offset, is_filled)
            numbers, which[is_filled] = np.unique(numbers, return_inverse=True)
            loads = [self._loads[number] for number in numbers.tolist()]
        for number in self._last_uses.pop(batch, ()):
            del self._loads[number]
        return loads, which

    def take_prefetched(self) -> Prefetched:
        """Give the ranges of the next epoch that were requested, by start and stop."""
        # The threads that load them are not in a process that was forked meanwhile.
        return {} if self._next is None or os.getpid() != self._process else self._next.take()

    def end(self) -> set[Future[LoadedRange]]:
        """Let go of all ranges; give those of the next epoch that are on their way."""
        self._loads.clear()
        return set() if self._next is None else self._next.end()

    def _request_for(self, batch: int) -> None:
        """Request the ranges that a batch needs, and some ahead of it."""
        while self._ahead and self._ahead[0].first <= batch:
            self._ahead.popleft()
        while (coming := self._next_range()) is not None:
            if coming.first > batch:
                if len(self._ahead) >= self._loader.at_once:
                    return
                self._ahead.append(coming)
            load = self._prefetched.pop((coming.start, coming.stop), None)
            self._loads[coming.number] = load or self._loader.request(coming.start, coming.stop)
            self.transfer.count(coming.stop - coming.start)
            self._last_uses[coming.last].append(coming.number)
            self._coming.popleft()
        if self._next is not None:
            with suppress(Exception):  # this epoch does without
                self._next.request(self._loader, self._loader.at_once - len(self._ahead))

    def _next_range(self) -> PageRange | None:
        """Give the next range to request; None after the last."""
        while not self._coming:
            group = next(self._undecided, None)
            if group is None:
                return None
            self._groups.append(group)
            self._coming.extend(group.pages)
        return self._coming[0]


class NextEpoch:
    """Requests the first ranges of the epoch that probably follows, so that it begins without waiting."""

    # Another thread may call `take`: that of a loop over the next epoch, while one over this goes on.

    def __init__(self, plan_next: Callable[[], PagePlan]) -> None:
        self._plan_next = plan_next
        self.planned: Future[None] | None = None
        self._ranges: Iterator[PageRange] = iter(())
        self._loads: Prefetched = {}
        self._taken: WeakSet[Future[LoadedRange]] = WeakSet()  # in the next epoch's hands
        self._is_over = False

    def request(self, loader: RegionLoader, count: int) -> None:
        """Have `count` ranges requested, once the epoch is planned, which a thread does."""
        if self._is_over:
            return
        if self.planned is None:
            self.planned = loader.enqueue_task(self._plan)
        elif self.planned.done():
            for coming in itertools.islice(self._ranges, max(count - len(self._loads), 0)):
                self._loads[coming.start, coming.stop] = loader.request(coming.start, coming.stop)

    def end(self) -> set[Future[LoadedRange]]:
        """Stop requesting; give the ranges that were requested and are not there."""
        self._is_over = True
        return {load for load in (*self._loads.values(), *self._taken) if not load.done()}

    def take(self) -> Prefetched:
        """Stop requesting; give the ranges that were requested, once."""
        self._is_over = True
        taken, self._loads = self._loads, {}
        self._taken.update(taken.values())
        return taken

    def _plan(self) -> None:
        """Plan the epoch; called by a thread."""
        with suppress(Exception):  # it is a guess; errors of the next epoch are raised when it begins
            plan = self._plan_next()
            self._ranges = (coming for group in plan.groups() for coming in group.pages)
