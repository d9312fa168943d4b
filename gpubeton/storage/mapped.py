"""MappedStorage: the file as the operating system's page cache shows it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.errors import StorageError
from gpubeton.plan.ranges import plan_ranges

# Regions nearer than this are announced to the system as one: the page cache works in pages of this size anyway.
_MAX_GAP = 4096
# The longest span that is announced at once.
_MAX_SPAN = 8 << 20
# Regions of a batch that are looked at to tell whether the system holds the file already.
_NUM_PROBES = 8


class MappedStorage:
    """A file mapped into memory: nothing is copied, and every loader and process shares the same pages.

    May be used by several threads and loaders at once.

    Parameters
    ----------
    path : str or path
        The file.
    file_size : int
        How many bytes it had when it was checked.

    Raises
    ------
    StorageError
        If the file has another size by now.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"abcdef")
    ...     file.flush()
    ...     storage = MappedStorage(file.name, 6)
    >>> fetch = storage.fetch(np.array([2], "u8"), np.array([3], "u8"))
    >>> int(fetch.addresses()[0]) - storage.array.ctypes.data
    2
    """

    is_pinned = False

    def __init__(self, path: str | os.PathLike[str], file_size: int) -> None:
        self.path = os.fspath(path)
        self.file_size = file_size
        self._descriptor = _Descriptor(self.path)
        self.check_size()
        #: The whole file, uint8 of shape (file_size,), read-only. Keeps the mapping alive by itself.
        self.array: NDArray[np.uint8] = np.memmap(self.path, np.uint8, "r", shape=(file_size,)).view(np.ndarray)
        self._base = np.uint64(self.array.ctypes.data)

    def check_size(self) -> None:
        """Compare the file with what was mapped; touching a page that was cut off would end the process.

        Raises
        ------
        StorageError
            If the file has another size by now.
        """
        found = os.fstat(self._descriptor.number).st_size
        if found != self.file_size:
            raise StorageError(
                f"{self.path}: {found} bytes, but {self.file_size} when it was opened. Something writes to the file "
                "while it is being read; wait until it is complete, and make a new Loader."
            )

    def address(self, offset: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Give the addresses of places in the file.

        Parameters
        ----------
        offset : ndarray of uint64, shape (N,)
            Bytes from the start of the file.

        Returns
        -------
        ndarray of uint64, shape (N,)
            Addresses, good as long as `array` is alive.
        """
        return offset + self._base

    def fetch(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> MappedFetch:
        """Announce regions to the operating system, so that it reads those that it does not hold yet.

        Without the announcement a file that is not in memory would be read page by page, each at the moment when a
        worker stumbles over it. A few probes tell whether it is in memory anyway, as it mostly is.

        Parameters
        ----------
        offset, size : ndarray of uint64, shape (N,)
            First byte and length of each region.

        Returns
        -------
        MappedFetch
            Ready at once; pages that are still missing are waited for by whoever touches them.
        """
        if hasattr(os, "posix_fadvise") and not self._is_resident(offset, size):
            ranges = plan_ranges(offset, size, max_gap=_MAX_GAP, max_read=_MAX_SPAN)
            for start, stop in zip(ranges.start.tolist(), ranges.stop.tolist(), strict=True):
                os.posix_fadvise(self._descriptor.number, start, stop - start, os.POSIX_FADV_WILLNEED)
        return MappedFetch(self.address(offset), self.array)

    def _is_resident(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> bool:
        """Whether the system holds the middle of each of some regions, told without making it read."""
        step = max(len(offset) // _NUM_PROBES, 1)
        places = (offset[::step] + size[::step] // np.uint64(2)).tolist()
        byte = bytearray(1)
        try:
            for place in places:
                os.preadv(self._descriptor.number, [byte], min(place, self.file_size - 1), os.RWF_NOWAIT)
        except OSError:  # not there; or a file system that cannot tell
            return False
        return True

    def close(self) -> None:
        """Do nothing: the mapping goes when nobody refers to `array` any more, and so cannot go too early."""


class MappedFetch:
    """Regions of a mapped file.

    Parameters
    ----------
    address : ndarray of uint64, shape (N,)
        Where they are.
    keep : object
        What keeps the mapping alive.
    """

    is_ready = True

    def __init__(self, address: NDArray[np.uint64], keep: Any) -> None:
        self._address = address
        self._keep = keep

    def addresses(self) -> NDArray[np.uint64]:
        """Return the addresses, shape (N,), at once."""
        return self._address

    def release(self) -> None:
        """Let go of the mapping."""
        self._keep = None


class _Descriptor:
    """A file descriptor that is closed when nobody refers to it any more."""

    def __init__(self, path: str) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        # Not set if os.open raised.
        if hasattr(self, "number"):
            os.close(self.number)
