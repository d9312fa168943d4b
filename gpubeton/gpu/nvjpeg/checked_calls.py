"""Calls of nvJPEG: each status is checked, and each object is destroyed once."""

from __future__ import annotations

import ctypes
import os
import weakref
from ctypes import byref, c_void_p
from enum import IntEnum
from typing import Any

import numpy as np

from gpubeton.errors import NvjpegError, OptionError
from gpubeton.gpu.libraries import driver_version
from gpubeton.gpu.nvjpeg.c_types import bind


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
    Status.NOT_INITIALIZED: ("an argument was not initialised", "Use handles and states only before they are closed"),
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


def explain(call: str, status: int) -> str:
    """Explain a status of a call, and what to try, in one paragraph without a full stop."""
    try:
        known = Status(status)
    except ValueError:
        return f"{call}: status {status}, which nvJPEG's documentation does not list. Try another version of nvJPEG"
    meaning, advice = _MEANINGS.get(known, ("this backend cannot do that", "Another version of nvJPEG may be able to"))
    if call == "nvjpegCreateEx" and known is Status.ARCH_MISMATCH:
        meaning, advice = "the JPEG engines of this GPU cannot be used", _why_no_engines()
    elif call == "nvjpegCreateEx" and known in _NO_CUDA:
        meaning, advice = "CUDA cannot be used", _why_no_cuda()
    return f"{call}: status {status} ({known.name}): {meaning}. {advice}"


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
        "data-center GPUs do; T4, V100, A10 do not), or it is a MIG slice without one (nvidia-smi -L shows these)"
    )


def _why_no_cuda() -> str:
    """Distinguish a missing driver from one that is too old."""
    driver = driver_version()
    if driver is None:
        return "No NVIDIA driver answers (libcuda.so.1): see whether nvidia-smi shows a GPU"
    return (
        f"The driver is for CUDA {driver[0]}.{driver[1]}; nvJPEG 13 needs one for CUDA 13 (580 or newer), nvJPEG 12 "
        "one for CUDA 12 (525 or newer). See whether nvidia-smi shows a GPU, and that CUDA_VISIBLE_DEVICES names one"
    )


class Calls:
    """The functions of a loaded library."""

    # Looked up at the first call: a version of nvJPEG that lacks one function can be used for the others.

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.name = name  # for errors
        self._library = library
        self._functions: dict[str, Any] = {}

    def __call__(self, function: str, *arguments: Any) -> None:
        """Call a function by name; a NvjpegError if it is missing, or if its status is not success."""
        status = self.status(function, *arguments)
        if status:
            raise NvjpegError(f"{explain(function, status)} ({self.name})", function, status)

    def status(self, function: str, *arguments: Any) -> int:
        """Call a function and return its status."""
        return int((self._functions.get(function) or self._bind(function))(*arguments))

    def _bind(self, name: str) -> Any:
        try:
            function = self._functions[name] = bind(self._library, name)
        except AttributeError as error:
            raise NvjpegError(
                f"{name} is missing in {self.name}. Install another version: nvidia-nvjpeg 13 or nvidia-nvjpeg-cu12 12",
                name,
            ) from error
        return function


class Resource:
    """An object of nvJPEG; closed by `close`, or with its last reference."""

    # The device that was current when it was made has to be current again when it is closed. It is not destroyed at
    # the end of the interpreter: CUDA may be unloaded by then, and the call would crash.

    def __init__(
        self,
        calls: Calls,
        create: str,
        destroy: str,
        *arguments: Any,
        parent: Resource | None = None,
        keep: object = None,
    ) -> None:
        self.calls = calls
        self.children: weakref.WeakSet[Resource] = weakref.WeakSet()  # made from it
        made = c_void_p()
        calls(create, *arguments, byref(made))
        if not made.value:
            raise NvjpegError(f"{create} reported success and made nothing ({calls.name})", create, 0)
        self._destroy = destroy
        # The parent is among the arguments, so that it is destroyed later.
        self._finalizer = weakref.finalize(self, _give_back, calls, destroy, made.value, os.getpid(), (parent, keep))
        self._finalizer.atexit = False
        self._pointer = made.value
        if parent is not None:
            parent.children.add(self)

    @property
    def pointer(self) -> int:
        """Its address in nvJPEG."""
        if not self._finalizer.alive:
            raise NvjpegError(f"This {type(self).__name__} was closed already and cannot be used any more")
        return self._pointer

    @property
    def is_closed(self) -> bool:
        """Whether it was destroyed."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Destroy it, after all objects made from it. It may not be in use; may be called twice."""
        for child in list(self.children):
            child.close()
        status = self._finalizer()
        if status:
            raise NvjpegError(f"{explain(self._destroy, status)} ({self.calls.name})", self._destroy, status)


def _give_back(calls: Calls, destroy: str, pointer: int, process: int, _kept: object) -> int:
    """Destroy it, unless this is a forked child, which has a copy of the pointer and no CUDA."""
    return calls.status(destroy, pointer) if os.getpid() == process else 0


def address_of(
    array: object,  # (count,)
    dtype: np.dtype[Any],
    count: int,
    name: str,
) -> int:
    """Return the address of an array after checking that nvJPEG can read `count` entries of this type."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != (count,):
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise OptionError(f"{name}: {found}; expected an ndarray of {dtype} and shape ({count},)")
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise OptionError(
            f"{name}: its entries do not lie one after the other in memory (strides {array.strides}); "
            "take numpy.ascontiguousarray of it"
        )
    return int(array.ctypes.data)
