"""Mapping a file into memory, without a descriptor that stays open."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FAILED = ctypes.c_void_p(-1).value


def map_file(descriptor: int, size: int) -> NDArray[np.uint8]:
    """Map a file into memory, for reading.

    Python's own ``mmap`` keeps a copy of the descriptor for each mapping (3.13 can do without), so that a dataset of a
    thousand files would meet the limit on open files.

    Parameters
    ----------
    descriptor : int
        The open file; it may be closed afterwards.
    size : int
        Its bytes.

    Returns
    -------
    ndarray of uint8, shape (size,)
        The file, read-only. It is mapped as long as this array or a view of it lives.

    Raises
    ------
    OSError
        If it cannot be mapped.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(b"abcdef")
    ...     file.flush()
    ...     content = map_file(file.fileno(), 6)
    >>> bytes(content[1:3])
    b'bc'
    """
    libc = _libc()
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, f"{size} bytes could not be mapped into memory: {os.strerror(error)}")
    # Views of an array refer to the first array over the memory, which is this one: when it dies, all are gone.
    content = np.frombuffer(memoryview((ctypes.c_ubyte * size).from_address(address)), np.uint8)
    content.setflags(write=False)
    weakref.finalize(content, libc.munmap, address, size).atexit = False
    return content


@cache
def _libc() -> Any:
    """The C library, which knows what it is called with."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    # The offset is 64 bits wide on every 64-bit system.
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    )  # fmt: skip
    libc.munmap.restype = ctypes.c_int
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return libc
