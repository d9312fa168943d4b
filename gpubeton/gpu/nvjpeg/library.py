"""Library and Handle: find nvJPEG, and start it with a backend."""

from __future__ import annotations

import ctypes
from ctypes import addressof, byref, c_int, c_size_t, c_uint
from dataclasses import dataclass

from gpubeton.errors import NvjpegError
from gpubeton.gpu import libraries
from gpubeton.gpu.libraries import Place, driver_version
from gpubeton.gpu.nvjpeg.c_types import (
    Backend,
    ChromaSubsampling,
    DeviceAllocator,
    Flags,
    PinnedAllocator,
    StreamAllocator,
    bind,
    is_second_version,
)
from gpubeton.gpu.nvjpeg.checked_calls import Calls, Resource
from gpubeton.gpu.nvjpeg.decode_state import State
from gpubeton.gpu.nvjpeg.stepwise import DecodeParams, Decoder, DeviceBuffer, JpegStream, PinnedBuffer


@dataclass(frozen=True)
class ImageInfo:
    """Sizes and sampling from the header of a JPEG."""

    subsampling: ChromaSubsampling
    heights: tuple[int, ...]  # of each component, in samples; the first is the image's
    widths: tuple[int, ...]


class Handle(Resource):
    """The library on the device that was current when it was made, with one backend. Made by `Library.create`."""

    # Threads may share a handle, but not its states and streams.

    def __init__(
        self,
        calls: Calls,
        backend: Backend | None,
        flags: Flags = Flags.NONE,
        device_allocator: DeviceAllocator | StreamAllocator | None = None,
        pinned_allocator: PinnedAllocator | StreamAllocator | None = None,
    ) -> None:
        self.backend = backend  # None for nvJPEG's choice
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
        """Return the number of JPEG engines and the cores of each."""
        engines, cores = c_uint(), c_uint()
        self.calls("nvjpegGetHardwareDecoderInfo", self.pointer, byref(engines), byref(cores))
        return engines.value, cores.value

    def image_info(self, address: int, size: int) -> ImageInfo:
        """Read the header of a JPEG in the host's memory; thread-safe."""
        components, subsampling = c_int(), c_int()
        widths, heights = (c_int * 4)(), (c_int * 4)()
        found = (byref(components), byref(subsampling), widths, heights)
        self.calls("nvjpegGetImageInfo", self.pointer, address, size, *found)
        number = components.value
        return ImageInfo(ChromaSubsampling(subsampling.value), tuple(heights[:number]), tuple(widths[:number]))

    def is_batch_supported(self, jpeg: JpegStream, params: DecodeParams | None = None) -> bool:
        """Return whether `State.decode_batched` (with params: `decode_batched_ex`) takes a parsed JPEG."""
        answer = c_int(-1)
        if params is None:
            self.calls("nvjpegDecodeBatchedSupported", self.pointer, jpeg.pointer, byref(answer))
        else:
            arguments = (self.pointer, jpeg.pointer, params.pointer)
            self.calls("nvjpegDecodeBatchedSupportedEx", *arguments, byref(answer))
        return answer.value == 0

    @property
    def device_padding(self) -> int:
        """Its device allocations are multiples of this many bytes: fewer reallocations as images grow."""
        padding = c_size_t()
        self.calls("nvjpegGetDeviceMemoryPadding", byref(padding), self.pointer)
        return padding.value

    @device_padding.setter
    def device_padding(self, nbytes: int) -> None:
        self.calls("nvjpegSetDeviceMemoryPadding", nbytes, self.pointer)

    @property
    def pinned_padding(self) -> int:
        """Its allocations of page-locked memory are multiples of this many bytes."""
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
        """Make parameters of an image."""
        return DecodeParams(self)

    def make_decoder(self, backend: Backend) -> Decoder:
        """Make a decoder that works step by step, on any backend."""
        return Decoder(self, backend)

    def make_pinned_buffer(self, allocator: PinnedAllocator | StreamAllocator | None = None) -> PinnedBuffer:
        """Make page-locked memory of the host for a `DecoderState`."""
        return PinnedBuffer(self, allocator)

    def make_device_buffer(self, allocator: DeviceAllocator | StreamAllocator | None = None) -> DeviceBuffer:
        """Make memory of the device for a `DecoderState`."""
        return DeviceBuffer(self, allocator)


#: Names the file, and then no other is tried.
VARIABLE = "GPUBETON_NVJPEG"


class Library:
    """A loaded nvJPEG. Made by `load`."""

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        self.path = path
        self.version = _three_numbers(library, "nvjpegGetProperty")  # e.g. (13, 3, 2)
        self._library = library
        self.calls = Calls(library, f"nvJPEG {'.'.join(map(str, self.version))}, {path}")

    @property
    def cuda_version(self) -> tuple[int, int, int]:
        """The CUDA that it was built with."""
        return _three_numbers(self._library, "nvjpegGetCudartProperty")

    def create(
        self,
        backend: Backend,
        flags: Flags = Flags.NONE,
        *,
        device_allocator: DeviceAllocator | StreamAllocator | None = None,
        pinned_allocator: PinnedAllocator | StreamAllocator | None = None,
    ) -> Handle:
        """Start nvJPEG on the current device."""
        return Handle(self.calls, backend, flags, device_allocator, pinned_allocator)

    def create_simple(self) -> Handle:
        """Start nvJPEG on the current device with the backend of its choice."""
        return Handle(self.calls, None)


def load(path: str | None = None) -> Library:
    """Load nvJPEG from the path, or from the first usable place; needs no GPU."""
    library, place = libraries.load(
        "nvjpeg",
        path=path,
        variable=VARIABLE,
        bundled_in=("torchvision",),
        install="pip install 'gpubeton[cuda13]' (gpubeton[cuda12] for drivers before 580)",
        check=_why_not,
    )
    return Library(library, place.path)


def find_library() -> str:
    """Return the file of the nvJPEG that `load` takes."""
    return load().path


def _why_not(library: ctypes.CDLL, place: Place) -> str:
    """Return why a library cannot be used: not nvJPEG, or for a newer CUDA than the driver's; "" if it can."""
    try:
        major = _three_numbers(library, "nvjpegGetProperty")[0]
    except NvjpegError as error:
        return str(error)
    driver = driver_version()
    if driver is not None and major > driver[0] and not place.is_explicit:
        return f"it is for CUDA {major}, and the driver for CUDA {driver[0]}.{driver[1]}"
    return ""


def _three_numbers(library: ctypes.CDLL, function: str) -> tuple[int, int, int]:
    numbers = []
    for which in range(3):  # major, minor, patch
        number = c_int()
        try:
            status = bind(library, function)(which, byref(number))
        except AttributeError as error:
            raise NvjpegError(f"not nvJPEG: it has no function {function}", function) from error
        if status:
            raise NvjpegError(f"{function} does not give its version (status {status})", function, status)
        numbers.append(number.value)
    return numbers[0], numbers[1], numbers[2]
