"""LoadedStorage: files that are not mapped; threads load their regions into memory."""

from __future__ import annotations

import ctypes
import itertools
import os
from concurrent.futures import CancelledError
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._bytes.load_pool import Transfer, has_failed
from gpubeton._engine.buffers import Staging
from gpubeton._engine.epoch_pages import EpochPages
from gpubeton._engine.mapped_storage import MAX_GAP, reload_regions
from gpubeton._engine.region_loader import FIRST_REQUESTS, RegionLoader
from gpubeton._plan.page_plan import MAX_GAP as MAX_PAGE_GAP
from gpubeton._plan.page_plan import MAX_REQUEST
from gpubeton._plan.ranges import plan_ranges
from gpubeton.format.data_files import split_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from gpubeton._bytes.open_files import OpenSources
    from gpubeton._engine.buffers import Buffer
    from gpubeton._engine.epoch_pages import Prefetched
    from gpubeton._engine.protocols import Fetch
    from gpubeton._engine.region_loader import LoadedRange
    from gpubeton._plan.page_plan import PagePlan

# Longer ranges of a local file are cut here, so that several threads share them. A region is never cut.
MAX_READ = 4 << 20
# How long `close` waits for requests in flight, which write into memory that nothing else uses.
_PATIENCE_SECONDS = 0.5


class LoadedStorage:
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
        prefetched: Mapping[tuple[int, int], Future[LoadedRange]] | None = None,  # `take_prefetched` of the last epoch
        plan_next: Callable[[], PagePlan] | None = None,  # the epoch that probably follows; called by a thread
    ) -> None:
        self._files, self._process, self._max_read = files, os.getpid(), max_read
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
        is_first = batch is None or batch == self._pages.first_batch
        # Every epoch waits for its first batch.
        speed_up = _ignore if is_first else self._loader.speed_up
        loads, which = self._alone(offset, size) if batch is None else self._pages.of_batch(offset, size, batch)
        pages = PageFetch(loads, which, offset, speed_up, self._loader.closed_error)
        return pages if self._staging is None else self._copy(pages, size, self._staging)

    def take_prefetched(self) -> Prefetched:
        """Give the pages of the next epoch that were requested, by start and stop."""
        return {} if self._pages is None else self._pages.take_prefetched()

    def reload(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> bool:
        """Let damaged regions come anew at the next fetch; False if they come from this machine alone."""
        return reload_regions(self._files, offset, size)

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
        reads = zip(number.tolist(), start.tolist(), begin_in_block.tolist(), length.tolist(), strict=True)
        loads = [
            self._loader.read(file, first, content.data[begin : begin + count]) for file, first, begin, count in reads
        ]
        return StagedFetch(self._staging, block, address, loads, self._loader.closed_error)

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
        return StagedFetch(staging, block, address, [load], self._loader.closed_error, pages.on_late)


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


class PageFetch:
    """Regions in pages of files."""

    def __init__(
        self,
        loads: Sequence[Future[LoadedRange]],
        which: NDArray[np.int64],  # (N,) the load of each region, -1 if it has no bytes
        offset: NDArray[np.uint64],  # (N,)
        on_late: Callable[[], None],  # called when a batch has to wait
        closed_error: Callable[[], Exception],
    ) -> None:
        self._loads, self._which, self._offset = loads, which, offset
        self.on_late, self._closed_error = on_late, closed_error

    @property
    def is_ready(self) -> bool:
        """Whether every page is there."""
        return all(load.done() and not has_failed(load) for load in self._loads)

    def addresses(self) -> NDArray[np.uint64]:
        """Wait for the pages; return the addresses, shape (N,), or raise the first error."""
        if not all(load.done() for load in self._loads):
            self.on_late()
        return self.wait()

    def wait(self) -> NDArray[np.uint64]:
        """As `addresses`, but without raising the number of requests."""
        try:
            shifts = [load.result().shift for load in self._loads]
        except CancelledError:
            raise self._closed_error() from None
        return self._offset + np.array([*(shift % (1 << 64) for shift in shifts), 0], np.uint64)[self._which]

    def release(self) -> None:
        """Let the pages go; may be called twice."""
        self._loads = ()


class StagedFetch:
    """Regions on their way into a block of staging memory."""

    def __init__(
        self,
        staging: Staging,
        block: Buffer,
        address: NDArray[np.uint64],  # (N,)
        loads: Sequence[Future[None]],  # which write into the block
        closed_error: Callable[[], Exception],
        on_late: Callable[[], None] | None = None,  # called when a batch has to wait
    ) -> None:
        self._staging, self._address, self._loads = staging, address, loads
        self._block: Buffer | None = block
        self._closed_error, self._on_late = closed_error, on_late or _ignore

    @property
    def is_ready(self) -> bool:
        """Whether every byte is there."""
        return all(load.done() and not has_failed(load) for load in self._loads)

    def addresses(self) -> NDArray[np.uint64]:
        """Wait for the loads; return the addresses, shape (N,), or raise the first error."""
        if not all(load.done() for load in self._loads):
            self._on_late()
        wait_for(self._loads)
        try:
            for load in self._loads:
                load.result()
        except CancelledError:
            raise self._closed_error() from None
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


def _ignore() -> None:
    """Do nothing when a batch is late."""
