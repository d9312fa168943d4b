"""MappedStorage: files that are mapped into memory."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._plan.page_plan import plan_ranges
from gpubeton.format.data_files import OFFSET_BITS, first_offset, split_offsets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton._bytes.open_files import OpenSources

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


def reload_regions(files: OpenSources, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> bool:
    """Carry out `Storage.reload`."""
    places = zip(*(column.tolist() for column in (*split_offsets(offset), size)), strict=True)
    return all(files.open(number).reload(start, nbytes) for number, start, nbytes in places)


class MappedStorage:
    """Files mapped into memory: nothing is copied, and all loaders and processes share the pages. Thread-safe."""

    is_pinned = is_remote = False

    def __init__(self, files: OpenSources) -> None:
        self._files = files
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

    def reload(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> bool:
        """Let damaged regions come anew at the next fetch; False if they come from this machine alone."""
        return reload_regions(self._files, offset, size)

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
