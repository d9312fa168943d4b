"""CacheFiller: fetches the missing pages of files into the node's cache, in the order of the files."""

from __future__ import annotations

import threading
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING

from gpubeton._bytes.cached_file import CachedFile
from gpubeton._bytes.load_pool import LoadPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

NUM_THREADS = 8
"""Pages on their way at once: enough for most networks."""


class CacheFiller:
    """Fetches pages until all are there, the cache is full or a fetch fails."""

    def __init__(
        self,
        files: Iterable[Callable[[], object]],
        *,
        waits: bool = False,  # for pages that others fetch; otherwise they are left to them
        on_page: Callable[[int], object] = int,  # called with the bytes of each page that is there
        num_threads: int = NUM_THREADS,
    ) -> None:
        # `files` open the files, each when it is its turn.
        self.error: BaseException | None = None
        self._waits, self._on_page = waits, on_page
        self._pages = self._list_pages(files)
        self._lock = threading.Lock()
        self._is_ended = threading.Event()
        self._is_interrupted = False
        pool = LoadPool("cache_dir", num_threads)
        self._works = [pool.enqueue(self._work) for _ in range(num_threads)]
        pool.finish(self._works)

    def join(self) -> None:
        """Wait until all threads have ended or `interrupt` is called, or end them on Ctrl-C; raise the first error."""
        try:
            while not self._is_interrupted and wait_for(self._works, 0.1).not_done:
                pass
        except BaseException:  # such as Ctrl-C
            self.close()
            raise
        if self.error is not None:
            raise self.error

    def interrupt(self) -> None:
        """End the threads, and end `join` before; called from any thread."""
        self._is_interrupted = True
        self.close()

    def close(self) -> None:
        """End the threads once their pages are there; may be called twice, also from one of them."""
        self._is_ended.set()

    def _list_pages(self, files: Iterable[Callable[[], object]]) -> Iterator[tuple[CachedFile, int]]:
        for open_file in files:
            file = open_file()
            if isinstance(file, CachedFile):
                yield from ((file, page) for page in range(file.num_pages))

    def _work(self) -> None:
        """Fetch one page after the other; several threads do."""
        try:
            while not self._is_ended.is_set():
                with self._lock:
                    file, page = next(self._pages, (None, 0))
                if file is None:
                    return
                if file.ensure(page, waits=self._waits):
                    with self._lock:
                        self._on_page(file.page_bytes(page))
                elif self._waits or file.budget.is_full:
                    self.close()
        except BaseException as error:  # noqa: BLE001  it would be lost in this thread
            self.error = self.error or error
            self.close()
