"""The parts of nvJPEG that only benchmarks and the simulator's tests use.

gpubeton itself decodes batches with `gpubeton._gpu.nvjpeg`.
"""

from __future__ import annotations

from ctypes import byref, c_int, c_size_t, c_void_p
from enum import IntEnum, IntFlag

import numpy as np
from numpy.typing import NDArray

from gpubeton._gpu.nvjpeg import INTEGER, PROTOTYPES, RGBI, Library, State

__all__ = ["Backend", "Flags", "cuda_version", "decode_one"]

PROTOTYPES.update(
    {
        "nvjpegGetCudartProperty": (c_int, INTEGER),
        # handle, state, bytes, size, format, IMAGE, stream
        "nvjpegDecode": (c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p),
    }
)


class Backend(IntEnum):
    """``nvjpegBackend_t``: the decoder. gpubeton uses HARDWARE."""

    DEFAULT = 0
    HYBRID = 1
    GPU_HYBRID = 2
    HARDWARE = 3
    GPU_HYBRID_DEVICE = 4
    HARDWARE_DEVICE = 5
    LOSSLESS_JPEG = 6


class Flags(IntFlag):
    """Options of a handle."""

    NONE = 0
    UPSAMPLING_WITH_INTERPOLATION = 32


def cuda_version(library: Library) -> tuple[int, ...]:
    """Return the CUDA that nvJPEG was built with."""
    numbers = c_int(), c_int(), c_int()
    for which, number in enumerate(numbers):
        library("nvjpegGetCudartProperty", which, byref(number))
    return tuple(number.value for number in numbers)


def decode_one(state: State, address: int, size: int, target: NDArray[np.void], stream: int) -> None:
    """Decode one image into `target`, (1,) IMAGE, with the backend of nvJPEG's choice; returns before it is done."""
    handle = state.handle.pointer
    state.in_use = target
    state.library("nvjpegDecode", handle, state.pointer, address, size, RGBI, target.ctypes.data, stream)
