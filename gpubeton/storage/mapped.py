"""MappedStorage: files as the operating system's page cache shows them."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.format.places import first_place, split_places
from gpubeton.plan.ranges import plan_ranges
from gpubeton.storage.mapping import map_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.storage.open_files import OpenFiles

# Regions nearer than this are announced to the system as one: the page cache works in pages of this size anyway.
_MAX_GAP = 4096
# The longest span that is announced at once.
_MAX_SPAN = 8 << 20
# Regions of a batch that are looked at to tell whether the system holds the file already.
_NUM_PROBES = 8


class MappedStorage:
    """Files mapped into memory: nothing is copied, and every loader and process shares the same pages.

    May be used by several threads and loaders at once. Regions are asked for by their places, see
    `gpubeton.format.places`: the offset, if there is one file.

    Parameters
    ----------
    files : OpenFiles
        The files, as they were when they were checked.

    Attributes
    ----------
    arrays : tuple of ndarray of uint8, each of shape (bytes of the file,)
        The files, read-only. They keep the mappings alive by themselves.

    Raises
    ------
    StorageError
        If a file has changed since it was checked.
    OSError
        If one cannot be opened or mapped.

    Examples
    --------
    >>> from gpubeton.storage.open_files import OpenFiles
    >>> import tempfile
    >>> from gpubeton.format.file_identity import FileIdentity
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"abcdef")
    ...     file.flush()
    ...     storage = MappedStorage(OpenFiles([(file.name, FileIdentity.of(file.name))]))
    >>> fetch = storage.fetch(np.array([2], "u8"), np.array([3], "u8"))
    >>> int(fetch.addresses()[0]) - storage.arrays[0].ctypes.data
    2
    """

    is_pinned = False

    def __init__(self, files: OpenFiles) -> None:
        self._files = files
        self.arrays: tuple[NDArray[np.uint8], ...] = tuple(
            map_file(files.open(number).number, size) for number, size in enumerate(files.sizes)
        )
        # What has to be added to places in each file.
        start = np.array([array.ctypes.data for array in self.arrays], np.uint64)
        self._base: NDArray[np.uint64] = start - np.array([*map(first_place, range(len(files)))], np.uint64)

    def check(self) -> None:
        """Compare the files with what was mapped.

        A mapping shows what is written to its file, and touching a page that was cut off would end the process. A file
        that was renamed, deleted or replaced by another one is still the same in memory.

        Raises
        ------
        StorageError
            If a file was written to.
        """
        self._files.check(is_mapped=True)

    def address(self, offset: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Give the addresses of places.

        Parameters
        ----------
        offset : ndarray of uint64, shape (N,)
            Places.

        Returns
        -------
        ndarray of uint64, shape (N,)
            Addresses, good as long as `arrays` are alive.
        """
        if len(self.arrays) == 1:  # as a rule
            return offset + np.uint64(self._base[0])
        base: NDArray[np.uint64] = self._base[split_places(offset)[0]]
        return offset + base

    def fetch(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> MappedFetch:
        """Announce regions to the operating system, so that it reads those that it does not hold yet.

        Without the announcement a file that is not in memory would be read page by page, each at the moment when a
        worker stumbles over it. A few probes tell whether it is in memory anyway, as it mostly is.

        Parameters
        ----------
        offset, size : ndarray of uint64, shape (N,)
            Place of the first byte, and length, of each region.

        Returns
        -------
        MappedFetch
            Ready at once; pages that are still missing are waited for by whoever touches them.
        """
        if hasattr(os, "posix_fadvise") and not self._is_resident(offset, size):
            ranges = plan_ranges(offset, size, max_gap=_MAX_GAP, max_read=_MAX_SPAN)
            number, start = split_places(ranges.start)
            length = ranges.stop - ranges.start
            # What cannot be announced any more, as the file has lost its name, is mapped nevertheless.
            with suppress(OSError):
                for file, first, count in zip(number.tolist(), start.tolist(), length.tolist(), strict=True):
                    os.posix_fadvise(self._files.open(file).number, first, count, os.POSIX_FADV_WILLNEED)
        return MappedFetch(self.address(offset), self.arrays)

    def _is_resident(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> bool:
        """Whether the system holds the middle of each of some regions, told without making it read."""
        step = max(len(offset) // _NUM_PROBES, 1)
        number, place = split_places(offset[::step] + size[::step] // np.uint64(2))
        byte = bytearray(1)
        try:
            for file, at in zip(number.tolist(), place.tolist(), strict=True):
                descriptor = self._files.open(file)
                os.preadv(descriptor.number, [byte], min(at, self._files.sizes[file] - 1), os.RWF_NOWAIT)
        except OSError:  # not there; or a file system that cannot tell
            return False
        return True

    def close(self) -> None:
        """Do nothing: the mapping goes when nobody refers to `arrays` any more, and so cannot go too early."""


class MappedFetch:
    """Regions of mapped files.

    Parameters
    ----------
    address : ndarray of uint64, shape (N,)
        Where they are.
    keep : object
        What keeps the mappings alive.
    """

    is_ready = True

    def __init__(self, address: NDArray[np.uint64], keep: Any) -> None:
        self._address = address
        self._keep = keep

    def addresses(self) -> NDArray[np.uint64]:
        """Return the addresses, shape (N,), at once."""
        return self._address

    def release(self) -> None:
        """Let go of the mappings."""
        self._keep = None
