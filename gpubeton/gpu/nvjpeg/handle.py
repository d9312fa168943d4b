"""Handle: the library on one device, with one backend."""

from __future__ import annotations

from ctypes import addressof, byref, c_int, c_size_t, c_uint
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubeton.gpu.nvjpeg.allocators import DeviceAllocator, PinnedAllocator, StreamAllocator, is_second_version
from gpubeton.gpu.nvjpeg.buffers import DeviceBuffer, PinnedBuffer
from gpubeton.gpu.nvjpeg.decode_params import DecodeParams
from gpubeton.gpu.nvjpeg.decoder import Decoder
from gpubeton.gpu.nvjpeg.enumerations import Backend, ChromaSubsampling, Flags
from gpubeton.gpu.nvjpeg.jpeg_stream import JpegStream
from gpubeton.gpu.nvjpeg.resource import Resource
from gpubeton.gpu.nvjpeg.state import State

if TYPE_CHECKING:
    from gpubeton.gpu.nvjpeg.calls import Calls


@dataclass(frozen=True)
class ImageInfo:
    """What the header of a JPEG says.

    Attributes
    ----------
    subsampling : ChromaSubsampling
        How much smaller the chroma components are.
    heights, widths : tuple of int
        Of each component, in samples; the first is the image's.
    """

    subsampling: ChromaSubsampling
    heights: tuple[int, ...]
    widths: tuple[int, ...]


class Handle(Resource):
    """The library on the device that was current when it was made, with one backend. Made by `Library.create`.

    Threads may share a handle, but neither the states nor the streams made of it.

    Parameters
    ----------
    calls : Calls
        The library.
    backend : Backend or None
        What decodes; None lets nvJPEG decide everything.
    flags : Flags
        What to do differently.
    device_allocator, pinned_allocator : optional
        Where memory comes from; nvJPEG's own by default.
    """

    def __init__(
        self,
        calls: Calls,
        backend: Backend | None,
        flags: Flags = Flags.NONE,
        device_allocator: DeviceAllocator | StreamAllocator | None = None,
        pinned_allocator: PinnedAllocator | StreamAllocator | None = None,
    ) -> None:
        self.backend = backend
        allocators = (device_allocator, pinned_allocator)
        if backend is None:
            super().__init__(calls, "nvjpegCreateSimple", "nvjpegDestroy")
            return
        super().__init__(
            calls,
            "nvjpegCreateExV2" if is_second_version(*allocators) else "nvjpegCreateEx",
            "nvjpegDestroy",
            backend,
            *(addressof(one) if one is not None else None for one in allocators),
            flags,
            keep=allocators,
        )

    def hardware_engines(self) -> tuple[int, int]:
        """Give the number of JPEG engines and the cores of each."""
        engines, cores = c_uint(), c_uint()
        self.calls("nvjpegGetHardwareDecoderInfo", self.pointer, byref(engines), byref(cores))
        return engines.value, cores.value

    def image_info(self, address: int, size: int) -> ImageInfo:
        """Read the header of a JPEG; any number of threads may.

        Parameters
        ----------
        address, size : int
            Where it is in the host's memory, in bytes.

        Returns
        -------
        ImageInfo
            What it says.

        Raises
        ------
        NvjpegError
            If it is none, or damaged.
        """
        components, subsampling = c_int(), c_int()
        widths, heights = (c_int * 4)(), (c_int * 4)()
        found = (byref(components), byref(subsampling), widths, heights)
        self.calls("nvjpegGetImageInfo", self.pointer, address, size, *found)
        number = components.value
        return ImageInfo(ChromaSubsampling(subsampling.value), tuple(heights[:number]), tuple(widths[:number]))

    def is_batch_supported(self, jpeg: JpegStream, params: DecodeParams | None = None) -> bool:
        """Tell whether `State.decode_batched` can take a JPEG that was parsed; with wishes, `decode_batched_ex`."""
        answer = c_int(-1)
        if params is None:
            self.calls("nvjpegDecodeBatchedSupported", self.pointer, jpeg.pointer, byref(answer))
        else:
            arguments = (self.pointer, jpeg.pointer, params.pointer)
            self.calls("nvjpegDecodeBatchedSupportedEx", *arguments, byref(answer))
        return answer.value == 0

    @property
    def device_padding(self) -> int:
        """Bytes of which all its allocations on the device are multiples: fewer reallocations as images grow."""
        padding = c_size_t()
        self.calls("nvjpegGetDeviceMemoryPadding", byref(padding), self.pointer)
        return padding.value

    @device_padding.setter
    def device_padding(self, nbytes: int) -> None:
        self.calls("nvjpegSetDeviceMemoryPadding", nbytes, self.pointer)

    @property
    def pinned_padding(self) -> int:
        """Bytes of which all its allocations of page-locked memory are multiples."""
        padding = c_size_t()
        self.calls("nvjpegGetPinnedMemoryPadding", byref(padding), self.pointer)
        return padding.value

    @pinned_padding.setter
    def pinned_padding(self, nbytes: int) -> None:
        self.calls("nvjpegSetPinnedMemoryPadding", nbytes, self.pointer)

    def make_state(self) -> State:
        """Make a state for `State.decode` and `State.decode_batched`."""
        return State(self)

    def make_stream(self) -> JpegStream:
        """Make an object that parses JPEGs."""
        return JpegStream(self)

    def make_params(self) -> DecodeParams:
        """Make an object that holds wishes for an image."""
        return DecodeParams(self)

    def make_decoder(self, backend: Backend) -> Decoder:
        """Make a decoder that goes step by step, on any backend."""
        return Decoder(self, backend)

    def make_pinned_buffer(self, allocator: PinnedAllocator | StreamAllocator | None = None) -> PinnedBuffer:
        """Make page-locked memory of the host for a `DecoderState`."""
        return PinnedBuffer(self, allocator)

    def make_device_buffer(self, allocator: DeviceAllocator | StreamAllocator | None = None) -> DeviceBuffer:
        """Make memory of the device for a `DecoderState`."""
        return DeviceBuffer(self, allocator)
