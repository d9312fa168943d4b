"""The parts of nvJPEG that only benchmarks call: one image at a time, step by step, and parameters of images.

gpubeton itself decodes batches with `gpubeton.gpu.nvjpeg`; these are the ways that it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int, c_size_t, c_void_p
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from gpubeton.gpu.nvjpeg import IMAGE, Backend, Handle, OutputFormat, State
from gpubeton.gpu.nvjpeg.c_types import DATA, ENUM, IMAGES, MADE, OPAQUE, PROTOTYPES, STREAM
from gpubeton.gpu.nvjpeg.checked_calls import Resource, address_of

__all__ = [
    "Buffer",
    "DecodeParams",
    "Decoder",
    "DecoderState",
    "JpegStream",
    "ScaleFactor",
    "decode_batched_ex",
    "decode_one",
]

PROTOTYPES.update(
    {
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
        super().__init__(handle.calls, create, destroy, handle.pointer, parent=handle)

    def set_output_format(self, output_format: OutputFormat) -> None:
        """Set the format of the pixels; batches have that of `State.initialise`."""
        self.calls("nvjpegDecodeParamsSetOutputFormat", self.pointer, output_format)

    def set_region(self, left: int, top: int, width: int, height: int) -> None:
        """Decode a part only, in pixels of the output; it must be inside."""
        self.calls("nvjpegDecodeParamsSetROI", self.pointer, left, top, width, height)

    def set_scale(self, scale: ScaleFactor) -> None:
        """Reduce the image while it is decoded; only HARDWARE."""
        self.calls("nvjpegDecodeParamsSetScaleFactor", self.pointer, scale)


class JpegStream(Resource):
    """The bytes of one JPEG, parsed; reused for the next."""

    def __init__(self, handle: Handle) -> None:
        create, destroy = "nvjpegJpegStreamCreate", "nvjpegJpegStreamDestroy"
        super().__init__(handle.calls, create, destroy, handle.pointer, parent=handle)
        self._handle = handle

    def parse(self, address: int, size: int) -> None:
        """Parse a JPEG with all scans; its bytes have to stay until it is decoded."""
        self.calls("nvjpegJpegStreamParse", self._handle.pointer, address, size, 0, 0, self.pointer)


class Buffer(Resource):
    """Memory that grows as images need it; used by one state at a time. `kind` is "Pinned" or "Device"."""

    def __init__(self, handle: Handle, kind: str) -> None:
        create, destroy = f"nvjpegBuffer{kind}Create", f"nvjpegBuffer{kind}Destroy"
        super().__init__(handle.calls, create, destroy, handle.pointer, None, parent=handle)
        self.kind = kind


class Decoder(Resource):
    """A decoder with one backend, shared by any number of states."""

    def __init__(self, handle: Handle, backend: Backend) -> None:
        create, destroy = "nvjpegDecoderCreate", "nvjpegDecoderDestroy"
        super().__init__(handle.calls, create, destroy, handle.pointer, backend, parent=handle)
        self.handle = handle


class DecoderState(Resource):
    """One image on its way through a decoder; for one thread at a time."""

    def __init__(self, decoder: Decoder) -> None:
        create, destroy = "nvjpegDecoderStateCreate", "nvjpegJpegStateDestroy"
        super().__init__(decoder.calls, create, destroy, decoder.handle.pointer, decoder.pointer, parent=decoder)
        self._decoder = decoder
        self._buffers: dict[str, Buffer] = {}
        self._in_use: tuple[object, ...] = ()

    def attach(self, buffer: Buffer) -> None:
        """Attach a buffer for intermediate results."""
        self.calls(f"nvjpegStateAttach{buffer.kind}Buffer", self.pointer, buffer.pointer)
        self._buffers[buffer.kind] = buffer

    def decode(self, jpeg: JpegStream, target: NDArray[np.void], params: DecodeParams, stream: int) -> None:
        """Decode an image into `target`, (1,) IMAGE; returns before it is done."""
        written = address_of(target, IMAGE, 1, "target")
        self._in_use = (jpeg, target, params)
        three = self._decoder.handle.pointer, self._decoder.pointer, self.pointer
        self.calls("nvjpegDecodeJpeg", *three, jpeg.pointer, written, params.pointer, stream)


def decode_one(state: State, address: int, size: int, target: NDArray[np.void], stream: int) -> None:
    """Decode one image into `target`, (1,) IMAGE, with the backend of nvJPEG's choice; returns before it is done."""
    written = address_of(target, IMAGE, 1, "target")
    state.in_use = (target,)
    handle = state.handle.pointer
    state.calls("nvjpegDecode", handle, state.pointer, address, size, OutputFormat.RGBI, written, stream)


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
    word, count = np.dtype(np.uint64), state.batch
    arguments = (
        address_of(addresses, word, count, "addresses"),
        address_of(sizes, word, count, "sizes"),
        address_of(targets, IMAGE, count, "targets"),
        address_of(pointers, word, count, "params"),
    )
    state.in_use = (addresses, sizes, targets, pointers, params)
    state.batch = 0
    state.calls("nvjpegDecodeBatchedEx", state.handle.pointer, state.pointer, *arguments, stream)
    state.batch = count
