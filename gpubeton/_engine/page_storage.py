"""PageStorage: files that cannot be mapped, whose pages are loaded ahead and kept as long as an epoch needs them."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections import defaultdict, deque
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from gpubeton._bytes.transfer import Transfer
from gpubeton._engine.load_threads import FIRST_REQUESTS, LoadThreads
from gpubeton._engine.mapped_storage import reload_regions
from gpubeton._plan.page_plan import MAX_GAP, MAX_PART
from gpubeton._plan.ranges import plan_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._bytes.open_files import OpenSources
    from gpubeton._bytes.staging import Buffer, Staging
    from gpubeton._engine.load_threads import Load
    from gpubeton._engine.protocols import Fetch
    from gpubeton._plan.page_plan import Group, PagePlan, Part


class PageStorage:
    """The parts of one epoch, loaded in the order in which its batches need them. Used by one thread."""

    # Memory: the parts of the batches that were fetched and not released, those that later batches use again, and
    # `at_once` parts ahead of them. A fetch holds its parts; the storage holds each up to the fetch of the last batch
    # that needs it.

    is_remote = True

    def __init__(
        self,
        files: OpenSources,
        plan: PagePlan,
        staging: Staging | None = None,  # page-locked memory to copy regions into
        *,
        first_requests: int = FIRST_REQUESTS,
        most_requests: int = 64,
        begun: Mapping[tuple[int, int], Load] | None = None,  # `take_begun` of the epoch before
        plan_next: Callable[[], PagePlan] | None = None,  # the epoch that probably follows; called by a thread
    ) -> None:
        self.transfer = Transfer()
        self._plan = plan
        self._process = os.getpid()
        self._begun = {place: load for place, load in (begun or {}).items() if load.error is None}
        self._from_others = WeakSet(self._begun.values())  # that threads of the epoch before load
        self._next = None if plan_next is None else NextEpoch(plan_next)
        self._files, self._threads = files, LoadThreads(files, first_requests, most_requests)
        self._staging = None if staging is None else PinnedCopies(staging)
        self._undecided = plan.groups()
        self._groups: deque[Group] = deque()  # of the batches that were not fetched
        self._coming: deque[Part] = deque()  # that were not asked for
        self._ahead: deque[Part] = deque()  # that were asked for, ahead of the batch that needs them first
        self._loads: dict[int, Load] = {}  # by the numbers of parts
        self._last_uses: defaultdict[int, list[int]] = defaultdict(list)  # parts that end with a batch
        self._ask(plan.first_batch - 1)
        self._begun.clear()  # pages that are not needed soon

    @property
    def is_pinned(self) -> bool:
        """Whether regions come into page-locked memory."""
        return self._staging is not None

    def fetch(self, offset: NDArray[np.uint64], size: NDArray[np.uint64], batch: int | None = None) -> Fetch:
        """Give the regions of the next batch of the epoch; those of no batch are loaded by themselves."""
        # offset, size: uint64 (N,)
        is_solid = size > 0
        loads, which = self._alone(offset, size) if batch is None else self._of_batch(offset, is_solid, batch)
        is_first = batch is None or batch == self._plan.first_batch
        # Every epoch waits for its first batch.
        fetch = PageFetch(loads, which, offset, self._ignore if is_first else self._threads.speed_up)
        return fetch if self._staging is None else self._staging.copy(fetch, size)

    @property
    def at_once(self) -> int:
        """Requests that are in flight at most."""
        return self._threads.at_once

    def take_begun(self) -> dict[tuple[int, int], Load]:
        """Give the parts of the next epoch that were asked for, by start and stop."""
        # The threads that load them are not in a process that was forked meanwhile.
        return {} if self._next is None or os.getpid() != self._process else self._next.take()

    def reload(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> bool:
        """Let damaged regions come anew at the next fetch; False if they come from this machine alone."""
        return reload_regions(self._files, offset, size)

    def interrupt(self) -> None:
        """Drop loads that were not begun, and end the waiting for everything else; called from any thread."""
        if os.getpid() == self._process:
            self._threads.interrupt(list(self._from_others))

    def close(self) -> None:
        """End the threads; may be called twice. Parts that were not begun are dropped, but for the next epoch's."""
        if os.getpid() != self._process:
            return
        kept = set() if self._next is None else self._next.end()
        if kept:
            self._threads.finish(kept)
        else:
            self._threads.close()
        if self._staging is not None:
            self._staging.close()
        self._loads.clear()

    def _alone(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> tuple[list[Load], NDArray[np.int64]]:
        ranges = plan_ranges(offset, size, max_gap=MAX_GAP, max_read=MAX_PART)
        places = zip(ranges.start.tolist(), ranges.stop.tolist(), strict=True)
        loads = [self._threads.ask(*place, is_urgent=True) for place in places]
        for load in loads:
            self.transfer.count(load.stop - load.start)
        return loads, ranges.source

    def _of_batch(
        self, offset: NDArray[np.uint64], is_solid: NDArray[np.bool_], batch: int
    ) -> tuple[list[Load], NDArray[np.int64]]:
        """Find the parts of a batch, and for each region which of them it is in; -1 for one without bytes."""
        self._ask(batch)
        which = np.full(len(offset), -1)
        loads: list[Load] = []
        if is_solid.any():
            while batch not in self._groups[0].batches:
                self._groups.popleft()
            parts, which[is_solid] = np.unique(self._plan.find(self._groups[0], offset[is_solid]), return_inverse=True)
            loads = [self._loads[part] for part in parts.tolist()]
        for part in self._last_uses.pop(batch, ()):
            del self._loads[part]
        return loads, which

    def _ask(self, batch: int) -> None:
        """Ask for the parts that a batch needs, and for some ahead of it."""
        while self._ahead and self._ahead[0].first <= batch:
            self._ahead.popleft()
        while (part := self._next_part()) is not None:
            if part.first > batch:
                if len(self._ahead) >= self._threads.at_once:
                    return
                self._ahead.append(part)
            begun = self._begun.pop((part.start, part.stop), None)
            self._loads[part.number] = load = begun or self._threads.ask(part.start, part.stop)
            self.transfer.count(load.stop - load.start)
            self._last_uses[part.last].append(part.number)
            self._coming.popleft()
        if self._next is not None:
            with suppress(Exception):  # this epoch does without
                self._next.ask(self._threads, self._threads.at_once - len(self._ahead))

    def _next_part(self) -> Part | None:
        """Give the next part to ask for; None after the last."""
        while not self._coming:
            group = next(self._undecided, None)
            if group is None:
                return None
            self._groups.append(group)
            self._coming.extend(group.parts)
        return self._coming[0]

    def _ignore(self) -> None:
        """Do nothing when a batch is late."""


class NextEpoch:
    """Asks for the first parts of the epoch that probably follows, so that it begins without waiting."""

    # Another thread may call `take`: that of a loop over the next epoch, while one over this goes on.

    def __init__(self, plan_next: Callable[[], PagePlan]) -> None:
        self._plan_next = plan_next
        self._thread: threading.Thread | None = None
        self._parts: Iterator[Part] = iter(())
        self._loads: dict[tuple[int, int], Load] = {}
        self._taken: WeakSet[Load] = WeakSet()  # in the next epoch's hands
        self._is_over = False

    def ask(self, threads: LoadThreads, count: int) -> None:
        """Have `count` parts asked for, once the epoch is planned, which a thread does."""
        if self._is_over:
            return
        if self._thread is None:
            thread = threading.Thread(target=self._plan, name="gpubeton-next-epoch", daemon=True)
            thread.start()
            self._thread = thread
        elif not self._thread.is_alive():
            for part in itertools.islice(self._parts, max(count - len(self._loads), 0)):
                self._loads[part.start, part.stop] = threads.ask(part.start, part.stop)

    def end(self) -> set[Load]:
        """Stop asking; give the parts that were asked for and are not there."""
        self._is_over = True
        if self._thread is not None:
            self._thread.join()
        return {load for load in (*self._loads.values(), *self._taken) if not load.is_done}

    def take(self) -> dict[tuple[int, int], Load]:
        """Stop asking; give the parts that were asked for, once."""
        self._is_over = True
        taken, self._loads = self._loads, {}
        self._taken.update(taken.values())
        return taken

    def _plan(self) -> None:
        """Body of the thread."""
        with suppress(Exception):  # it is a guess; errors of the next epoch are found when it begins
            plan = self._plan_next()
            self._parts = (part for group in plan.groups() for part in group.parts)


class PageFetch:
    """Regions in parts of files."""

    def __init__(
        self, loads: Sequence[Load], which: NDArray[np.int64], offset: NDArray[np.uint64], on_late: Callable[[], None]
    ) -> None:
        self._loads = loads
        self._which = which  # (N,) the load of each region, -1 if it has no bytes
        self._offset = offset  # (N,)
        self._on_late = on_late

    @property
    def is_ready(self) -> bool:
        """Whether every part is there."""
        return all(load.is_done and load.error is None for load in self._loads)

    def addresses(self) -> NDArray[np.uint64]:
        """Wait for the parts; return the addresses, shape (N,), or raise the first error."""
        if not all(load.is_done for load in self._loads):
            self._on_late()
        return self.wait()

    def wait(self) -> NDArray[np.uint64]:
        """Do the same, where waiting is nothing to hurry for."""
        for load in self._loads:
            load.wait()
        shift = np.array([*(load.shift % (1 << 64) for load in self._loads), 0], np.uint64)
        return self._offset + shift[self._which]

    def release(self) -> None:
        """Let the parts go; may be called twice."""
        self._loads = ()

    @property
    def on_late(self) -> Callable[[], None]:
        """Called when a batch has to wait."""
        return self._on_late


class PinnedCopies:
    """A thread that copies the regions of fetches into page-locked memory, as soon as they are there."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._fetches: SimpleQueue[PinnedFetch | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="gpubeton-pin", daemon=True)
        self._thread.start()

    def copy(self, fetch: PageFetch, size: NDArray[np.uint64]) -> PinnedFetch:
        """Copy the regions of a fetch, of so many bytes each, (N,); returns at once."""
        pinned = PinnedFetch(fetch, size, self._staging)
        self._fetches.put(pinned)
        return pinned

    def close(self) -> None:
        """End the thread; may be called twice. No part may be on its way any more."""
        self._fetches.put(None)
        self._thread.join()

    def _work(self) -> None:
        """Body of the thread."""
        while (fetch := self._fetches.get()) is not None:
            fetch.carry_out()
            # It holds staging memory, which may be wanted elsewhere while this thread waits for the next.
            del fetch


class PinnedFetch:
    """Regions that are copied into page-locked memory."""

    def __init__(self, fetch: PageFetch, size: NDArray[np.uint64], staging: Staging) -> None:
        self._fetch, self._size, self._staging = fetch, size, staging
        self._block: Buffer | None = None
        self._address = np.zeros(0, np.uint64)
        self._error: BaseException | None = None
        self._is_released = False
        self._lock = threading.Lock()
        self._is_done = threading.Event()

    @property
    def is_ready(self) -> bool:
        """Whether everything was copied."""
        return self._is_done.is_set() and self._error is None

    def addresses(self) -> NDArray[np.uint64]:
        """Wait for the copy; return the addresses, shape (N,), or raise the first error."""
        if not self._is_done.is_set():
            self._fetch.on_late()
        self._is_done.wait()
        if self._error is not None:
            raise self._error
        return self._address

    def carry_out(self) -> None:
        """Copy the regions; errors are raised where they are waited for."""
        try:
            source, end = self._fetch.wait(), np.cumsum(self._size)
            block = self._staging.take(int(self._size.sum()))
            self._address = np.uint64(np.frombuffer(block, np.uint8).ctypes.data) + end - self._size
            for place in zip(self._address.tolist(), source.tolist(), self._size.tolist(), strict=True):
                ctypes.memmove(*place)
            with self._lock:
                self._block = block
                self._give_back_if_released()
        except BaseException as error:  # noqa: BLE001  it would be lost in this thread
            self._error = error
        self._fetch.release()
        self._is_done.set()

    def release(self) -> None:
        """Give the memory back, once nothing is written to it any more; may be called twice."""
        with self._lock:
            self._is_released = True
            self._give_back_if_released()

    def _give_back_if_released(self) -> None:
        if self._is_released and self._block is not None:
            self._staging.give_back(self._block)
            self._block = None
