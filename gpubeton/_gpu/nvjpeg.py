"""Binding of nvJPEG, NVIDIA's JPEG decoder, as far as batches need it.

`load` finds the library, a `Handle` starts it, and a `State` decodes batches in two calls without an object per image.
Every status is checked, errors name a remedy, and each object is destroyed once.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from contextlib import nullcontext
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_void_p
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._gpu import libraries
from gpubeton.errors import NvjpegError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Names the file, and then no other is tried.
VARIABLE = "GPUBETON_NVJPEG"

HARDWARE = 3
"""``nvjpegBackend_t``: the JPEG engines."""

INTERPOLATED = 32
"""Flag of a handle: interpolate chroma, as libjpeg does by default, and do not repeat it. Since nvJPEG 12.1."""

RGBI = 5
"""``nvjpegOutputFormat_t``: red, green, blue interleaved, one plane of 3 bytes per pixel."""

_CSS_444 = 0  # ``nvjpegChromaSubsampling_t``: memory for it is enough for every sampling

IMAGE = np.dtype([("channel", "<u8", (4,)), ("pitch", "<u8", (4,))], align=True)
"""``nvjpegImage_t``: address of each plane's first row, bytes from row to row. RGBI uses the first; others are 0."""

MADE = POINTER(c_void_p)
INTEGER = POINTER(c_int)

PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "nvjpegGetProperty": (c_int, INTEGER),
    # backend, device allocator, pinned allocator, flags
    "nvjpegCreateEx": (c_int, c_void_p, c_void_p, c_uint, MADE),
    "nvjpegDestroy": (c_void_p,),
    "nvjpegGetHardwareDecoderInfo": (c_void_p, POINTER(c_uint), POINTER(c_uint)),
    "nvjpegJpegStreamCreate": (c_void_p, MADE),
    "nvjpegJpegStreamDestroy": (c_void_p,),
    "nvjpegJpegStreamParseHeader": (c_void_p, c_void_p, c_size_t, c_void_p),
    "nvjpegDecodeBatchedSupported": (c_void_p, c_void_p, INTEGER),
    # handle, state, ...
    "nvjpegJpegStateCreate": (c_void_p, MADE),
    "nvjpegJpegStateDestroy": (c_void_p,),
    "nvjpegDecodeBatchedInitialize": (c_void_p, c_void_p, c_int, c_int, c_int),
    "nvjpegDecodeBatchedPreAllocate": (c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_int),
    "nvjpegDecodeBatched": (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
}
"""For each function, the types of its arguments in order; benchmarks add those that they need."""


class Status(IntEnum):
    """``nvjpegStatus_t``."""

    SUCCESS = 0
    NOT_INITIALIZED = 1
    INVALID_PARAMETER = 2
    BAD_JPEG = 3
    JPEG_NOT_SUPPORTED = 4
    ALLOCATOR_FAILURE = 5
    EXECUTION_FAILED = 6
    ARCH_MISMATCH = 7
    INTERNAL_ERROR = 8
    IMPLEMENTATION_NOT_SUPPORTED = 9
    INCOMPLETE_BITSTREAM = 10


# The meaning of a status, and what to try.
_MEANINGS = {
    Status.NOT_INITIALIZED: ("an argument was not initialized", "Use handles and states only before they are closed"),
    Status.INVALID_PARAMETER: ("an argument is wrong", "Look for something closed, or a size below 1"),
    Status.BAD_JPEG: ("the bytes are not a JPEG, or a damaged one", "Open them with another program"),
    Status.JPEG_NOT_SUPPORTED: (
        "this kind of JPEG is not for this backend",
        "The engines take baseline, 8 bits, one scan, not 4:1:1; the CPU takes all kinds",
    ),
    Status.ALLOCATOR_FAILURE: (
        "memory of the device, or page-locked memory of the host, ran out",
        "Take smaller batches; nvidia-smi shows which processes hold memory",
    ),
    Status.EXECUTION_FAILED: (
        "CUDA reported an error",
        "It may come from an earlier kernel or copy: run again with CUDA_LAUNCH_BLOCKING=1",
    ),
    Status.ARCH_MISMATCH: ("this GPU cannot do that", "The CPU decodes instead"),
    Status.INTERNAL_ERROR: ("nvJPEG itself failed", "Another version of nvJPEG may decode the image"),
    Status.INCOMPLETE_BITSTREAM: ("the JPEG ends too early", "It was probably cut short while copying"),
}
_NO_CUDA = {Status.EXECUTION_FAILED, Status.NOT_INITIALIZED, Status.INTERNAL_ERROR}


def _explain(call: str, status: int) -> str:
    """Explain a status of a call, and what to try, in one paragraph without a full stop."""
    try:
        name = Status(status)
    except ValueError:
        return f"{call}: status {status}, which nvJPEG's documentation does not list. Try another version of nvJPEG"
    meaning, advice = _MEANINGS.get(name, ("this backend cannot do that", "Another version of nvJPEG may be able to"))
    if call == "nvjpegCreateEx" and name is Status.ARCH_MISMATCH:
        meaning, advice = "the JPEG engines of this GPU cannot be used", _why_no_engines()
    elif call == "nvjpegCreateEx" and name in _NO_CUDA:
        meaning, advice = "CUDA cannot be used", libraries.explain_no_cuda()
    return f"{call}: status {status} ({name.name}): {meaning}. {advice}"


def _why_no_engines() -> str:
    """Distinguish a GPU without engines from a container without the driver's library for them."""
    try:
        ctypes.CDLL("libnvcuvid.so.1")
    except OSError:
        return (
            "The driver's libnvcuvid.so.1 was not found, without which nvJPEG does not reach the engines: start the "
            "container with NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"
        )
    return (
        "The driver's libnvcuvid.so.1 is there: the GPU has no JPEG engines (A100, A30, L4, Hopper and newer "
        "data-center GPUs do; T4, V100, A10 and GeForce do not), or it is a MIG slice without one (nvidia-smi -L shows "
        "these)"
    )


class Library:
    """A loaded nvJPEG, called by the names of functions. Made by `load`."""

    # Looked up at the first call: a version of nvJPEG that lacks one function can be used for the others.

    def __init__(self, library: ctypes.CDLL, path: str, version: tuple[int, ...]) -> None:
        self.path = path
        self.version = version  # e.g. (13, 3, 2)
        self._name = f"nvJPEG {'.'.join(map(str, version))}, {path}"
        self._library = library
        self._functions: dict[str, Any] = {}

    def __call__(self, function: str, *arguments: Any) -> None:
        """Call a function; a NvjpegError if it is missing, or if its status is not success."""
        if status := self.status(function, *arguments):
            raise NvjpegError(f"{_explain(function, status)} ({self._name})", function, status)

    def status(self, function: str, *arguments: Any) -> int:
        """Call a function and return its status."""
        if function not in self._functions:
            try:
                self._functions[function] = bind(self._library, function)
            except AttributeError as error:
                raise NvjpegError(
                    f"{function} is missing in {self._name}. Install another version: nvidia-nvjpeg 13 or "
                    "nvidia-nvjpeg-cu12 12",
                    function,
                ) from error
        return int(self._functions[function](*arguments))


def load(path: str | None = None) -> Library:
    """Load nvJPEG from the path, or from the first usable place; needs no GPU."""
    return Library(*libraries.load("nvjpeg", _read_version, path=path, variable=VARIABLE, bundled_in=("torchvision",)))


def bind(library: ctypes.CDLL, name: str) -> Any:
    """Return a function of the library, with its prototype; AttributeError if it has none."""
    function = library[name]
    function.argtypes, function.restype = PROTOTYPES[name], c_int
    return function


def _read_version(library: ctypes.CDLL) -> tuple[int, ...]:
    numbers = c_int(), c_int(), c_int()  # major, minor, patch
    for which, number in enumerate(numbers):
        if status := bind(library, "nvjpegGetProperty")(which, byref(number)):
            raise OSError(f"nvjpegGetProperty does not give its version (status {status})")
    return tuple(number.value for number in numbers)


class Resource:
    """An object of nvJPEG; closed by `close`, or with its last reference. Its parents are destroyed later."""

    # It is not destroyed at the end of the interpreter: CUDA may be unloaded by then, and the call would crash.

    active: Any = nullcontext  # makes its device current, as for all calls

    def __init__(
        self, library: Library, create: str, destroy: str, *arguments: Any, parent: Resource | None = None
    ) -> None:
        self.library = library
        self.children: weakref.WeakSet[Resource] = weakref.WeakSet()  # made from it
        pointer = c_void_p()
        library(create, *arguments, byref(pointer))
        if not pointer.value:
            raise NvjpegError(f"{create} reported success and made nothing ({library.path})", create, 0)
        self._destroy = destroy
        owners = os.getpid(), (parent or self).active, parent
        self._finalizer = weakref.finalize(self, _give_back, library, destroy, pointer.value, *owners)
        self._finalizer.atexit = False
        self._pointer = pointer.value
        if parent is not None:
            parent.children.add(self)

    @property
    def pointer(self) -> int:
        """Its address in nvJPEG."""
        if not self._finalizer.alive:
            raise NvjpegError(f"This {type(self).__name__} was closed already and cannot be used any more")
        return self._pointer

    def close(self) -> None:
        """Destroy it, after all objects made from it. It may not be in use; may be called twice."""
        for child in list(self.children):
            child.close()
        if status := self._finalizer():
            raise NvjpegError(f"{_explain(self._destroy, status)} ({self.library.path})", self._destroy, status)


def _give_back(library: Library, destroy: str, pointer: int, process: int, active: Any, _parent: object) -> int:
    """Destroy it, unless this is a forked child, which has a copy of the pointer and no CUDA."""
    if os.getpid() != process:
        return 0
    with active():  # the last reference may go in any thread
        return library.status(destroy, pointer)


class Handle(Resource):
    """The library on the device that was current when it was made, with one backend."""

    # Threads may share a handle, but not its states and headers.

    def __init__(self, library: Library, backend: int = HARDWARE, flags: int = 0, active: Any = nullcontext) -> None:
        self.active = active
        super().__init__(library, "nvjpegCreateEx", "nvjpegDestroy", backend, None, None, flags)

    def hardware_engines(self) -> tuple[int, int]:
        """Return the number of JPEG engines and the cores of each."""
        engines, cores = c_uint(), c_uint()
        self.library("nvjpegGetHardwareDecoderInfo", self.pointer, byref(engines), byref(cores))
        return engines.value, cores.value


class JpegHeader(Resource):
    """The header of one JPEG after another; for one thread at a time."""

    def __init__(self, handle: Handle) -> None:
        create, destroy = "nvjpegJpegStreamCreate", "nvjpegJpegStreamDestroy"
        super().__init__(handle.library, create, destroy, handle.pointer, parent=handle)
        self._handle = handle

    def is_supported(self, address: int, size: int) -> bool:
        """Return whether `State.decode_batched` takes a JPEG in the host's memory; reads its header only."""
        handle, answer = self._handle.pointer, c_int(-1)
        if self.library.status("nvjpegJpegStreamParseHeader", handle, address, size, self.pointer):
            return False
        self.library("nvjpegDecodeBatchedSupported", handle, self.pointer, byref(answer))
        return answer.value == 0


class State(Resource):
    """A state of nvJPEG, which decodes one batch at a time."""

    # For one thread at a time: the stream has to finish a batch before the next call. No argument is copied: compressed
    # bytes, image memory and arrays have to stay unchanged until the stream has passed the call.

    def __init__(self, handle: Handle) -> None:
        create, destroy = "nvjpegJpegStateCreate", "nvjpegJpegStateDestroy"
        super().__init__(handle.library, create, destroy, handle.pointer, parent=handle)
        self.handle = handle
        self.batch = 0  # images of the batches that it was initialized for; 0 if it has to be initialized first
        self.in_use: object = None  # the arrays of the latest call

    def initialize(self, batch: int) -> None:
        """Prepare for batches of a size, also after a failed batch. No batch may be under way."""
        self.batch = 0
        # One thread of the CPU; nvJPEG no longer uses it.
        self.library("nvjpegDecodeBatchedInitialize", self.handle.pointer, self.pointer, batch, 1, RGBI)
        self.batch = batch

    def preallocate(self, batch: int, width: int, height: int) -> None:
        """Allocate the memory of batches now, and not while decoding; only HARDWARE does anything."""
        arguments = self.handle.pointer, self.pointer, batch, width, height, _CSS_444, RGBI
        self.library("nvjpegDecodeBatchedPreAllocate", *arguments)

    def decode_batched(
        self,
        addresses: NDArray[np.uint64],  # (N,), and all three C-contiguous: nothing checks that
        sizes: NDArray[np.uint64],  # (N,)
        targets: NDArray[np.void],  # (N,) IMAGE
        stream: int,
    ) -> None:
        """Decode a batch; returns before it is done."""
        # On some GPUs the backend HARDWARE writes the images at once, before earlier work of the stream: the host has
        # to wait until their memory is not used.
        count = self.batch
        if not count or count != len(targets):
            raise NvjpegError(
                f"nvjpegDecodeBatched: {len(targets)} images for a state that is initialized for {count}, and nvJPEG "
                "would crash. Call initialize first, also after a batch that failed",
                "nvjpegDecodeBatched",
            )
        self.batch, self.in_use = 0, (addresses, sizes, targets)
        arrays = (array.ctypes.data for array in (addresses, sizes, targets))
        self.library("nvjpegDecodeBatched", self.handle.pointer, self.pointer, *arrays, stream)
        self.batch = count
