"""Bytes of the disk: long parts of a file, read into memory once they are known to be there."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import FormatError, TruncatedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["check_written", "read_bytes"]

#: Shorter parts are read in any case: memory of this size is no harm.
_HARMLESS = 64 << 20
#: A part of which less than one byte in so many was written is refused. Compressed files do not shrink further either.
_MOST_BYTES_OF_ONE = 1000
#: Bytes of a hole that are read, to see that they are zeros.
_PROBE = 4096


def check_written(path: str, descriptor: int, start: int, stop: int) -> None:
    """Refuse metadata that the disk does not hold, before memory is taken for them.

    A hole is a part of a file that was never written and reads as zeros: a file of 4 KiB can have terabytes of them.
    Holes alone are no fault: `cp --sparse`, ZFS and btrfs make holes of long runs of zeros, and labels may be zeros.
    So only metadata that are nearly nothing but holes are refused, which then say nothing about their samples. The
    number of blocks (st_blocks) is not looked at: file systems that compress, and many on a network, count few or none.

    Parameters
    ----------
    path : str
        Named in the error.
    descriptor : int
        The file. Its position is moved.
    start, stop : int
        First byte of the metadata, and the end.

    Raises
    ------
    TruncatedError
        If the metadata were never written.
    """
    if stop - start <= _HARMLESS or not hasattr(os, "SEEK_DATA"):
        return
    try:
        written = _count_written(descriptor, start, stop)
    except OSError:  # a file system that does not know its holes
        return
    if written * _MOST_BYTES_OF_ONE < stop - start:
        raise TruncatedError(
            f"{path}: the metadata should take {stop - start} bytes from {start} on, but only {written} bytes of them "
            "were ever written to the disk; all others are a hole in the file, and read as zeros. The file was "
            "probably not copied completely; compare it with the original."
        )


def _count_written(descriptor: int, start: int, stop: int) -> int:
    """Count the bytes that lie in no hole, until they are enough."""
    written, at = 0, start
    while at < stop and written * _MOST_BYTES_OF_ONE < stop - start:
        data = _next_data(descriptor, at, stop)
        # Some versions of ZFS called data that had just been written a hole.
        if data > at and any(os.pread(descriptor, min(_PROBE, data - at), at)):
            return stop - start
        at = min(os.lseek(descriptor, data, os.SEEK_HOLE), stop) if data < stop else stop
        written += at - data
    return written


def _next_data(descriptor: int, start: int, stop: int) -> int:
    """Find the first byte from `start` on that lies in no hole; `stop` if there is none before."""
    try:
        return min(os.lseek(descriptor, start, os.SEEK_DATA), stop)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return stop
        raise


def read_bytes(path: str, descriptor: int, start: int, stop: int) -> NDArray[np.uint8]:
    """Read a part of a file.

    Parameters
    ----------
    path : str
        Named in errors.
    descriptor : int
        The file.
    start, stop : int
        First byte, and the end.

    Returns
    -------
    ndarray of uint8, shape (stop - start,)
        The bytes.

    Raises
    ------
    FormatError
        If there is not as much memory.
    TruncatedError
        If the file ends before.
    OSError
        If they cannot be read.
    """
    try:
        content = np.empty(stop - start, np.uint8)
    except (MemoryError, ValueError) as error:  # numpy calls what no computer has a ValueError
        raise FormatError(
            f"{path}: bytes {start} to {stop} say where the samples are. They take {stop - start} bytes of memory, "
            "which this process cannot get. Either the file is damaged; or write it as several files, and open a part "
            "of them, or use a computer with more memory."
        ) from error
    rest = content.data
    while rest:
        count = os.preadv(descriptor, [rest], stop - len(rest))
        if count == 0:
            raise TruncatedError(f"{path}: the file became shorter while it was read. Is it still being written?")
        rest = rest[count:]
    return content
