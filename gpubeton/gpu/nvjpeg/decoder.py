"""Decoder: one way to decode, image by image and step by step."""

from __future__ import annotations

from ctypes import byref, c_int
from typing import TYPE_CHECKING

from gpubeton.gpu.nvjpeg.arrays import address_of
from gpubeton.gpu.nvjpeg.image import IMAGE
from gpubeton.gpu.nvjpeg.resource import Resource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.gpu.nvjpeg.buffers import DeviceBuffer, PinnedBuffer
    from gpubeton.gpu.nvjpeg.decode_params import DecodeParams
    from gpubeton.gpu.nvjpeg.enumerations import Backend
    from gpubeton.gpu.nvjpeg.jpeg_stream import JpegStream


class Decoder(Resource):
    """One way to decode, shared by any number of states. Made by `Handle.make_decoder`.

    Parameters
    ----------
    handle : Resource
        The handle.
    backend : Backend
        What decodes, whatever the handle's own backend is.
    """

    def __init__(self, handle: Resource, backend: Backend) -> None:
        super().__init__(
            handle.calls, "nvjpegDecoderCreate", "nvjpegDecoderDestroy", handle.pointer, backend, parent=handle
        )
        self.handle = handle

    def is_supported(self, jpeg: JpegStream, params: DecodeParams) -> bool:
        """Tell whether it can decode a JPEG that was parsed."""
        answer = c_int(-1)
        self.calls("nvjpegDecoderJpegSupported", self.pointer, jpeg.pointer, params.pointer, byref(answer))
        return answer.value == 0

    def make_state(self) -> DecoderState:
        """Make a state, which needs buffers before it can decode."""
        return DecoderState(self)


class DecoderState(Resource):
    """One image on its way through a decoder. Made by `Decoder.make_state`.

    For one thread at a time. `decode` does everything; or `decode_host` (on the CPU, returns when done), then
    `transfer_to_device` and `decode_device` (both return at once and are in the order of their stream).

    Parameters
    ----------
    decoder : Decoder
        The decoder.
    """

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
        """Give it a buffer for what the CPU makes; the one before may be under way to the device still."""
        self.calls("nvjpegStateAttachPinnedBuffer", self.pointer, buffer.pointer)
        self._pinned = buffer

    def attach_device(self, buffer: DeviceBuffer) -> None:
        """Give it a buffer for what the device makes in between."""
        self.calls("nvjpegStateAttachDeviceBuffer", self.pointer, buffer.pointer)
        self._device = buffer

    def decode(self, jpeg: JpegStream, target: NDArray[np.void], params: DecodeParams, stream: int) -> None:
        """Decode an image; returns before it is done.

        Parameters
        ----------
        jpeg : JpegStream
            The JPEG, parsed; its bytes have to stay until the stream has passed.
        target : ndarray of IMAGE, shape (1,)
            Where the image goes on the device.
        params : DecodeParams
            What is wanted of it.
        stream : int
            The ``cudaStream_t``.

        Raises
        ------
        OptionError
            If `target` is not what nvJPEG would take it for.
        NvjpegError
            If nvJPEG cannot decode it.
        """
        written = address_of(target, IMAGE, 1, "target")
        self._in_use = (jpeg, target, params)
        self.calls("nvjpegDecodeJpeg", *self._three, jpeg.pointer, written, params.pointer, stream)

    def decode_host(self, jpeg: JpegStream, params: DecodeParams) -> None:
        """Do the CPU's share. The pinned buffer must be free: wait for the stream that was given it."""
        self._in_use = (jpeg, params)
        self.calls("nvjpegDecodeJpegHost", *self._three, params.pointer, jpeg.pointer)

    def transfer_to_device(self, jpeg: JpegStream, stream: int) -> None:
        """Copy what the CPU made to the device."""
        self.calls("nvjpegDecodeJpegTransferToDevice", *self._three, jpeg.pointer, stream)

    def decode_device(self, target: NDArray[np.void], stream: int) -> None:
        """Do the device's share. `target`: ndarray of IMAGE, shape (1,)."""
        written = address_of(target, IMAGE, 1, "target")
        self._in_use += (target,)
        self.calls("nvjpegDecodeJpegDevice", *self._three, written, stream)

    @property
    def _three(self) -> tuple[int, int, int]:
        return self._decoder.handle.pointer, self._decoder.pointer, self.pointer
