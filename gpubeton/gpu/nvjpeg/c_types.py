"""The C interface of nvJPEG: enumerations, the struct of an image, and function prototypes."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int, c_size_t, c_uint, c_void_p
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np


class Backend(IntEnum):
    """``nvjpegBackend_t``: the decoder. gpubeton uses HARDWARE; benchmarks compare it with the others."""

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
    """Interpolate chroma, as libjpeg does by default; without it chroma samples are repeated. Since nvJPEG 12.1."""


class OutputFormat(IntEnum):
    """``nvjpegOutputFormat_t``: the format of the pixels."""

    RGBI = 5
    """Red, green, blue interleaved: one plane of 3 bytes per pixel."""


class ChromaSubsampling(IntEnum):
    """``nvjpegChromaSubsampling_t``."""

    CSS_444 = 0
    """Needs the most memory: memory for it is enough for every sampling."""


IMAGE = np.dtype([("channel", "<u8", (4,)), ("pitch", "<u8", (4,))], align=True)
"""``nvjpegImage_t``, 64 bytes: address of the first row of each plane and bytes from one row to the next.

Interleaved formats (RGBI) use the first plane alone; the others are 0.
"""

OPAQUE = c_void_p  # owned by nvJPEG
DATA = c_void_p  # the bytes of a JPEG, or an array of such addresses
IMAGES = c_void_p  # IMAGE records
STREAM = c_void_p  # cudaStream_t
ENUM = c_int
MADE = POINTER(c_void_p)
INTEGER = POINTER(c_int)
UNSIGNED = POINTER(c_uint)

PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "nvjpegGetProperty": (ENUM, INTEGER),
    "nvjpegGetCudartProperty": (ENUM, INTEGER),
    # backend, device allocator, pinned allocator, flags
    "nvjpegCreateEx": (ENUM, c_void_p, c_void_p, c_uint, MADE),
    "nvjpegDestroy": (OPAQUE,),
    "nvjpegGetHardwareDecoderInfo": (OPAQUE, UNSIGNED, UNSIGNED),
    "nvjpegJpegStreamCreate": (OPAQUE, MADE),
    "nvjpegJpegStreamDestroy": (OPAQUE,),
    "nvjpegJpegStreamParseHeader": (OPAQUE, DATA, c_size_t, OPAQUE),
    "nvjpegDecodeBatchedSupported": (OPAQUE, OPAQUE, INTEGER),
    # handle, state, ...
    "nvjpegJpegStateCreate": (OPAQUE, MADE),
    "nvjpegJpegStateDestroy": (OPAQUE,),
    "nvjpegDecodeBatchedInitialize": (OPAQUE, OPAQUE, c_int, c_int, ENUM),
    "nvjpegDecodeBatchedPreAllocate": (OPAQUE, OPAQUE, c_int, c_int, c_int, ENUM, ENUM),
    "nvjpegDecodeBatched": (OPAQUE, OPAQUE, DATA, c_void_p, IMAGES, STREAM),
}
"""For each function, the types of its arguments in order; benchmarks add the functions that they need."""


def bind(library: ctypes.CDLL, name: str) -> Any:
    """Return a function of the library, with its prototype; AttributeError if it has none."""
    function = library[name]
    function.argtypes = PROTOTYPES[name]
    function.restype = c_int
    return function
