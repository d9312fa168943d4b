"""Binding of nvJPEG, NVIDIA's JPEG decoder.

`load` finds the library, `Library.create` starts it with a backend, and the `Handle` makes everything else: a `State`
decodes batches in two calls, without an object per image. Every status is checked, and errors name a remedy.
"""

from __future__ import annotations

from gpubeton.gpu.nvjpeg.c_types import (
    IMAGE,
    Backend,
    ChromaSubsampling,
    DeviceAllocator,
    ExifOrientation,
    Flags,
    JpegEncoding,
    OutputFormat,
    PinnedAllocator,
    ScaleFactor,
    StreamAllocator,
)
from gpubeton.gpu.nvjpeg.checked_calls import Status
from gpubeton.gpu.nvjpeg.decode_state import State
from gpubeton.gpu.nvjpeg.library import Handle, ImageInfo, Library, find_library, load
from gpubeton.gpu.nvjpeg.stepwise import DecodeParams, Decoder, DecoderState, DeviceBuffer, JpegStream, PinnedBuffer

__all__ = [
    "IMAGE",
    "Backend",
    "ChromaSubsampling",
    "DecodeParams",
    "Decoder",
    "DecoderState",
    "DeviceAllocator",
    "DeviceBuffer",
    "ExifOrientation",
    "Flags",
    "Handle",
    "ImageInfo",
    "JpegEncoding",
    "JpegStream",
    "Library",
    "OutputFormat",
    "PinnedAllocator",
    "PinnedBuffer",
    "ScaleFactor",
    "State",
    "Status",
    "StreamAllocator",
    "find_library",
    "load",
]
