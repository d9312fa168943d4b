"""Allocators: the structs by which nvJPEG takes memory from somebody else's functions."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_int, c_size_t, c_uint, c_void_p


class DeviceAllocator(ctypes.Structure):
    """``nvjpegDevAllocator_t``: like cudaMalloc and cudaFree, 0 means success.

    The functions may be C's, or Python's wrapped in their types (``DeviceAllocator.Allocate(function)``); the latter
    are slow and need the interpreter, so they are for measuring, not for training.
    """

    Allocate = CFUNCTYPE(c_int, POINTER(c_void_p), c_size_t)
    Free = CFUNCTYPE(c_int, c_void_p)
    _fields_ = (("allocate", Allocate), ("free", Free))


class PinnedAllocator(ctypes.Structure):
    """``nvjpegPinnedAllocator_t``: like cudaHostAlloc and cudaFreeHost, 0 means success."""

    Allocate = CFUNCTYPE(c_int, POINTER(c_void_p), c_size_t, c_uint)
    Free = CFUNCTYPE(c_int, c_void_p)
    _fields_ = (("allocate", Allocate), ("free", Free))


class StreamAllocator(ctypes.Structure):
    """``nvjpegDevAllocatorV2_t`` and ``nvjpegPinnedAllocatorV2_t``: in the order of a stream, with a context."""

    Allocate = CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p), c_size_t, c_void_p)
    Free = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)
    _fields_ = (("allocate", Allocate), ("free", Free), ("context", c_void_p))


def is_second_version(*allocators: DeviceAllocator | PinnedAllocator | StreamAllocator | None) -> bool:
    """Tell which of nvJPEG's two functions takes these allocators.

    Parameters
    ----------
    *allocators : DeviceAllocator, PinnedAllocator, StreamAllocator or None
        None for nvJPEG's own.

    Returns
    -------
    bool
        Whether they are in the order of streams.

    Raises
    ------
    TypeError
        If one is and another is not: nvJPEG takes both kinds, but not together.
    """
    kinds = {isinstance(allocator, StreamAllocator) for allocator in allocators if allocator is not None}
    if len(kinds) == 2:
        raise TypeError(
            "nvJPEG takes either two StreamAllocators, or a DeviceAllocator and a PinnedAllocator; these are mixed"
        )
    return True in kinds
