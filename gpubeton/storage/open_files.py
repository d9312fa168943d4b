"""OpenFiles: descriptors of the files of a dataset, however many those are."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from gpubeton.format.file_identity import FileIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_OPEN = 64
"""Files that are open at once; a process may have 1024 descriptors as a rule, and others need some too."""


class OpenFiles:
    """Opens files when they are needed, and keeps those open that were needed last.

    A file is compared with its identity each time it is opened. One that stays open goes on being read when another
    file takes over its name. Safe to use from several threads.

    Parameters
    ----------
    files : iterable of tuple of (str or path, FileIdentity)
        Path of each file, and its identity when it was checked.
    max_open : int
        Files that are kept open.
    is_random : bool
        Whether the system is told that reading ahead is in vain.

    Attributes
    ----------
    paths : tuple of str
        The files.
    identities : tuple of FileIdentity
        Their identities.
    sizes : tuple of int
        Their bytes.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"abcdef")
    ...     file.flush()
    ...     files = OpenFiles([(file.name, FileIdentity.of(file.name))])
    ...     os.pread(files.open(0).number, 2, 1)
    b'bc'
    """

    def __init__(
        self,
        files: Iterable[tuple[str | os.PathLike[str], FileIdentity]],
        *,
        max_open: int = MAX_OPEN,
        is_random: bool = False,
    ) -> None:
        found = [(os.fspath(path), identity) for path, identity in files]
        self.paths = tuple(path for path, _ in found)
        self.identities = tuple(identity for _, identity in found)
        self.sizes = tuple(identity.size for identity in self.identities)
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
            If the file has changed, or another file has its name.
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
        self.identities[number].check(self.paths[number], FileIdentity.of(descriptor.number))
        if self._is_random and hasattr(os, "posix_fadvise"):
            # Whatever is needed is asked for in time; more would be read in vain.
            os.posix_fadvise(descriptor.number, 0, 0, os.POSIX_FADV_RANDOM)
        with self._lock:
            self._open[number] = descriptor
            if len(self._open) > self._max_open:
                self._open.popitem(last=False)
        return descriptor

    def hold(self) -> None:
        """Open as many files as are kept open, the first ones.

        Raises
        ------
        StorageError
            If one has changed, or another file has its name.
        OSError
            If one cannot be opened.
        """
        for number in range(min(len(self), self._max_open)):
            self.open(number)

    def check(self, *, is_mapped: bool = False) -> None:
        """Compare all files with what they were.

        Parameters
        ----------
        is_mapped : bool
            Whether all are mapped into memory. A mapping keeps the file that was mapped, so one that lost its name
            since is no error then.

        Raises
        ------
        StorageError
            If one was written to, or one that is not open was replaced.
        OSError
            If one that is not open is gone.
        """
        for number, (path, identity) in enumerate(zip(self.paths, self.identities, strict=True)):
            with self._lock:
                descriptor = self._open.get(number)
            try:
                found = FileIdentity.of(path if descriptor is None else descriptor.number)
            except FileNotFoundError:
                if is_mapped:
                    continue
                raise
            # The inode of a mapped file is in use, so that no other file can have its number.
            if not is_mapped or identity.is_same_file(found):
                identity.check(path, found)

    def close(self) -> None:
        """Close all files that nobody holds; the others are closed when they are let go. May be called twice."""
        with self._lock:
            self._open.clear()


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
