"""Library, Handle, JpegHeader and State: find nvJPEG, start it with a backend, decode batches."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_uint
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import NvjpegError
from gpubeton.gpu import libraries
from gpubeton.gpu.libraries import Place, driver_version
from gpubeton.gpu.nvjpeg.c_types import IMAGE, Backend, ChromaSubsampling, Flags, OutputFormat, bind
from gpubeton.gpu.nvjpeg.checked_calls import Calls, Resource, address_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ADDRESS = np.dtype(np.uint64)


class Handle(Resource):
    """The library on the device that was current when it was made, with one backend. Made by `Library.create`."""

    # Threads may share a handle, but not its states and headers.

    def __init__(self, calls: Calls, backend: Backend, flags: Flags = Flags.NONE) -> None:
        self.backend = backend
        super().__init__(calls, "nvjpegCreateEx", "nvjpegDestroy", backend, None, None, flags)

    def hardware_engines(self) -> tuple[int, int]:
        """Return the number of JPEG engines and the cores of each."""
        engines, cores = c_uint(), c_uint()
        self.calls("nvjpegGetHardwareDecoderInfo", self.pointer, byref(engines), byref(cores))
        return engines.value, cores.value

    def make_state(self) -> State:
        """Make a state, which decodes batches."""
        return State(self)

    def make_header(self) -> JpegHeader:
        """Make an object that reads the headers of JPEGs."""
        return JpegHeader(self)


class JpegHeader(Resource):
    """The header of one JPEG after another. Made by `Handle.make_header`; for one thread at a time."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(
            handle.calls, "nvjpegJpegStreamCreate", "nvjpegJpegStreamDestroy", handle.pointer, parent=handle
        )
        self._handle = handle

    def is_supported(self, address: int, size: int) -> bool:
        """Return whether `State.decode_batched` takes a JPEG in the host's memory; reads its header only."""
        if self.calls.status("nvjpegJpegStreamParseHeader", self._handle.pointer, address, size, self.pointer):
            return False
        answer = c_int(-1)
        self.calls("nvjpegDecodeBatchedSupported", self._handle.pointer, self.pointer, byref(answer))
        return answer.value == 0


class State(Resource):
    """A state of nvJPEG, which decodes one batch at a time. Made by `Handle.make_state`."""

    # For one thread at a time: the stream has to finish a batch before the next call. No argument is copied: compressed
    # bytes, image memory and arrays have to stay unchanged until the stream has passed the call. The state keeps the
    # arrays of its latest call.

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle.calls, "nvjpegJpegStateCreate", "nvjpegJpegStateDestroy", handle.pointer, parent=handle)
        self.handle = handle
        self.batch = 0  # images of the batches that it was initialised for; 0 if it has to be initialised first
        self.in_use: tuple[Any, ...] = ()

    def initialise(self, batch: int) -> None:
        """Prepare for batches of a size, also after a failed batch. No batch may be under way."""
        self.batch = 0
        # One thread of the CPU; nvJPEG no longer uses it.
        function = "nvjpegDecodeBatchedInitialize"
        self.calls(function, self.handle.pointer, self.pointer, batch, 1, OutputFormat.RGBI)
        self.batch = batch

    def preallocate(self, batch: int, width: int, height: int) -> None:
        """Allocate the memory of batches now, and not while decoding; only HARDWARE does anything."""
        kind = ChromaSubsampling.CSS_444, OutputFormat.RGBI
        function = "nvjpegDecodeBatchedPreAllocate"
        self.calls(function, self.handle.pointer, self.pointer, batch, width, height, *kind)

    def decode_batched(
        self,
        addresses: NDArray[np.uint64],  # (N,)
        sizes: NDArray[np.uint64],  # (N,)
        targets: NDArray[np.void],  # (N,) IMAGE
        stream: int,
    ) -> None:
        """Decode a batch; returns before it is done."""
        # On some GPUs the backend HARDWARE writes the images at once, before earlier work of the stream: the host has
        # to wait until their memory is not used.
        count = self.batch
        if not count:
            raise NvjpegError(
                "nvjpegDecodeBatched: the state is not initialised for batches, and nvJPEG would crash. Call "
                "initialise first, also after a batch that failed",
                "nvjpegDecodeBatched",
            )
        arguments = (
            address_of(addresses, _ADDRESS, count, "addresses"),
            address_of(sizes, _ADDRESS, count, "sizes"),
            address_of(targets, IMAGE, count, "targets"),
        )
        self.in_use = (addresses, sizes, targets)
        self.batch = 0
        self.calls("nvjpegDecodeBatched", self.handle.pointer, self.pointer, *arguments, stream)
        self.batch = count


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

    def create(self, backend: Backend, flags: Flags = Flags.NONE) -> Handle:
        """Start nvJPEG on the current device."""
        return Handle(self.calls, backend, flags)


def load(path: str | None = None) -> Library:
    """Load nvJPEG from the path, or from the first usable place; needs no GPU."""
    library, place = libraries.load(
        "nvjpeg",
        path=path,
        variable=VARIABLE,
        bundled_in=("torchvision",),
        install=libraries.INSTALL,
        check=_why_not,
    )
    return Library(library, place.path)


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
