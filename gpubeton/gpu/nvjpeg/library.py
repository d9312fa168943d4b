"""Library: the nvJPEG that is used, wherever it was found."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int
from typing import TYPE_CHECKING

from gpubeton.errors import NvjpegError
from gpubeton.gpu import libraries
from gpubeton.gpu.libraries import Place, driver_version
from gpubeton.gpu.nvjpeg.calls import Calls
from gpubeton.gpu.nvjpeg.enumerations import Backend, Flags
from gpubeton.gpu.nvjpeg.handle import Handle
from gpubeton.gpu.nvjpeg.prototypes import bind

if TYPE_CHECKING:
    from gpubeton.gpu.nvjpeg.allocators import DeviceAllocator, PinnedAllocator, StreamAllocator

#: Names the file, and then no other is tried.
VARIABLE = "GPUBETON_NVJPEG"


class Library:
    """A loaded nvJPEG. Made by `load`.

    Parameters
    ----------
    library : CDLL
        The library. Its calls let other Python threads run.
    path : str
        Its file.

    Attributes
    ----------
    path : str
        Its file.
    version : tuple of int
        Major, minor and patch of nvJPEG, e.g. (13, 3, 2).
    """

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        self.path = path
        self.version = _three_numbers(library, "nvjpegGetProperty")
        self._library = library
        self.calls = Calls(library, f"nvJPEG {'.'.join(map(str, self.version))}, {path}")

    @property
    def cuda_version(self) -> tuple[int, int, int]:
        """Version of the CUDA that it was built with."""
        return _three_numbers(self._library, "nvjpegGetCudartProperty")

    def create(
        self,
        backend: Backend,
        flags: Flags = Flags.NONE,
        *,
        device_allocator: DeviceAllocator | StreamAllocator | None = None,
        pinned_allocator: PinnedAllocator | StreamAllocator | None = None,
    ) -> Handle:
        """Start nvJPEG on the current device.

        Parameters
        ----------
        backend : Backend
            What decodes.
        flags : Flags
            What to do differently.
        device_allocator, pinned_allocator : optional
            Where memory comes from; nvJPEG's own by default.

        Returns
        -------
        Handle
            Of which states and the rest are made.

        Raises
        ------
        NvjpegError
            If there is no GPU, or it cannot do what the backend needs; says which.
        """
        return Handle(self.calls, backend, flags, device_allocator, pinned_allocator)

    def create_simple(self) -> Handle:
        """Start nvJPEG on the current device with a backend of its own choice."""
        return Handle(self.calls, None)


def load(path: str | None = None) -> Library:
    """Load nvJPEG.

    Parameters
    ----------
    path : str, optional
        Exactly this file. By default the first that can be used of: the one that the environment variable
        GPUBETON_NVJPEG names, cuda-pathfinder's, NVIDIA's wheels, the system's, torchvision's copy.

    Returns
    -------
    Library
        It. No GPU is needed so far.

    Raises
    ------
    LibraryError
        If there is none; with every place and what was wrong there.
    """
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
    """Give the file of the nvJPEG that `load` takes; raises LibraryError as it does."""
    return load().path


def _why_not(library: ctypes.CDLL, place: Place) -> str:
    """Say why a library cannot be used: not nvJPEG, or for a CUDA that the driver does not know yet."""
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
