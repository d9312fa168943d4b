"""DatasetCache: what a loader does with the node's cache, `cache_dir`."""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from gpubeton._bytes.open_files import CacheFiller, OpenSources, source_type
from gpubeton.errors import StorageError

if TYPE_CHECKING:
    from gpubeton._bytes.load_pool import Transfer
    from gpubeton._bytes.node_cache import NodeCache
    from gpubeton.format.index import Index
    from gpubeton.loader.config import LoaderConfig

# Pages that no sample is in (metadata, the allocation table) are fetched, so that the files can be mapped: up to this
# share of all, or as much as two pages of each file. The epoch waits for them only if they have few bytes.
_FEW = 1 / 8
_FEW_BYTES = 1 << 30


class DatasetCache:
    """The cache of the files of a loader; nothing is cached if `node` is None."""

    def __init__(self, index: Index, config: LoaderConfig) -> None:
        remote = [file for file in index.files if not source_type(file.path).is_local]
        self._remote = [file.identity for file in remote]
        self._few_bytes = sum(2 * file.page_size for file in remote)
        self.node: NodeCache | None = None
        if remote and config.cache_dir is not None:
            from gpubeton._bytes.node_cache import open_cache  # the import takes time

            self.node = open_cache(config.cache_dir, config.cache_limit)
        # They stay open: all epochs read the files that were checked, also when these are renamed or deleted.
        files = ((file.path, file.identity) for file in index.files)
        self.files = OpenSources(files, is_random=not config.os_cache, cache=self.node)
        self.files.hold()
        self._filler: CacheFiller | None = None
        self._waited_for: CacheFiller | None = None
        self._is_interrupted = False

    @property
    def holds_dataset(self) -> bool:
        """Whether the cache is large enough for all files that are not on this machine."""
        return self.node is not None and sum(identity.size for identity in self._remote) <= self.node.limit

    def prepare(self) -> None:
        """Fetch the last pages if few are missing; the files can be mapped then, or in a later epoch."""
        if self.node is None:
            return
        (missing, total), few = self._count_missing(), 2 * len(self._remote) + self._few_bytes // self.node.page_size
        if 0 < missing <= min(few, _FEW_BYTES // self.node.page_size):
            self._waited_for = filler = self._make_filler(waits=True)
            if self._is_interrupted:
                filler.interrupt()
            with suppress(StorageError):  # without them the epoch may go on
                filler.join()
        elif 0 < missing <= max(total * _FEW, few):
            self.begin_filling()

    def begin_filling(self) -> None:
        """Fetch all missing pages in the background, as far as the limit allows it; again after an error."""
        error = None if self._filler is None else self._filler.error
        if error is not None:
            warnings.warn(f"cache_dir: filling it in the background ended, and begins again: {error}", stacklevel=2)
        if self.node is not None and (self._filler is None or error is not None):
            self._filler = self._make_filler(waits=False)

    def begin_counting(self) -> Transfer | None:
        """Count from now on the loaded parts of the files; None without a cache, which does not count."""
        return None if self.node is None else self.node.begin_counting()

    def explain(self) -> list[str]:
        """Describe the cached part, and the limit."""
        if self.node is None:
            return []
        missing, total = self._count_missing()
        dataset = sum(identity.size for identity in self._remote)
        fits = "" if self.holds_dataset else "; what does not fit is loaded in each epoch"
        return [
            f"cache: {total - missing} of {total} pages of {dataset / 1e9:,.3f} GB are in {self.node.directory}",
            f"cache: {self.node.used / 1e9:,.3f} GB are used, of at most {self.node.limit / 1e9:,.3f} GB{fits}",
        ]

    def interrupt(self) -> None:
        """End the waiting in `prepare`; called from any thread."""
        self._is_interrupted = True
        if self._waited_for is not None:
            self._waited_for.interrupt()

    def close(self) -> None:
        """End what runs in the background, and close the files; may be called twice."""
        if self._filler is not None:
            self._filler.close()
        self.files.close()

    def _make_filler(self, *, waits: bool) -> CacheFiller:
        return CacheFiller([partial(self.files.open, number) for number in range(len(self.files))], waits=waits)

    def _count_missing(self) -> tuple[int, int]:
        """Count the pages that are not there, and all."""
        assert self.node is not None
        counts = [self.node.count_pages(identity) for identity in self._remote]
        total = sum(pages for _, pages in counts)
        return total - sum(cached for cached, _ in counts), total
