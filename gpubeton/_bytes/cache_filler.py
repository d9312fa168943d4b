"""CacheFiller: threads that fetch the missing pages of files into the node's cache, in the order of the files."""

from __future__ import annotations

import threading
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from gpubeton._bytes.cached_file import CachedFile
from gpubeton._bytes.node_cache import NodeCache, parse_size
from gpubeton._bytes.open_files import OpenSources
from gpubeton.errors import StorageError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from gpubeton._bytes.byte_source import SourceIdentity

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
        self._threads = [
            threading.Thread(target=self._work, name=f"gpubeton-fill-{number}", daemon=True)
            for number in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until the threads have ended or `interrupt` is called, or end them on Ctrl-C; raise the first error."""
        try:
            for thread in self._threads:
                while thread.is_alive() and not self._is_interrupted:
                    thread.join(0.1)
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
        """Body of a thread."""
        try:
            while not self._is_ended.is_set():
                with self._lock:
                    file, page = next(self._pages, (None, 0))
                if file is None:
                    return
                if file.ensure(page, waits=self._waits):
                    with self._lock:
                        self._on_page(file.page_bytes(page))
                elif self._waits or file.room.is_full:
                    self.close()
        except BaseException as error:  # noqa: BLE001  it would be lost in this thread
            self.error = self.error or error
            self.close()


def fill_cache(
    sources: Sequence[tuple[str, SourceIdentity]],
    directory: str | os.PathLike[str],
    limit: str | None,  # such as "800 GB"; None: of the disk's free space
    on_progress: Callable[[int, int], None],  # `Progress` of bytes
) -> tuple[Path, int]:
    """Fetch all pages of files into the cache of this machine; return its folder, and the bytes of the files."""
    node = NodeCache(directory, None if limit is None else parse_size("cache_limit", limit))
    done = 0
    with closing(OpenSources(sources, cache=node)) as files:
        total = sum(files.sizes)

        def count(page_bytes: int) -> None:
            nonlocal done
            done += page_bytes
            on_progress(done, total)

        files.hold()
        CacheFiller([partial(files.open, number) for number in range(len(files))], waits=True, on_page=count).join()
    if done < total:
        raise StorageError(
            f"{sources[0][0]}: {done:,} of {total:,} bytes are in {node.directory}, which may hold {node.limit:,}. "
            "Give it more, by --cache-limit or a larger disk. Files whose server names no versions of them (a strong "
            "ETag) are not cached."
        )
    return node.directory, total
