"""OpenFiles: descriptors of the files of a dataset, however many those are."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from gpubeton.errors import StorageError

MAX_OPEN = 64
"""Files that are open at once; a process may have 1024 descriptors as a rule, and others need some too."""


class OpenFiles:
    """Opens files when they are needed, and keeps those open that were needed last.

    A file is compared with what it was each time when it is opened. Safe to use from several threads.

    Parameters
    ----------
    files : iterable of tuple of (str or path, int)
        Path of each file, and how many bytes it had when it was checked.
    max_open : int
        Files that are kept open.
    is_random : bool
        Whether the system is told that reading ahead is in vain.

    Attributes
    ----------
    paths : tuple of str
        The files.
    sizes : tuple of int
        Their bytes.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"abcdef")
    ...     file.flush()
    ...     files = OpenFiles([(file.name, 6)])
    ...     os.pread(files.open(0).number, 2, 1)
    b'bc'
    """

    def __init__(
        self, files: Iterable[tuple[str | os.PathLike[str], int]], *, max_open: int = MAX_OPEN, is_random: bool = False
    ) -> None:
        found = [(os.fspath(path), size) for path, size in files]
        self.paths = tuple(path for path, _ in found)
        self.sizes = tuple(size for _, size in found)
        self._max_open = max_open
        self._is_random = is_random
        self._open: OrderedDict[int, Descriptor] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.paths)

    def open(self, number: int) -> Descriptor:
        """Give a file's descriptor.

        Parameters
        ----------
        number : int
            Which file.

        Returns
        -------
        Descriptor
            Open as long as somebody holds it.

        Raises
        ------
        StorageError
            If the file has another size by now.
        OSError
            If it cannot be opened.
        """
        with self._lock:
            descriptor = self._open.get(number)
            if descriptor is not None:
                self._open.move_to_end(number)
                return descriptor
        # Without the lock: on a network this takes time. Two threads may open the same file; one of them stays.
        descriptor = Descriptor(self.paths[number])
        self._check(number, os.fstat(descriptor.number).st_size)
        if self._is_random and hasattr(os, "posix_fadvise"):
            # Whatever is needed is asked for in time; more would be read in vain.
            os.posix_fadvise(descriptor.number, 0, 0, os.POSIX_FADV_RANDOM)
        with self._lock:
            self._open[number] = descriptor
            if len(self._open) > self._max_open:
                self._open.popitem(last=False)
        return descriptor

    def check_sizes(self) -> None:
        """Compare all files with what they were.

        Raises
        ------
        StorageError
            If one has another size by now.
        OSError
            If one that is not open is gone.
        """
        for number, path in enumerate(self.paths):
            with self._lock:
                descriptor = self._open.get(number)
            found = Path(path).stat() if descriptor is None else os.fstat(descriptor.number)
            self._check(number, found.st_size)

    def close(self) -> None:
        """Close all files that nobody holds; the others are closed when they are let go. May be called twice."""
        with self._lock:
            self._open.clear()

    def _check(self, number: int, found: int) -> None:
        if found != self.sizes[number]:
            raise StorageError(
                f"{self.paths[number]}: {found} bytes, but {self.sizes[number]} when it was opened. Something writes "
                "to the file while it is being read; wait until it is complete, and make a new Loader."
            )


class Descriptor:
    """A file descriptor that is closed when nobody refers to it any more.

    Parameters
    ----------
    path : str
        The file, opened for reading.

    Attributes
    ----------
    number : int
        The descriptor.
    """

    def __init__(self, path: str) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        # Not set if os.open raised.
        if hasattr(self, "number"):
            os.close(self.number)
