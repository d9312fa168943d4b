"""Decoding in steps: parsed streams, parameters, decoders and their buffers."""

from __future__ import annotations

from ctypes import addressof, byref, c_int, c_size_t, c_uint, c_void_p
from typing import TYPE_CHECKING

from gpubeton.gpu.nvjpeg.c_types import (
    IMAGE,
    ChromaSubsampling,
    DeviceAllocator,
    ExifOrientation,
    JpegEncoding,
    PinnedAllocator,
    StreamAllocator,
    is_second_version,
)
from gpubeton.gpu.nvjpeg.checked_calls import Resource, address_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.gpu.nvjpeg.c_types import Backend, OutputFormat, ScaleFactor


class DecodeParams(Resource):
    """Parameters of one image: format, region, scale, orientation. Made by `Handle.make_params`."""

    # `Handle.is_batch_supported` and `Decoder.is_supported` answer which backends support them.

    def __init__(self, handle: Resource) -> None:
        super().__init__(
            handle.calls, "nvjpegDecodeParamsCreate", "nvjpegDecodeParamsDestroy", handle.pointer, parent=handle
        )

    def set_output_format(self, output_format: OutputFormat) -> None:
        """Set the format of the pixels; batches take it from `State.initialise`."""
        self.calls("nvjpegDecodeParamsSetOutputFormat", self.pointer, output_format)

    def set_region(self, left: int, top: int, width: int, height: int) -> None:
        """Decode a part only, in pixels of the output; it must be inside."""
        self.calls("nvjpegDecodeParamsSetROI", self.pointer, left, top, width, height)

    def set_whole_image(self) -> None:
        """Decode all of the image again."""
        self.calls("nvjpegDecodeParamsSetROI", self.pointer, 0, 0, -1, -1)

    def set_allow_cmyk(self, is_allowed: bool) -> None:
        """Convert images of 4 components (CMYK, YCCK) to RGB instead of refusing them."""
        self.calls("nvjpegDecodeParamsSetAllowCMYK", self.pointer, int(is_allowed))

    def set_scale(self, scale: ScaleFactor) -> None:
        """Reduce the image while it is decoded; only HARDWARE."""
        self.calls("nvjpegDecodeParamsSetScaleFactor", self.pointer, scale)

    def set_orientation(self, orientation: ExifOrientation) -> None:
        """Rotate the image upright from the camera's orientation; only HARDWARE."""
        self.calls("nvjpegDecodeParamsSetExifOrientation", self.pointer, orientation)


class JpegStream(Resource):
    """The bytes of one JPEG, parsed; reused for the next. Made by `Handle.make_stream`."""

    # For one thread at a time; its properties are of the JPEG that was parsed last.

    def __init__(self, handle: Resource) -> None:
        super().__init__(
            handle.calls, "nvjpegJpegStreamCreate", "nvjpegJpegStreamDestroy", handle.pointer, parent=handle
        )
        self._handle = handle

    def parse(self, address: int, size: int, *, keep_metadata: bool = False, keep_bytes: bool = False) -> None:
        """Parse a JPEG with all scans; its bytes have to stay until it is decoded, unless they are kept."""
        handle = self._handle.pointer
        self.calls("nvjpegJpegStreamParse", handle, address, size, int(keep_metadata), int(keep_bytes), self.pointer)

    def parse_header(self, address: int, size: int) -> None:
        """Parse the header only: enough for the properties, not for decoding."""
        self.calls("nvjpegJpegStreamParseHeader", self._handle.pointer, address, size, self.pointer)

    @property
    def dimensions(self) -> tuple[int, int]:
        """Height and width in pixels."""
        width, height = c_uint(), c_uint()
        self.calls("nvjpegJpegStreamGetFrameDimensions", self.pointer, byref(width), byref(height))
        return height.value, width.value

    @property
    def number_of_components(self) -> int:
        """1 for gray, 3 for color, 4 for CMYK and YCCK."""
        number = c_uint()
        self.calls("nvjpegJpegStreamGetComponentsNum", self.pointer, byref(number))
        return number.value

    def component_dimensions(self, component: int) -> tuple[int, int]:
        """Height and width of one component, in samples."""
        width, height = c_uint(), c_uint()
        self.calls("nvjpegJpegStreamGetComponentDimensions", self.pointer, component, byref(width), byref(height))
        return height.value, width.value

    @property
    def subsampling(self) -> ChromaSubsampling:
        """The chroma subsampling."""
        return ChromaSubsampling(self._integer("nvjpegJpegStreamGetChromaSubsampling"))

    @property
    def encoding(self) -> JpegEncoding:
        """Baseline, progressive, ..."""
        return JpegEncoding(self._integer("nvjpegJpegStreamGetJpegEncoding"))

    @property
    def orientation(self) -> ExifOrientation:
        """The orientation of the camera."""
        return ExifOrientation(self._integer("nvjpegJpegStreamGetExifOrientation"))

    @property
    def precision(self) -> int:
        """Bits of a sample: 8, or 12."""
        bits = c_uint()
        self.calls("nvjpegJpegStreamGetSamplePrecision", self.pointer, byref(bits))
        return bits.value

    def _integer(self, function: str) -> int:
        number = c_int()
        self.calls(function, self.pointer, byref(number))
        return number.value


class Buffer(Resource):
    """Memory that grows as images need it; used by one state at a time. Made by `Handle`."""

    def __init__(
        self, handle: Resource, kind: str, allocator: DeviceAllocator | PinnedAllocator | StreamAllocator | None
    ) -> None:
        version = "V2" if is_second_version(allocator) else ""
        super().__init__(
            handle.calls,
            f"nvjpegBuffer{kind}Create{version}",
            f"nvjpegBuffer{kind}Destroy",
            handle.pointer,
            addressof(allocator) if allocator is not None else None,
            parent=handle,
            keep=allocator,
        )
        self.kind = kind  # "Pinned" or "Device"

    def resize(self, nbytes: int, stream: int) -> None:
        """Resize it, in the stream's order."""
        self.calls(f"nvjpegBuffer{self.kind}Resize", self.pointer, nbytes, stream)

    def retrieve(self) -> tuple[int, int]:
        """Return its size in bytes and its address, 0 before the first allocation."""
        size, address = c_size_t(), c_void_p()
        self.calls(f"nvjpegBuffer{self.kind}Retrieve", self.pointer, byref(size), byref(address))
        return size.value, address.value or 0


class PinnedBuffer(Buffer):
    """Page-locked memory of the host. Made by `Handle.make_pinned_buffer`."""

    def __init__(self, handle: Resource, allocator: PinnedAllocator | StreamAllocator | None = None) -> None:
        super().__init__(handle, "Pinned", allocator)


class DeviceBuffer(Buffer):
    """Memory of the device. Made by `Handle.make_device_buffer`."""

    def __init__(self, handle: Resource, allocator: DeviceAllocator | StreamAllocator | None = None) -> None:
        super().__init__(handle, "Device", allocator)


class Decoder(Resource):
    """A decoder with one backend, shared by any number of states. Made by `Handle.make_decoder`."""

    def __init__(self, handle: Resource, backend: Backend) -> None:
        super().__init__(
            handle.calls, "nvjpegDecoderCreate", "nvjpegDecoderDestroy", handle.pointer, backend, parent=handle
        )
        self.handle = handle

    def is_supported(self, jpeg: JpegStream, params: DecodeParams) -> bool:
        """Return whether it can decode a parsed JPEG."""
        answer = c_int(-1)
        self.calls("nvjpegDecoderJpegSupported", self.pointer, jpeg.pointer, params.pointer, byref(answer))
        return answer.value == 0

    def make_state(self) -> DecoderState:
        """Make a state, which needs buffers before it can decode."""
        return DecoderState(self)


class DecoderState(Resource):
    """One image on its way through a decoder. Made by `Decoder.make_state`."""

    # For one thread at a time. Call `decode`; or `decode_host` (on the CPU, returns when done), `transfer_to_device`
    # and `decode_device` (both return at once, in the order of their stream).

    def __init__(self, decoder: Decoder) -> None:
        super().__init__(
            decoder.calls,
            "nvjpegDecoderStateCreate",
            "nvjpegJpegStateDestroy",
            decoder.handle.pointer,
            decoder.pointer,
            parent=decoder,
        )
        self._decoder = decoder
        self._pinned: PinnedBuffer | None = None
        self._device: DeviceBuffer | None = None
        self._in_use: tuple[object, ...] = ()

    def attach_pinned(self, buffer: PinnedBuffer) -> None:
        """Attach a buffer for the CPU's results; the previous one may still be copied to the device."""
        self.calls("nvjpegStateAttachPinnedBuffer", self.pointer, buffer.pointer)
        self._pinned = buffer

    def attach_device(self, buffer: DeviceBuffer) -> None:
        """Attach a buffer for the device's intermediate results."""
        self.calls("nvjpegStateAttachDeviceBuffer", self.pointer, buffer.pointer)
        self._device = buffer

    def decode(
        self,
        jpeg: JpegStream,
        target: NDArray[np.void],  # (1,) IMAGE
        params: DecodeParams,
        stream: int,
    ) -> None:
        """Decode an image; returns before it is done."""
        written = address_of(target, IMAGE, 1, "target")
        self._in_use = (jpeg, target, params)
        self.calls("nvjpegDecodeJpeg", *self._three, jpeg.pointer, written, params.pointer, stream)

    def decode_host(self, jpeg: JpegStream, params: DecodeParams) -> None:
        """Do the CPU's part; the pinned buffer must be free: wait for the stream that copies it."""
        self._in_use = (jpeg, params)
        self.calls("nvjpegDecodeJpegHost", *self._three, params.pointer, jpeg.pointer)

    def transfer_to_device(self, jpeg: JpegStream, stream: int) -> None:
        """Copy the CPU's results to the device."""
        self.calls("nvjpegDecodeJpegTransferToDevice", *self._three, jpeg.pointer, stream)

    def decode_device(self, target: NDArray[np.void], stream: int) -> None:
        """Do the device's part; `target` is IMAGE (1,)."""
        written = address_of(target, IMAGE, 1, "target")
        self._in_use += (target,)
        self.calls("nvjpegDecodeJpegDevice", *self._three, written, stream)

    @property
    def _three(self) -> tuple[int, int, int]:
        return self._decoder.handle.pointer, self._decoder.pointer, self.pointer
