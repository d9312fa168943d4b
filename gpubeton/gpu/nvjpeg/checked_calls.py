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


_MEANINGS = {
    Status.NOT_INITIALIZED: (
        "something it was given was not initialised",
        "Use handles and states between their making and their closing, and initialise a state before a batch",
    ),
    Status.INVALID_PARAMETER: (
        "an argument is wrong",
        "Look for something closed, a size below 1, a region outside the image, or a wish for another backend",
    ),
    Status.BAD_JPEG: (
        "the bytes are not a JPEG, or a damaged one",
        "Open them with another program to see what is wrong",
    ),
    Status.JPEG_NOT_SUPPORTED: (
        "this kind of JPEG is not for this backend",
        "HARDWARE takes baseline, 8 bits, one scan, not 4:1:1: use HYBRID for other kinds, or the CPU",
    ),
    Status.ALLOCATOR_FAILURE: (
        "memory of the device, or page-locked memory of the host, ran out",
        "Take smaller batches; nvidia-smi shows who else holds memory",
    ),
    Status.EXECUTION_FAILED: (
        "CUDA reported an error",
        "It may come from an earlier kernel or copy: run again with CUDA_LAUNCH_BLOCKING=1",
    ),
    Status.ARCH_MISMATCH: (
        "this GPU cannot do that",
        "Use the backend GPU_HYBRID",
    ),
    Status.INTERNAL_ERROR: (
        "nvJPEG itself failed",
        "Look for the image with smaller batches; another version of nvJPEG may decode it",
    ),
    Status.IMPLEMENTATION_NOT_SUPPORTED: (
        "this backend has no such call",
        "Batches with parameters of their own need the backend HARDWARE",
    ),
    Status.INCOMPLETE_BITSTREAM: (
        "the JPEG ends too early",
        "It was probably cut short while copying",
    ),
}


def explain(call: str, status: int) -> str:
    """Say what a status of a call means and what to try.

    Parameters
    ----------
    call : str
        Name of the function.
    status : int
        What it returned.

    Returns
    -------
    str
        One paragraph, without a full stop.

    Examples
    --------
    >>> print(explain("nvjpegDecode", 10))
    nvjpegDecode: status 10 (INCOMPLETE_BITSTREAM): the JPEG ends too early. It was probably cut short while copying
    """
    try:
        known = Status(status)
    except ValueError:
        return f"{call}: status {status}, which nvJPEG's documentation does not list. Try another version of nvJPEG"
    meaning, advice = _MEANINGS.get(known, ("no error", "Nothing is to be done"))
    if call in _MAKING and known is Status.ARCH_MISMATCH:
        meaning, advice = "this GPU cannot decode JPEGs in hardware", _why_no_engines()
    elif call in _MAKING and known in {Status.EXECUTION_FAILED, Status.NOT_INITIALIZED, Status.INTERNAL_ERROR}:
        meaning, advice = "CUDA cannot be used", _why_no_cuda()
    return f"{call}: status {status} ({known.name}): {meaning}. {advice}"


_MAKING = {"nvjpegCreateEx", "nvjpegCreateExV2", "nvjpegCreateSimple", "nvjpegDecoderCreate"}


def _why_no_engines() -> str:
    """Tell a GPU without engines from a container without the part of the driver that reaches them."""
    try:
        ctypes.CDLL("libnvcuvid.so.1")
    except OSError:
        return (
            "The driver's libnvcuvid.so.1 was not found, without which nvJPEG does not reach the engines: start the "
            "container with NVIDIA_DRIVER_CAPABILITIES=compute,utility,video. Or use the backend GPU_HYBRID"
        )
    return (
        "The driver's libnvcuvid.so.1 is there, so the GPU has no JPEG engines (A100, A30, Ada, Hopper and newer "
        "data-centre GPUs have them; T4, V100, A10 do not): use the backend GPU_HYBRID"
    )


def _why_no_cuda() -> str:
    """Tell a missing driver from one that is too old."""
    driver = driver_version()
    if driver is None:
        return "No NVIDIA driver answers (libcuda.so.1): see whether nvidia-smi shows a GPU"
    return (
        f"The driver is for CUDA {driver[0]}.{driver[1]}; nvJPEG 13 needs one for CUDA 13 (580 or newer), nvJPEG 12 "
        "one for CUDA 12 (525 or newer). See whether nvidia-smi shows a GPU, and that CUDA_VISIBLE_DEVICES names one"
    )


class Calls:
    """The functions of a loaded library.

    They are looked up when they are first called: a version of nvJPEG that lacks one can be used for the others.

    Parameters
    ----------
    library : CDLL
        The library. Its calls let other Python threads run.
    name : str
        What it is, for errors.
    """

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.name = name
        self._library = library
        self._functions: dict[str, Any] = {}

    def __call__(self, function: str, *arguments: Any) -> None:
        """Call a function.

        Parameters
        ----------
        function : str
            Its name.
        *arguments
            As its prototype says.

        Raises
        ------
        NvjpegError
            If it returns another status than success, or is missing in this version.
        """
        status = self.status(function, *arguments)
        if status:
            raise NvjpegError(f"{explain(function, status)} ({self.name})", function, status)

    def status(self, function: str, *arguments: Any) -> int:
        """Call a function and give its status."""
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
    """Something that nvJPEG made; closed by `close`, or when nobody refers to it any more.

    Belongs to the device that was current when it was made, which has to be current again when it is closed. When the
    interpreter ends it is left alone: CUDA may be gone by then, and destroying it would crash.

    Parameters
    ----------
    calls : Calls
        The library.
    create, destroy : str
        The functions that make and destroy it.
    *arguments
        Those of `create`, before the pointer to the result.
    parent : Resource, optional
        What it was made of, which stays as long as it does; closing that closes this, too.
    keep : object
        Something else that has to stay as long as it does.

    Attributes
    ----------
    calls : Calls
        nvJPEG.
    children : WeakSet of Resource
        What was made of it.
    """

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
        self.children: weakref.WeakSet[Resource] = weakref.WeakSet()
        made = c_void_p()
        calls(create, *arguments, byref(made))
        if not made.value:
            raise NvjpegError(f"{create} reported success and made nothing ({calls.name})", create, 0)
        self._destroy = destroy
        # The parent is among the arguments, so that it cannot go first.
        self._finalizer = weakref.finalize(self, _give_back, calls, destroy, made.value, os.getpid(), (parent, keep))
        self._finalizer.atexit = False
        self._pointer = made.value
        if parent is not None:
            parent.children.add(self)

    @property
    def pointer(self) -> int:
        """The address by which nvJPEG knows it."""
        if not self._finalizer.alive:
            raise NvjpegError(f"This {type(self).__name__} was closed already and cannot be used any more")
        return self._pointer

    @property
    def is_closed(self) -> bool:
        """Whether it was given back."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Give it back to nvJPEG, after all that was made of it. Nothing of it may be in use; may be called twice."""
        for child in list(self.children):
            child.close()
        status = self._finalizer()
        if status:
            raise NvjpegError(f"{explain(self._destroy, status)} ({self.calls.name})", self._destroy, status)


def _give_back(calls: Calls, destroy: str, pointer: int, process: int, _kept: object) -> int:
    """Destroy it, unless this is a forked child: it has a copy of the pointer and no CUDA."""
    return calls.status(destroy, pointer) if os.getpid() == process else 0


def address_of(array: object, dtype: np.dtype[Any], count: int, name: str) -> int:
    """Give the address of an array that nvJPEG will read `count` entries of.

    Parameters
    ----------
    array : ndarray, shape (count,)
        The array.
    dtype : dtype
        What nvJPEG takes its entries for.
    count : int
        How many nvJPEG will read.
    name : str
        What it is called, for the error.

    Returns
    -------
    int
        Address of the first entry, good while the array lives.

    Raises
    ------
    OptionError
        If nvJPEG would read something else than was meant.
    """
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != (count,):
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise OptionError(f"{name}: {found}; expected an ndarray of {dtype} and shape ({count},)")
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise OptionError(
            f"{name}: its entries do not lie one after the other in memory (strides {array.strides}); "
            "take numpy.ascontiguousarray of it"
        )
    return int(array.ctypes.data)
