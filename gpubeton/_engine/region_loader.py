"""RegionLoader: the threads that load the regions of a dataset's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpubeton._bytes.load_pool import LoadPool
from gpubeton._bytes.store_client import shown
from gpubeton.format.data_files import split_offsets

if TYPE_CHECKING:
    from concurrent.futures import Future

    from gpubeton._bytes.open_files import OpenSources

FIRST_REQUESTS = 16
"""Requests in flight at first: twice as many when the loop has to wait, half as many if the store is overloaded."""


class LoadedRange(NamedTuple):
    """A range of a file in memory."""

    content: memoryview  # keeps the memory
    shift: int  # added to a global offset within the range, it gives the address


class RegionLoader(LoadPool):
    """Threads that load regions of files."""

    def __init__(self, files: OpenSources, at_once: int, most: int | None = None, *, adapts: bool = True) -> None:
        super().__init__(shown(files.paths[0]), at_once, most, adapts=adapts)
        self._files = files

    def request(self, start: int, stop: int, *, is_urgent: bool = False) -> Future[LoadedRange]:
        """Request a range by its global offsets; returns at once. An urgent one comes before all others."""
        return self.enqueue(_load, self._files, start, stop, is_urgent=is_urgent)

    def read(self, number: int, start: int, target: memoryview) -> Future[None]:
        """Fill a buffer with bytes of a file; returns at once."""
        return self.enqueue(_read, self._files, number, start, target)


def _load(files: OpenSources, start: int, stop: int) -> LoadedRange:
    (number,), (position,) = split_offsets(np.array([start], np.uint64))
    content = files.open(int(number)).load(int(position), stop - start)
    return LoadedRange(content, np.frombuffer(content, np.uint8).ctypes.data - start)


def _read(files: OpenSources, number: int, start: int, target: memoryview) -> None:
    files.open(number).fill(start, target)
