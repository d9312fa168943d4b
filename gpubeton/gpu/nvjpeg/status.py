"""Status: what nvJPEG says after every call, what it means and what to try."""

from __future__ import annotations

import ctypes
from enum import IntEnum

from gpubeton.gpu.libraries import driver_version


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
