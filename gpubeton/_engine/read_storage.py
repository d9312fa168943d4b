"""ReadStorage: files whose regions threads read, batch by batch, instead of mapping them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._bytes.staging import Staging
from gpubeton._engine.mapped_storage import MAX_GAP, reload_regions
from gpubeton._plan.ranges import plan_ranges
from gpubeton.errors import LoaderClosedError
from gpubeton.format.data_files import split_offsets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton._bytes.open_files import OpenSources
    from gpubeton._bytes.staging import Buffer

# Longer ranges are cut here, so that several threads share them. A region is never cut.
MAX_READ = 4 << 20


class ReadStorage:
    """Files whose regions threads read as soon as they are requested, instead of mapping them."""

    # Memory: for each fetch that was not released, the bytes of its regions, plus up to `MAX_GAP` bytes for each
    # region. Later fetches use it again.

    is_remote = False

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

    def fetch(self, offset: NDArray[np.uint64], size: NDArray[np.uint64], batch: int | None = None) -> ReadFetch:
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

    def reload(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> bool:
        """Let damaged regions come anew at the next fetch; False if they come from this machine alone."""
        return reload_regions(self._files, offset, size)

    def interrupt(self) -> None:
        """Do nothing: no read waits for another machine."""

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
        """Whether every byte is there."""
        return self._is_done.is_set() and self._error is None

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
