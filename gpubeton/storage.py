"""Storage: how the bytes of `.beton` files come into memory, mapped or read ahead by threads."""

from __future__ import annotations

import mmap
import threading
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpubeton.errors import LoaderClosedError
from gpubeton.format.data_files import first_offset, split_offsets
from gpubeton.plan.ranges import plan_ranges

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubeton.files.open_files import OpenSources


class Fetch(Protocol):
    """Regions on their way into memory."""

    @property
    def is_ready(self) -> bool:
        """Whether `addresses` would return (or raise) at once."""
        ...

    def addresses(self) -> NDArray[np.uint64]:
        """Wait until every byte is there; give the address of each region, uint64 (N,), good until `release`."""
        ...

    def release(self) -> None:
        """Release the memory. The addresses must not be used any more."""
        ...


class Storage(Protocol):
    """The bytes of the files of a dataset."""

    @property
    def is_pinned(self) -> bool:
        """Whether regions come into page-locked memory, which a GPU reads where it is."""
        ...

    def fetch(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> Fetch:
        """Request regions by global offset and size, uint64 (N,) each; returns at once."""
        ...

    def close(self) -> None:
        """End threads and close files. No fetch may be in use any more."""
        ...


STEP = 1 << 20
"""Sizes are rounded up to multiples of this, so that most batches, which differ a little, fit into an earlier block."""

Buffer: TypeAlias = mmap.mmap | NDArray[np.uint8]
"""Writable memory."""

# Memory of this process alone: by default a mapping is shared with children, which would write into our batches.
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def allocate_block(nbytes: int) -> mmap.mmap:
    """Allocate memory that goes back to the system with the last reference to it."""
    block = mmap.mmap(-1, nbytes, flags=_FLAGS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            block.madvise(mmap.MADV_HUGEPAGE)  # touching it first takes a third of the time
        except OSError:  # a kernel without them
            return block
    return block


class Staging:
    """Blocks of memory for the bytes of batches. Thread-safe."""

    # It holds as many blocks as were ever in use at once, none larger than the largest that was requested.

    def __init__(self, allocate: Callable[[int], Buffer] = allocate_block, *, is_pinned: bool = False) -> None:
        self.is_pinned = is_pinned
        self._allocate = allocate
        self._free: list[Buffer] = []
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Buffer:
        """Give a block of at least so many bytes, not initialised."""
        with self._lock:
            for number, block in enumerate(self._free):
                if len(block) >= nbytes:
                    return self._free.pop(number)
            # None is large enough: a larger one takes the place of the largest, so that their number does not grow.
            if self._free:
                self._free.pop()
        return self._allocate(-(-max(nbytes, 1) // STEP) * STEP)

    def give_back(self, block: Buffer) -> None:
        """Take a block back, for others to use."""
        with self._lock:
            self._free.append(block)
            # Smallest first: the search takes the smallest that fits.
            self._free.sort(key=len)


MAX_GAP = 4096
"""Regions nearer than this are announced or read as one: the page cache works in pages of this size anyway."""

# The longest span that is announced at once.
_MAX_SPAN = 8 << 20
# Regions of a batch that are probed to see whether the system holds the file already.
_NUM_PROBES = 8


class MappedStorage:
    """Files mapped into memory: nothing is copied, and all loaders and processes share the pages. Thread-safe."""

    is_pinned = False

    def __init__(self, files: OpenSources) -> None:
        self._files = files
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
            return offset + np.uint64(self._base[0])
        base: NDArray[np.uint64] = self._base[split_offsets(offset)[0]]
        return offset + base

    def fetch(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> MappedFetch:
        """Announce regions to the operating system, so that it reads those that it does not hold yet."""
        # `offset`, `size`: uint64 (N,). Without the announcement a file that is not in memory would be read page by
        # page, each when a worker touches it. A few probes show whether it is in memory, as it mostly is.
        if not self._is_cached(offset, size):
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
        step = max(len(offset) // _NUM_PROBES, 1)
        files, position = split_offsets(offset[::step] + size[::step] // np.uint64(2))
        with suppress(OSError):  # a file that has lost its name cannot be opened
            for number in set(files.tolist()):
                probes = np.minimum(position[files == number], np.uint64(self._files.sizes[number] - 1))
                if not self._files.open(number).is_cached(*probes.tolist()):
                    return False
            return True
        return False

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


# Longer ranges are cut here, so that several threads share them. A region is never cut.
MAX_READ = 4 << 20


class ReadStorage:
    """Files whose regions threads read as soon as they are requested, instead of mapping them."""

    # Memory: for each fetch that was not released, the bytes of its regions, plus up to `MAX_GAP` bytes for each
    # region. Later fetches use it again.

    def __init__(self, files: OpenSources, staging: Staging | None = None, *, max_read: int = MAX_READ) -> None:
        self._files = files
        self._max_read = max_read
        first = files.open(0)  # raises at once if nothing can be read
        files.check()
        self._staging = staging or Staging()
        self._reads: SimpleQueue[_Read | None] = SimpleQueue()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"gpubeton-read-{number}", daemon=True)
            for number in range(first.num_readers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_pinned(self) -> bool:
        """Whether regions come into page-locked memory."""
        return self._staging.is_pinned

    def fetch(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> ReadFetch:
        """Begin to read regions, each byte once, in few large reads; returns at once."""
        # offset, size: uint64 (N,)
        if self._is_closed:
            raise self._closed_error()
        plan = plan_ranges(offset, size, max_gap=MAX_GAP, max_read=self._max_read)
        length = (plan.stop - plan.start).astype(np.int64)
        begin_in_block = np.cumsum(length) - length
        block = self._staging.take(int(length.sum()))
        # A region without bytes is in no range (-1); its address does not matter.
        start_of_range = np.append(begin_in_block, 0)[plan.source].astype(np.uint64)
        content = np.frombuffer(block, np.uint8)
        base = content.ctypes.data
        fetch = ReadFetch(self._staging, block, np.uint64(base) + start_of_range + plan.position, len(begin_in_block))
        number, start = split_offsets(plan.start)
        for file, first, begin, count in zip(
            number.tolist(), start.tolist(), begin_in_block.tolist(), length.tolist(), strict=True
        ):
            self._reads.put(_Read(fetch, file, first, content.data[begin : begin + count]))
        return fetch

    def close(self) -> None:
        """End the threads; may be called twice. Reads that were not begun are dropped."""
        if self._is_closed:
            return
        self._is_closed = True
        for _ in self._threads:
            self._reads.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        """Body of a thread."""
        while (read := self._reads.get()) is not None:
            read.fetch.one_is_done(self._try(read))
            # It holds staging memory, which may be wanted elsewhere while this thread waits for the next.
            del read

    def _try(self, read: _Read) -> BaseException | None:
        """Carry a read out, or return its error, which is raised where the bytes are awaited."""
        try:
            if self._is_closed:
                raise self._closed_error()
            self._files.open(read.file).read_ranges([(read.start, read.target)])
        except BaseException as error:  # noqa: BLE001  it would be lost in this thread
            return error
        return None

    def _closed_error(self) -> LoaderClosedError:
        return LoaderClosedError(f"{self._files.paths[0]}: the loader was closed while a batch was read")


class ReadFetch:
    """Regions that are being read."""

    def __init__(self, staging: Staging, block: Buffer, address: NDArray[np.uint64], num_reads: int) -> None:
        self._staging = staging
        self._block: Buffer | None = block
        self._address = address
        self._reads_left = num_reads
        self._error: BaseException | None = None
        self._is_released = False
        self._lock = threading.Lock()
        self._is_done = threading.Event()
        if num_reads == 0:
            self._is_done.set()

    @property
    def is_ready(self) -> bool:
        """Whether every read has ended."""
        return self._is_done.is_set()

    def addresses(self) -> NDArray[np.uint64]:
        """Wait for the reads; return the addresses, shape (N,), or raise the first error."""
        self._is_done.wait()
        if self._error is not None:
            raise self._error
        return self._address

    def release(self) -> None:
        """Give the memory back, once no read writes to it any more; may be called twice."""
        with self._lock:
            self._is_released = True
            self._give_back_if_unused()

    def one_is_done(self, error: BaseException | None) -> None:
        """Count a read that has ended."""
        with self._lock:
            self._reads_left -= 1
            self._error = self._error or error
            if self._reads_left == 0:
                self._is_done.set()
            self._give_back_if_unused()

    def _give_back_if_unused(self) -> None:
        if self._is_released and self._reads_left == 0 and self._block is not None:
            self._staging.give_back(self._block)
            self._block = None


@dataclass
class _Read:
    """One read: its file, its start there and the buffer to fill."""

    fetch: ReadFetch
    file: int
    start: int
    target: memoryview
