"""The prototypes of nvJPEG's functions: the one place that says what each of them takes.

All of them return an ``nvjpegStatus_t``. What nvJPEG hides behind a pointer (handles, states, streams of bytes,
parameters, buffers) and what lies in somebody's memory is an address here; only results have types of their own.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int, c_size_t, c_uint, c_void_p
from typing import Any

_OPAQUE = c_void_p  # made and owned by nvJPEG
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
    """Give a function of the library, with its prototype.

    Parameters
    ----------
    library : CDLL
        The library.
    name : str
        A key of `PROTOTYPES`.

    Returns
    -------
    callable
        Takes Python's integers, numpy's addresses and ``byref`` of results; returns the status.

    Raises
    ------
    AttributeError
        If the library has no such function.
    """
    function = library[name]
    function.argtypes = PROTOTYPES[name]
    function.restype = c_int
    return function
