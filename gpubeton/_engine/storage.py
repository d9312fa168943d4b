"""Storage: the bytes of files, mapped into memory, or loaded by threads: regions, or the pages of an epoch."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections import defaultdict, deque
from concurrent.futures import CancelledError
from concurrent.futures import wait as wait_for
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakSet

import numpy as np

from gpubeton._bytes.load_pool import LoadPool, Transfer, has_failed
from gpubeton._bytes.store_client import shown
from gpubeton._engine.buffers import Staging
from gpubeton._plan.page_plan import MAX_GAP as MAX_PAGE_GAP
from gpubeton._plan.page_plan import MAX_REQUEST, plan_ranges
from gpubeton.format.data_files import OFFSET_BITS, first_offset, split_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from gpubeton._bytes.open_files import OpenSources
    from gpubeton._engine.buffers import Buffer
    from gpubeton._plan.page_plan import Group, PagePlan, PageRange

MAX_GAP = 4096
"""Regions nearer than this are announced or read as one: the page cache works in pages of this size anyway."""

# The longest span that is announced at once.
_MAX_SPAN = 8 << 20
# Regions of a batch that are probed to see whether the system holds the file already. After many batches that it held,
# only those of every so many small batches: a probe takes as long as some small images. Larger ones are always probed:
# what has left memory would be read page by page until the next probe.
_NUM_PROBES = 8
_MANY_BATCHES = 64
_PROBED_EVERY = 16
_SMALL_BATCH = 1 << 20

FIRST_REQUESTS = 16
"""Requests in flight at first: twice as many when the loop has to wait, half as many if the store is overloaded."""
# Longer ranges of a local file are cut here, so that several threads share them. A region is never cut.
MAX_READ = 4 << 20
# Into so many shares for each thread the reads of a batch are split, if there are more: some reads take longer.
_SHARES = 4
# How long `close` waits for requests in flight, which write into memory that nothing else uses.
_PATIENCE_SECONDS = 0.5


class _Files:
    """The files of a storage."""

    def __init__(self, files: OpenSources) -> None:
        self._files = files

    def reload(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> bool:
        """Let damaged regions, (N,) each, come anew at the next fetch; False if they come from this machine alone."""
        places = zip(*(column.tolist() for column in (*split_offsets(offset), size)), strict=True)
        return all(self._files.open(number).reload(start, nbytes) for number, start, nbytes in places)


class MappedStorage(_Files):
    """Files mapped into memory: nothing is copied, and all loaders and processes share the pages. Thread-safe."""

    is_pinned = is_remote = False

    def __init__(self, files: OpenSources) -> None:
        super().__init__(files)
        self._held = 0  # batches in a row that the system held
        self.arrays: tuple[NDArray[np.uint8], ...] = tuple(files.open(number).map() for number in range(len(files)))
        # Added to global offsets in each file, it gives addresses.
        start = np.array([array.ctypes.data for array in self.arrays], np.uint64)
        self._base: NDArray[np.uint64] = start - np.array([*map(first_offset, range(len(files)))], np.uint64)

    def check(self) -> None:
        """Check that the mapped files have not changed: a page that was cut off would end the process."""
        self._files.check(is_mapped=True)

    def address(self, offset: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Give the addresses of global offsets, good as long as `arrays` are alive."""
        # `offset`: uint64 (N,); returns uint64 (N,)
        if len(self.arrays) == 1:  # as a rule
            return offset + self._base
        base: NDArray[np.uint64] = self._base[split_offsets(offset)[0]]
        return offset + base

    def fetch(self, offset: NDArray[np.uint64], size: NDArray[np.uint64], batch: int | None = None) -> MappedFetch:
        """Announce regions to the operating system, so that it reads those that it does not hold yet."""
        # `offset`, `size`: uint64 (N,). Without the announcement a file that is not in memory would be read page by
        # page, each when a worker touches it. A few probes show whether it is in memory, as it mostly is.
        self._held = self._held + 1 if self._is_cached(offset, size) else 0
        if not self._held:
            ranges = plan_ranges(offset, size, max_gap=MAX_GAP, max_read=_MAX_SPAN)
            number, start = split_offsets(ranges.start)
            length = ranges.stop - ranges.start
            # A file that has lost its name cannot be opened to announce it, but it stays mapped.
            with suppress(OSError):
                for file, first, count in zip(number.tolist(), start.tolist(), length.tolist(), strict=True):
                    self._files.open(file).announce(first, count)
        return MappedFetch(self.address(offset), self.arrays)

    def _is_cached(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> bool:
        """Whether the system holds the middle byte of each of some regions."""
        if self._held >= _MANY_BATCHES and self._held % _PROBED_EVERY and np.add.reduce(size) < _SMALL_BATCH:
            return True
        step = max(len(offset) // _NUM_PROBES, 1)
        with suppress(OSError):  # a file that has lost its name cannot be opened
            for start, nbytes in zip(offset[::step].tolist(), size[::step].tolist(), strict=True):
                number, position = divmod(start + nbytes // 2, 1 << OFFSET_BITS)
                if not self._files.open(number).is_cached(min(position, self._files.sizes[number] - 1)):
                    return False
            return True
        return False

    def interrupt(self) -> None:
        """Do nothing: no read waits for another machine."""

    def close(self) -> None:
        """Do nothing: the mapping ends with the last reference to `arrays`, and so never too early."""


class MappedFetch:
    """Regions of mapped files."""

    is_ready = True

    def __init__(self, address: NDArray[np.uint64], keep: Any) -> None:
        self._address = address  # (N,)
        self._keep = keep  # keeps the mappings alive

    def addresses(self) -> NDArray[np.uint64]:
        """Return the addresses, shape (N,), at once."""
        return self._address

    def release(self) -> None:
        """Let go of the mappings."""
        self._keep = None


class LoadedRange(NamedTuple):
    """A range of a file in memory."""

    content: memoryview  # keeps the memory
    shift: int  # added to a global offset within the range, it gives the address


Prefetched: TypeAlias = "dict[tuple[int, int], Future[LoadedRange]]"
"""Ranges of the next epoch that were requested, by start and stop."""


class RegionLoader(LoadPool):
    """Threads that load regions of files."""

    def __init__(self, files: OpenSources, at_once: int, most: int | None = None, *, adapts: bool = True) -> None:
        super().__init__(shown(files.paths[0]), at_once, most, adapts=adapts)
        self._files = files

    def request(self, start: int, stop: int, *, is_urgent: bool = False) -> Future[LoadedRange]:
        """Request a range by its global offsets; returns at once. An urgent one comes before all others."""
        return self.enqueue(_load, self._files, start, stop, is_urgent=is_urgent)

    def read(self, places: Sequence[tuple[int, int, memoryview]]) -> Future[None]:
        """Fill buffers with bytes of files, from a position each; returns at once."""
        return self.enqueue(_read, self._files, places)


def _load(files: OpenSources, start: int, stop: int) -> LoadedRange:
    (number,), (position,) = split_offsets(np.array([start], np.uint64))
    content = files.open(int(number)).load(int(position), stop - start)
    return LoadedRange(content, np.frombuffer(content, np.uint8).ctypes.data - start)


def _read(files: OpenSources, places: Sequence[tuple[int, int, memoryview]]) -> None:
    for number, start, target in places:
        files.open(number).fill(start, target)


class EpochPages:
    """The page ranges of one epoch, requested in the order in which its batches need them. Used by one thread."""

    # Memory: the ranges of the batches that were fetched and not released, those that later batches use again, and
    # `at_once` ranges ahead of them. A fetch holds its ranges; this object holds each up to the fetch of the last batch
    # that needs it.

    def __init__(
        self,
        plan: PagePlan,
        loader: RegionLoader,
        prefetched: Prefetched,  # by the epoch before
        plan_next: Callable[[], PagePlan] | None,  # the epoch that probably follows; called by a thread
    ) -> None:
        self.transfer = Transfer()
        self.plan, self._loader = plan, loader
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
            numbers = self.plan.find(self._groups[0], batch, offset, is_filled)
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


class LoadedStorage(_Files):
    """Files whose regions are loaded: those of a batch together, or the pages of an epoch before they are needed."""

    # Without a plan, each fetch reads its regions into a block of staging memory: the bytes are near, and nothing is
    # gained by reading them earlier. With a plan, pages come from another machine, ahead of the batches and each once;
    # they are copied only if a GPU needs them in page-locked memory.

    def __init__(
        self,
        files: OpenSources,
        plan: PagePlan | None = None,
        staging: Staging | None = None,  # with a plan: page-locked memory to copy regions into
        *,
        max_read: int = MAX_READ,
        first_requests: int = FIRST_REQUESTS,
        most_requests: int = 64,
        prefetched: Prefetched | None = None,  # `take_prefetched` of the last epoch
        plan_next: Callable[[], PagePlan] | None = None,  # the epoch that probably follows; called by a thread
    ) -> None:
        super().__init__(files)
        self._process, self._max_read = os.getpid(), max_read
        self._pages: EpochPages | None = None
        self._staging = staging
        if plan is None:
            first = files.open(0)  # raises at once if nothing can be read
            files.check()
            self._staging = staging or Staging()
            self._loader = RegionLoader(files, first.num_readers, adapts=False)
        else:
            self._loader = RegionLoader(files, first_requests, most_requests)
            self._pages = EpochPages(plan, self._loader, prefetched or {}, plan_next)

    @property
    def is_pinned(self) -> bool:
        """Whether regions come into page-locked memory."""
        return self._staging is not None and self._staging.is_pinned

    @property
    def is_remote(self) -> bool:
        """Whether regions come anew each time that they are fetched."""
        return self._pages is not None

    @property
    def transfer(self) -> Transfer:
        """The requests until now; without a plan they are not counted."""
        return Transfer() if self._pages is None else self._pages.transfer

    @property
    def at_once(self) -> int:
        """Requests that are in flight at most."""
        return self._loader.at_once

    def fetch(self, offset: NDArray[np.uint64], size: NDArray[np.uint64], batch: int | None = None) -> Fetch:
        """Begin to load regions; returns at once."""
        # offset, size: uint64 (N,)
        if self._pages is None:
            return self._read(offset, size)
        # Every epoch waits for its first batch.
        speeds_up = batch is not None and batch != self._pages.plan.first_batch
        loads, which = self._alone(offset, size) if batch is None else self._pages.of_batch(offset, size, batch)
        pages = PageFetch(loads, self._loader, which, offset, speeds_up=speeds_up)
        return pages if self._staging is None else self._copy(pages, size, self._staging)

    def take_prefetched(self) -> Prefetched:
        """Give the pages of the next epoch that were requested, by start and stop."""
        return {} if self._pages is None else self._pages.take_prefetched()

    def interrupt(self) -> None:
        """Cancel loads from other machines, and end the waiting for them; called from any thread."""
        if self._pages is not None and os.getpid() == self._process:
            self._loader.interrupt(list(self._pages.from_others))

    def close(self) -> None:
        """End the threads; may be called twice. Loads that were not begun are cancelled, but for the next epoch's."""
        if os.getpid() != self._process:
            return
        if self._pages is None:
            self._loader.close()  # the memory of a read is used again: it has to end
        elif remaining := self._pages.end():
            self._loader.finish(remaining)
            self._loader.wait_for_tasks()
        else:
            self._loader.close(_PATIENCE_SECONDS)

    def _read(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> StagedFetch:
        """Begin to read regions of files of this machine, each byte once, in few large reads."""
        assert self._staging is not None, "without a plan there is some"
        self._loader.check_open()
        plan = plan_ranges(offset, size, max_gap=MAX_GAP, max_read=self._max_read)
        length = (plan.stop - plan.start).astype(np.int64)
        begin_in_block = np.cumsum(length) - length
        # A region without bytes is in no range (-1); its address does not matter.
        start_of_range = np.append(begin_in_block, 0)[plan.source].astype(np.uint64)
        block = self._staging.take(int(length.sum()))
        content = np.frombuffer(block, np.uint8)
        address = np.uint64(content.ctypes.data) + start_of_range + plan.position
        number, start = split_offsets(plan.start)
        ranges = zip(number.tolist(), start.tolist(), begin_in_block.tolist(), length.tolist(), strict=True)
        reads = [(file, first, content.data[begin : begin + count]) for file, first, begin, count in ranges]
        # Several of many: to pass one on to a thread takes longer than to read some kB that the system holds.
        together = max(len(reads) // (_SHARES * self._loader.at_once), 1)
        loads = [self._loader.read(reads[first : first + together]) for first in range(0, len(reads), together)]
        return StagedFetch(loads, self._loader, self._staging, block, address)

    def _alone(
        self, offset: NDArray[np.uint64], size: NDArray[np.uint64]
    ) -> tuple[list[Future[LoadedRange]], NDArray[np.int64]]:
        """Request regions of no batch, in place of bad ones, before everything else."""
        ranges = plan_ranges(offset, size, max_gap=MAX_PAGE_GAP, max_read=MAX_REQUEST)
        places = list(zip(ranges.start.tolist(), ranges.stop.tolist(), strict=True))
        loads = [self._loader.request(*place, is_urgent=True) for place in places]
        for start, stop in places:
            self.transfer.count(stop - start)
        return loads, ranges.source

    def _copy(self, pages: PageFetch, size: NDArray[np.uint64], staging: Staging) -> StagedFetch:
        """Have regions copied into page-locked memory as soon as they are there."""
        end = np.cumsum(size)
        block = staging.take(int(size.sum()))
        address = np.uint64(np.frombuffer(block, np.uint8).ctypes.data) + end - size
        load = self._loader.enqueue_task(_copy_regions, pages, block, address, size)
        return StagedFetch([load], self._loader, staging, block, address, speeds_up=pages.speeds_up)


def _copy_regions(
    pages: PageFetch,
    block: Buffer,  # noqa: ARG001  which stays in memory as long as this runs
    address: NDArray[np.uint64],  # (N,) in the block
    size: NDArray[np.uint64],  # (N,)
) -> None:
    try:
        for place in zip(address.tolist(), pages.wait().tolist(), size.tolist(), strict=True):
            ctypes.memmove(*place)
    finally:
        pages.release()


class _LoadedFetch:
    """Regions that loads bring into memory."""

    def __init__(self, loads: Sequence[Future[Any]], loader: RegionLoader, *, speeds_up: bool = False) -> None:
        self._loads, self._loader = loads, loader
        self.speeds_up = speeds_up  # whether there are more requests from now on if a batch has to wait

    @property
    def is_ready(self) -> bool:
        """Whether every byte is there, and `addresses` returns at once."""
        return all(load.done() and not has_failed(load) for load in self._loads)

    def addresses(self) -> NDArray[np.uint64]:
        """Wait for the loads; return the addresses, shape (N,), or raise the first error."""
        if self.speeds_up and not all(load.done() for load in self._loads):
            self._loader.speed_up()
        return self.wait()

    def wait(self) -> NDArray[np.uint64]:
        """As `addresses`, but without raising the number of requests."""
        raise NotImplementedError

    def _results(self) -> list[Any]:
        try:
            return [load.result() for load in self._loads]
        except CancelledError:
            raise self._loader.closed_error() from None


class PageFetch(_LoadedFetch):
    """Regions in pages of files."""

    def __init__(
        self,
        loads: Sequence[Future[LoadedRange]],
        loader: RegionLoader,
        which: NDArray[np.int64],  # (N,) the load of each region, -1 if it has no bytes
        offset: NDArray[np.uint64],  # (N,)
        *,
        speeds_up: bool,
    ) -> None:
        super().__init__(loads, loader, speeds_up=speeds_up)
        self._which, self._offset = which, offset

    def wait(self) -> NDArray[np.uint64]:
        shifts = [load.shift % (1 << 64) for load in self._results()]
        return self._offset + np.array([*shifts, 0], np.uint64)[self._which]

    def release(self) -> None:
        """Let the pages go; may be called twice."""
        self._loads = ()


class StagedFetch(_LoadedFetch):
    """Regions on their way into a block of staging memory."""

    def __init__(
        self,
        loads: Sequence[Future[None]],  # which write into the block
        loader: RegionLoader,
        staging: Staging,
        block: Buffer,
        address: NDArray[np.uint64],  # (N,)
        *,
        speeds_up: bool = False,
    ) -> None:
        super().__init__(loads, loader, speeds_up=speeds_up)
        self._staging, self._address = staging, address
        self._block: Buffer | None = block

    def wait(self) -> NDArray[np.uint64]:
        wait_for(self._loads)
        self._results()
        return self._address

    def release(self) -> None:
        """Give the memory back, once no load writes to it any more; may be called twice."""
        if (block := self._block) is None:
            return
        staging, loads = self._staging, self._loads
        self._block, self._loads = None, ()
        left = itertools.count(len(loads), -1)  # `next` is one step: several threads may call it

        def count_down(_: object) -> None:
            if next(left) == 0:
                staging.give_back(block)

        for load in loads:
            load.add_done_callback(count_down)
        count_down(None)


Fetch: TypeAlias = MappedFetch | PageFetch | StagedFetch
"""Regions on their way into memory; their addresses are good until `release`."""
Storage: TypeAlias = MappedStorage | LoadedStorage
"""The bytes of the files of a dataset; regions are requested by global offset and size."""
