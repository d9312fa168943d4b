"""The parts of nvJPEG that only benchmarks call: one image at a time, step by step, and parameters of images.

gpubeton itself decodes batches with `gpubeton.gpu.nvjpeg`; these are the ways that it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_void_p
from enum import IntEnum, IntFlag

import numpy as np
from numpy.typing import NDArray

from gpubeton.gpu.nvjpeg import INTEGER, MADE, PROTOTYPES, RGBI, Handle, Library, Resource, State

OPAQUE = c_void_p  # owned by nvJPEG
DATA = c_void_p  # the bytes of a JPEG, or an array of such addresses
IMAGES = c_void_p  # IMAGE records
STREAM = c_void_p  # cudaStream_t
ENUM = c_int

__all__ = [
    "Backend",
    "Buffer",
    "DecodeParams",
    "Decoder",
    "DecoderState",
    "Flags",
    "JpegStream",
    "ScaleFactor",
    "cuda_version",
    "decode_batched_ex",
    "decode_one",
]

PROTOTYPES.update(
    {
        "nvjpegGetCudartProperty": (ENUM, INTEGER),
        "nvjpegJpegStreamParse": (OPAQUE, DATA, c_size_t, c_int, c_int, OPAQUE),
        "nvjpegDecodeParamsCreate": (OPAQUE, MADE),
        "nvjpegDecodeParamsDestroy": (OPAQUE,),
        "nvjpegDecodeParamsSetOutputFormat": (OPAQUE, ENUM),
        "nvjpegDecodeParamsSetROI": (OPAQUE, c_int, c_int, c_int, c_int),
        "nvjpegDecodeParamsSetScaleFactor": (OPAQUE, ENUM),
        "nvjpegDecode": (OPAQUE, OPAQUE, DATA, c_size_t, ENUM, IMAGES, STREAM),
        "nvjpegDecodeBatchedEx": (OPAQUE, OPAQUE, DATA, c_void_p, IMAGES, c_void_p, STREAM),
        # handle, decoder, state, ...
        "nvjpegDecoderCreate": (OPAQUE, ENUM, MADE),
        "nvjpegDecoderDestroy": (OPAQUE,),
        "nvjpegDecoderStateCreate": (OPAQUE, OPAQUE, MADE),
        "nvjpegStateAttachPinnedBuffer": (OPAQUE, OPAQUE),
        "nvjpegStateAttachDeviceBuffer": (OPAQUE, OPAQUE),
        "nvjpegDecodeJpeg": (OPAQUE, OPAQUE, OPAQUE, OPAQUE, IMAGES, OPAQUE, STREAM),
        "nvjpegBufferPinnedCreate": (OPAQUE, c_void_p, MADE),
        "nvjpegBufferPinnedDestroy": (OPAQUE,),
        "nvjpegBufferDeviceCreate": (OPAQUE, c_void_p, MADE),
        "nvjpegBufferDeviceDestroy": (OPAQUE,),
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


class ScaleFactor(IntEnum):
    """``nvjpegScaleFactor_t``: reduce while decoding."""

    NONE = 0
    HALF = 1
    QUARTER = 2
    EIGHTH = 3


class DecodeParams(Resource):
    """Parameters of one image: format, region, scale."""

    def __init__(self, handle: Handle) -> None:
        create, destroy = "nvjpegDecodeParamsCreate", "nvjpegDecodeParamsDestroy"
        super().__init__(handle.library, create, destroy, handle.pointer, parent=handle)

    def set_output_format(self, output_format: int) -> None:
        """Set the format of the pixels; batches have that of `State.initialize`."""
        self.library("nvjpegDecodeParamsSetOutputFormat", self.pointer, output_format)

    def set_region(self, left: int, top: int, width: int, height: int) -> None:
        """Decode a part only, in pixels of the output; it must be inside."""
        self.library("nvjpegDecodeParamsSetROI", self.pointer, left, top, width, height)

    def set_scale(self, scale: ScaleFactor) -> None:
        """Reduce the image while it is decoded; only HARDWARE."""
        self.library("nvjpegDecodeParamsSetScaleFactor", self.pointer, scale)


class JpegStream(Resource):
    """The bytes of one JPEG, parsed; reused for the next."""

    def __init__(self, handle: Handle) -> None:
        create, destroy = "nvjpegJpegStreamCreate", "nvjpegJpegStreamDestroy"
        super().__init__(handle.library, create, destroy, handle.pointer, parent=handle)
        self._handle = handle

    def parse(self, address: int, size: int) -> None:
        """Parse a JPEG with all scans; its bytes have to stay until it is decoded."""
        self.library("nvjpegJpegStreamParse", self._handle.pointer, address, size, 0, 0, self.pointer)


class Buffer(Resource):
    """Memory that grows as images need it; used by one state at a time. `kind` is "Pinned" or "Device"."""

    def __init__(self, handle: Handle, kind: str) -> None:
        create, destroy = f"nvjpegBuffer{kind}Create", f"nvjpegBuffer{kind}Destroy"
        super().__init__(handle.library, create, destroy, handle.pointer, None, parent=handle)
        self.kind = kind


class Decoder(Resource):
    """A decoder with one backend, shared by any number of states."""

    def __init__(self, handle: Handle, backend: Backend) -> None:
        create, destroy = "nvjpegDecoderCreate", "nvjpegDecoderDestroy"
        super().__init__(handle.library, create, destroy, handle.pointer, backend, parent=handle)
        self.handle = handle


class DecoderState(Resource):
    """One image on its way through a decoder; for one thread at a time."""

    def __init__(self, decoder: Decoder) -> None:
        create, destroy = "nvjpegDecoderStateCreate", "nvjpegJpegStateDestroy"
        super().__init__(decoder.library, create, destroy, decoder.handle.pointer, decoder.pointer, parent=decoder)
        self._decoder = decoder
        self._buffers: dict[str, Buffer] = {}
        self._in_use: tuple[object, ...] = ()

    def attach(self, buffer: Buffer) -> None:
        """Attach a buffer for intermediate results."""
        self.library(f"nvjpegStateAttach{buffer.kind}Buffer", self.pointer, buffer.pointer)
        self._buffers[buffer.kind] = buffer

    def decode(self, jpeg: JpegStream, target: NDArray[np.void], params: DecodeParams, stream: int) -> None:
        """Decode an image into `target`, (1,) IMAGE; returns before it is done."""
        self._in_use = (jpeg, target, params)
        three = self._decoder.handle.pointer, self._decoder.pointer, self.pointer
        self.library("nvjpegDecodeJpeg", *three, jpeg.pointer, target.ctypes.data, params.pointer, stream)


def decode_one(state: State, address: int, size: int, target: NDArray[np.void], stream: int) -> None:
    """Decode one image into `target`, (1,) IMAGE, with the backend of nvJPEG's choice; returns before it is done."""
    handle = state.handle.pointer
    state.in_use = target
    state.library("nvjpegDecode", handle, state.pointer, address, size, RGBI, target.ctypes.data, stream)


def decode_batched_ex(
    state: State,
    addresses: NDArray[np.uint64],
    sizes: NDArray[np.uint64],
    targets: NDArray[np.void],
    params: Sequence[DecodeParams],
    stream: int,
) -> None:
    """Decode a batch with parameters for each image; only HARDWARE and LOSSLESS_JPEG."""
    pointers = np.fromiter((one.pointer for one in params), np.uint64)
    count, state.batch = state.batch, 0
    state.in_use = addresses, sizes, targets, pointers, params
    arrays = (array.ctypes.data for array in (addresses, sizes, targets, pointers))
    state.library("nvjpegDecodeBatchedEx", state.handle.pointer, state.pointer, *arrays, stream)
    state.batch = count
