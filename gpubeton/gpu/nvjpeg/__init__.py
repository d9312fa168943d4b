"""NVIDIA's JPEG decoder nvJPEG, called directly.

`load` finds the library, `Library.create` starts it with a backend, and of the `Handle` everything else is made: a
`State` decodes batches in two calls, without an object per image. Numbers and structs are nvJPEG's own, every status
is looked at, and a call that failed says what to try.
"""

from __future__ import annotations

from gpubeton.gpu.nvjpeg.allocators import DeviceAllocator, PinnedAllocator, StreamAllocator
from gpubeton.gpu.nvjpeg.buffers import DeviceBuffer, PinnedBuffer
from gpubeton.gpu.nvjpeg.decode_params import DecodeParams
from gpubeton.gpu.nvjpeg.decoder import Decoder, DecoderState
from gpubeton.gpu.nvjpeg.enumerations import (
    Backend,
    ChromaSubsampling,
    ExifOrientation,
    Flags,
    JpegEncoding,
    OutputFormat,
    ScaleFactor,
)
from gpubeton.gpu.nvjpeg.handle import Handle, ImageInfo
from gpubeton.gpu.nvjpeg.image import IMAGE
from gpubeton.gpu.nvjpeg.jpeg_stream import JpegStream
from gpubeton.gpu.nvjpeg.library import Library, find_library, load
from gpubeton.gpu.nvjpeg.state import State
from gpubeton.gpu.nvjpeg.status import Status

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
