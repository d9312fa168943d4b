"""FileIdentity: how to see that a file is still the one that was checked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import BinaryIO

from gpubeton.errors import StorageError

__all__ = ["FileIdentity", "open_unchanged"]


@dataclass(frozen=True)
class FileIdentity:
    """What tells a file from another one, and from itself after a change.

    The size alone does not: files consist of whole pages, so that two files of the same samples often have equal sizes.

    Parameters
    ----------
    device, inode : int
        Which file. Another file that takes over its name has other ones.
    size : int
        Its bytes.
    mtime_ns : int
        When it was written to last, in nanoseconds.

    Examples
    --------
    >>> FileIdentity.of("train.beton") == FileIdentity.of("train.beton")
    True
    """

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, file: int | str | os.PathLike[str]) -> FileIdentity:
        """Ask the system for the identity of a file.

        Parameters
        ----------
        file : int, str or path
            An open descriptor, or a path.

        Returns
        -------
        FileIdentity
            Its identity now.

        Raises
        ------
        OSError
            If there is no such file.
        """
        found = os.stat(file)  # noqa: PTH116  a descriptor is no path
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def is_same_file(self, other: FileIdentity) -> bool:
        """Whether both are states of one file, which may have been written to in between."""
        return (self.device, self.inode) == (other.device, other.inode)

    def check(self, path: str, found: FileIdentity) -> None:
        """Compare what was found with this identity.

        Parameters
        ----------
        path : str
            Named in the error.
        found : FileIdentity
            The identity of the file now.

        Raises
        ------
        StorageError
            If they differ.
        """
        if found == self:
            return
        if not found.is_same_file(self):
            raise StorageError(
                f"{path}: another file (inode {found.inode}, {found.size} bytes) has this name now; when it was opened "
                f"it was inode {self.inode} of {self.size} bytes. The file was replaced: open it again, in training "
                "with a new Loader."
            )
        if found.size != self.size:
            raise StorageError(
                f"{path}: {found.size} bytes, but {self.size} when it was opened. Something writes to the file while "
                "it is being read: wait until it is complete, and open it again, in training with a new Loader."
            )
        raise StorageError(
            f"{path}: modified at {found.mtime_ns / 1e9:.3f} s since 1970, but at {self.mtime_ns / 1e9:.3f} when it "
            "was opened. Something has written to the file since, so that its samples may be others: open it again, in "
            "training with a new Loader. To replace a file that is in use, write a new one and rename it."
        )


def open_unchanged(path: str | os.PathLike[str], identity: FileIdentity) -> BinaryIO:
    """Open a file for reading, if it is still the one that was checked.

    Parameters
    ----------
    path : str or path
        The file.
    identity : FileIdentity
        What it was.

    Returns
    -------
    binary file
        At its start.

    Raises
    ------
    StorageError
        If it has changed, or another file has its name.
    OSError
        If it cannot be opened.
    """
    file = open(path, "rb")  # noqa: SIM115  whoever called closes it
    try:
        identity.check(os.fspath(path), FileIdentity.of(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file
