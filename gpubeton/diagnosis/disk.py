"""How fast a file can be read: past the operating system's memory, and from it."""

from __future__ import annotations

import mmap
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["DiskSpeed", "measure_disk", "where_to_read"]

_BLOCK = 1 << 20
_THREADS = 4


@dataclass(frozen=True)
class DiskSpeed:
    """How fast a file was read.

    Parameters
    ----------
    cold_bytes_per_second : float or None
        Blocks in random order, several at once, past the operating system's memory; None where the file system does
        not allow that.
    warm_bytes_per_second : float
        The same blocks, from memory.
    """

    cold_bytes_per_second: float | None
    warm_bytes_per_second: float


def measure_disk(path: str | os.PathLike[str], *, seconds: float = 1.0) -> DiskSpeed:
    """Read a file for a while.

    Parameters
    ----------
    path : str or path
        The file.
    seconds : float
        How long, for each of the two.

    Returns
    -------
    DiskSpeed
        What came of it. What the operating system holds in memory is not thrown out.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    cold = None
    with suppress(OSError, AttributeError):  # the file system, or the operating system, has no O_DIRECT
        cold = _speed(path, os.O_RDONLY | os.O_DIRECT, seconds, where_to_read(path))
    # As many as were read in the time from the disk, at least some: read once so that they are in memory.
    blocks = where_to_read(path)[:256]
    _speed(path, os.O_RDONLY, 60.0, blocks, only_once=True)
    return DiskSpeed(cold, _speed(path, os.O_RDONLY, seconds, blocks))


def where_to_read(path: str | os.PathLike[str]) -> list[int]:
    """Choose what is read of a file: its blocks of 1 MiB in random order, the same each time.

    What lies between the samples of a file is often not on the disk at all: such blocks come at the speed of memory.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    list of int
        Where blocks begin that are on the disk as a whole; of a file that has none, where all begin.

    Raises
    ------
    OSError
        If the file cannot be opened.
    """
    count = max(1, Path(path).stat().st_size // _BLOCK)
    chosen = np.random.default_rng(0).permutation(min(count, 1 << 16))
    starts = [int(number) * (count // len(chosen)) * _BLOCK for number in chosen]
    with open(path, "rb") as file:
        descriptor = file.fileno()
        return [start for start in starts if _is_on_disk(descriptor, start)] or starts


def _is_on_disk(descriptor: int, start: int) -> bool:
    try:
        if os.lseek(descriptor, start, os.SEEK_DATA) != start:
            return False
        return os.lseek(descriptor, start, os.SEEK_HOLE) >= start + _BLOCK
    except AttributeError:  # the operating system does not tell
        return True
    except OSError:  # nothing but emptiness follows
        return False


def _speed(
    path: str | os.PathLike[str], flags: int, seconds: float, blocks: list[int], *, only_once: bool = False
) -> float:
    """Bytes per second of several threads that read blocks, over and over."""
    descriptor = os.open(path, flags)
    begun = time.perf_counter()

    def read(own: list[int]) -> int:
        total = 0
        # Anonymous memory begins at a page, as reading past the operating system's memory wants it.
        with mmap.mmap(-1, _BLOCK) as block:
            while True:
                for start in own:
                    total += os.preadv(descriptor, [block], start)
                    if time.perf_counter() - begun > seconds:
                        return total
                if only_once or not own:
                    return total

    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            total = sum(pool.map(read, [blocks[first::_THREADS] for first in range(_THREADS)]))
        return total / (time.perf_counter() - begun)
    finally:
        os.close(descriptor)
