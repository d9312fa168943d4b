"""The C interface of nvJPEG: enumerations, structs and function prototypes."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_int, c_size_t, c_uint, c_void_p
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np


class Backend(IntEnum):
    """``nvjpegBackend_t``: the decoder."""

    DEFAULT = 0
    """nvJPEG's choice."""
    HYBRID = 1
    """The CPU decodes Huffman's code, the GPU does the rest."""
    GPU_HYBRID = 2
    """The GPU's processors do everything for baseline JPEGs, in batches of more than 50."""
    HARDWARE = 3
    """The GPU's JPEG engines."""
    GPU_HYBRID_DEVICE = 4
    """GPU_HYBRID, and the compressed bytes are in the device's memory."""
    HARDWARE_DEVICE = 5
    """HARDWARE, and the compressed bytes are in the device's memory."""
    LOSSLESS_JPEG = 6
    """For lossless JPEGs alone."""


class Flags(IntFlag):
    """Options of a handle."""

    NONE = 0
    HW_DECODE_NO_PIPELINE = 1
    ENABLE_MEMORY_POOLS = 2
    """Without effect since nvJPEG 11.1."""
    BITSTREAM_STRICT = 4
    """Refuse JPEGs that break the standard's rules."""
    REDUCED_MEMORY_DECODE = 8
    REDUCED_MEMORY_DECODE_ZERO_COPY = 16
    UPSAMPLING_WITH_INTERPOLATION = 32
    """Interpolate chroma, as libjpeg does by default; without it chroma samples are repeated. Since nvJPEG 12.1."""


class OutputFormat(IntEnum):
    """``nvjpegOutputFormat_t``: the format of the pixels."""

    UNCHANGED = 0
    YUV = 1
    Y = 2
    RGB = 3
    BGR = 4
    RGBI = 5
    """Red, green, blue interleaved: one plane of 3 bytes per pixel."""
    BGRI = 6
    UNCHANGEDI_U16 = 7
    NV12 = 8
    """Since nvJPEG 12.4."""
    YUY2 = 9
    """Since nvJPEG 12.4."""
    UNCHANGEDI = 10
    """Since nvJPEG 13."""


class ChromaSubsampling(IntEnum):
    """``nvjpegChromaSubsampling_t``."""

    CSS_444 = 0
    CSS_422 = 1
    CSS_420 = 2
    CSS_440 = 3
    CSS_411 = 4
    CSS_410 = 5
    CSS_GRAY = 6
    CSS_410V = 7
    CSS_UNKNOWN = -1


class JpegEncoding(IntEnum):
    """``nvjpegJpegEncoding_t``: the kind of frame, by its marker."""

    UNKNOWN = 0
    BASELINE_DCT = 0xC0
    EXTENDED_SEQUENTIAL_DCT_HUFFMAN = 0xC1
    PROGRESSIVE_DCT_HUFFMAN = 0xC2
    LOSSLESS_HUFFMAN = 0xC3


class ScaleFactor(IntEnum):
    """``nvjpegScaleFactor_t``: reduce while decoding."""

    NONE = 0
    HALF = 1
    QUARTER = 2
    EIGHTH = 3


class ExifOrientation(IntEnum):
    """``nvjpegExifOrientation_t``: the orientation of the camera."""

    UNKNOWN = 0
    NORMAL = 1
    FLIP_HORIZONTAL = 2
    ROTATE_180 = 3
    FLIP_VERTICAL = 4
    TRANSPOSE = 5
    ROTATE_90 = 6
    TRANSVERSE = 7
    ROTATE_270 = 8


IMAGE = np.dtype([("channel", "<u8", (4,)), ("pitch", "<u8", (4,))], align=True)
"""``nvjpegImage_t``, 64 bytes: address of the first row of each plane and bytes from one row to the next.

Interleaved formats (RGBI) use the first plane alone; the others are 0.
"""


class DeviceAllocator(ctypes.Structure):
    """``nvjpegDevAllocator_t``: like cudaMalloc and cudaFree, 0 means success."""

    # C functions, or Python's wrapped in their types (``DeviceAllocator.Allocate(function)``): these are slow and need
    # the interpreter, and are for measurements.

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
    """Return whether the allocators are in the order of streams, which another function of nvJPEG takes; not mixed."""
    kinds = {isinstance(allocator, StreamAllocator) for allocator in allocators if allocator is not None}
    if len(kinds) == 2:
        raise TypeError(
            "nvJPEG takes either two StreamAllocators, or a DeviceAllocator and a PinnedAllocator; these are mixed"
        )
    return True in kinds


_OPAQUE = c_void_p  # owned by nvJPEG
_DATA = c_void_p  # the bytes of a JPEG, or an array of such addresses
_IMAGES = c_void_p  # IMAGE records
_STREAM = c_void_p  # cudaStream_t
_ENUM = c_int

_MADE = POINTER(c_void_p)
_INTEGER = POINTER(c_int)
_UNSIGNED = POINTER(c_uint)
_SIZE = POINTER(c_size_t)

PROTOTYPES: dict[str, tuple[Any, ...]] = {
    # the library
    "nvjpegGetProperty": (_ENUM, _INTEGER),
    "nvjpegGetCudartProperty": (_ENUM, _INTEGER),
    # handles: backend, device allocator, pinned allocator, flags
    "nvjpegCreateSimple": (_MADE,),
    "nvjpegCreateEx": (_ENUM, c_void_p, c_void_p, c_uint, _MADE),
    "nvjpegCreateExV2": (_ENUM, c_void_p, c_void_p, c_uint, _MADE),
    "nvjpegDestroy": (_OPAQUE,),
    "nvjpegGetHardwareDecoderInfo": (_OPAQUE, _UNSIGNED, _UNSIGNED),
    "nvjpegSetDeviceMemoryPadding": (c_size_t, _OPAQUE),
    "nvjpegGetDeviceMemoryPadding": (_SIZE, _OPAQUE),
    "nvjpegSetPinnedMemoryPadding": (c_size_t, _OPAQUE),
    "nvjpegGetPinnedMemoryPadding": (_SIZE, _OPAQUE),
    # headers: handle, data, length, components, subsampling, 4 widths, 4 heights
    "nvjpegGetImageInfo": (_OPAQUE, _DATA, c_size_t, _INTEGER, _INTEGER, _INTEGER, _INTEGER),
    "nvjpegJpegStreamCreate": (_OPAQUE, _MADE),
    "nvjpegJpegStreamDestroy": (_OPAQUE,),
    "nvjpegJpegStreamParse": (_OPAQUE, _DATA, c_size_t, c_int, c_int, _OPAQUE),
    "nvjpegJpegStreamParseHeader": (_OPAQUE, _DATA, c_size_t, _OPAQUE),
    "nvjpegJpegStreamGetJpegEncoding": (_OPAQUE, _INTEGER),
    "nvjpegJpegStreamGetFrameDimensions": (_OPAQUE, _UNSIGNED, _UNSIGNED),
    "nvjpegJpegStreamGetComponentsNum": (_OPAQUE, _UNSIGNED),
    "nvjpegJpegStreamGetComponentDimensions": (_OPAQUE, c_uint, _UNSIGNED, _UNSIGNED),
    "nvjpegJpegStreamGetChromaSubsampling": (_OPAQUE, _INTEGER),
    "nvjpegJpegStreamGetExifOrientation": (_OPAQUE, _INTEGER),
    "nvjpegJpegStreamGetSamplePrecision": (_OPAQUE, _UNSIGNED),
    # parameters
    "nvjpegDecodeParamsCreate": (_OPAQUE, _MADE),
    "nvjpegDecodeParamsDestroy": (_OPAQUE,),
    "nvjpegDecodeParamsSetOutputFormat": (_OPAQUE, _ENUM),
    "nvjpegDecodeParamsSetROI": (_OPAQUE, c_int, c_int, c_int, c_int),
    "nvjpegDecodeParamsSetAllowCMYK": (_OPAQUE, c_int),
    "nvjpegDecodeParamsSetScaleFactor": (_OPAQUE, _ENUM),
    "nvjpegDecodeParamsSetExifOrientation": (_OPAQUE, _ENUM),
    # states: handle, state, ...
    "nvjpegJpegStateCreate": (_OPAQUE, _MADE),
    "nvjpegJpegStateDestroy": (_OPAQUE,),
    "nvjpegDecode": (_OPAQUE, _OPAQUE, _DATA, c_size_t, _ENUM, _IMAGES, _STREAM),
    "nvjpegDecodeBatchedSupported": (_OPAQUE, _OPAQUE, _INTEGER),
    "nvjpegDecodeBatchedSupportedEx": (_OPAQUE, _OPAQUE, _OPAQUE, _INTEGER),
    "nvjpegDecodeBatchedInitialize": (_OPAQUE, _OPAQUE, c_int, c_int, _ENUM),
    "nvjpegDecodeBatchedPreAllocate": (_OPAQUE, _OPAQUE, c_int, c_int, c_int, _ENUM, _ENUM),
    "nvjpegDecodeBatched": (_OPAQUE, _OPAQUE, _DATA, c_void_p, _IMAGES, _STREAM),
    "nvjpegDecodeBatchedEx": (_OPAQUE, _OPAQUE, _DATA, c_void_p, _IMAGES, c_void_p, _STREAM),
    # step by step: handle, decoder, state, ...
    "nvjpegDecoderCreate": (_OPAQUE, _ENUM, _MADE),
    "nvjpegDecoderDestroy": (_OPAQUE,),
    "nvjpegDecoderJpegSupported": (_OPAQUE, _OPAQUE, _OPAQUE, _INTEGER),
    "nvjpegDecoderStateCreate": (_OPAQUE, _OPAQUE, _MADE),
    "nvjpegStateAttachPinnedBuffer": (_OPAQUE, _OPAQUE),
    "nvjpegStateAttachDeviceBuffer": (_OPAQUE, _OPAQUE),
    "nvjpegDecodeJpeg": (_OPAQUE, _OPAQUE, _OPAQUE, _OPAQUE, _IMAGES, _OPAQUE, _STREAM),
    "nvjpegDecodeJpegHost": (_OPAQUE, _OPAQUE, _OPAQUE, _OPAQUE, _OPAQUE),
    "nvjpegDecodeJpegTransferToDevice": (_OPAQUE, _OPAQUE, _OPAQUE, _OPAQUE, _STREAM),
    "nvjpegDecodeJpegDevice": (_OPAQUE, _OPAQUE, _OPAQUE, _IMAGES, _STREAM),
    # buffers of a state
    "nvjpegBufferPinnedCreate": (_OPAQUE, c_void_p, _MADE),
    "nvjpegBufferPinnedCreateV2": (_OPAQUE, c_void_p, _MADE),
    "nvjpegBufferPinnedDestroy": (_OPAQUE,),
    "nvjpegBufferPinnedResize": (_OPAQUE, c_size_t, _STREAM),
    "nvjpegBufferPinnedRetrieve": (_OPAQUE, _SIZE, _MADE),
    "nvjpegBufferDeviceCreate": (_OPAQUE, c_void_p, _MADE),
    "nvjpegBufferDeviceCreateV2": (_OPAQUE, c_void_p, _MADE),
    "nvjpegBufferDeviceDestroy": (_OPAQUE,),
    "nvjpegBufferDeviceResize": (_OPAQUE, c_size_t, _STREAM),
    "nvjpegBufferDeviceRetrieve": (_OPAQUE, _SIZE, _MADE),
}
"""For each function, the types of its arguments in order."""


def bind(library: ctypes.CDLL, name: str) -> Any:
    """Return a function of the library, with its prototype; AttributeError if it has none."""
    function = library[name]
    function.argtypes = PROTOTYPES[name]
    function.restype = c_int
    return function
