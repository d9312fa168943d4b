"""NVRTC: NVIDIA's compiler for CUDA C++ as a library; it needs neither a GPU nor a CUDA toolkit."""

from __future__ import annotations

import ctypes
import re
from contextlib import suppress
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpubeton.errors import KernelError
from gpubeton.gpu import libraries
from gpubeton.gpu.libraries import Place, driver_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Names the file, and then no other is tried.
VARIABLE = "GPUBETON_NVRTC"

#: Options of every kernel. Kernels name each fused multiply-add and need denormal numbers, so that host and device
#: give the same bits.
OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")

# The functions of NVRTC that are used. Each function returns a status, 0 for success.
_PROTOTYPES: dict[str, list[Any]] = {
    "nvrtcVersion": [POINTER(c_int), POINTER(c_int)],
    "nvrtcGetNumSupportedArchs": [POINTER(c_int)],
    "nvrtcGetSupportedArchs": [POINTER(c_int)],
    "nvrtcCreateProgram": [
        POINTER(c_void_p), c_char_p, c_char_p, c_int, POINTER(c_char_p), POINTER(c_char_p),
    ],
    "nvrtcCompileProgram": [c_void_p, c_int, POINTER(c_char_p)],
    "nvrtcGetProgramLogSize": [c_void_p, POINTER(c_size_t)],
    "nvrtcGetProgramLog": [c_void_p, c_char_p],
    "nvrtcGetCUBINSize": [c_void_p, POINTER(c_size_t)],
    "nvrtcGetCUBIN": [c_void_p, c_char_p],
    "nvrtcGetPTXSize": [c_void_p, POINTER(c_size_t)],
    "nvrtcGetPTX": [c_void_p, c_char_p],
    "nvrtcDestroyProgram": [POINTER(c_void_p)],
}  # fmt: skip

_COMPILATION_FAILED = 6
_ARCHITECTURE = re.compile(r"sm_(\d+)")


class Compiled(NamedTuple):
    """A compiled kernel."""

    code: bytes
    """A cubin; PTX where the architecture is newer than the compiler. Drivers load either."""
    log: str
    """Warnings, or nothing."""


class Nvrtc:
    """A loaded NVRTC. Made by `load`."""

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        self.path = path
        self._library = library
        self._load_builtins()
        major, minor = c_int(), c_int()
        self._call("nvrtcVersion", byref(major), byref(minor))
        self.version = (major.value, minor.value)  # e.g. (13, 0)

    @property
    def architectures(self) -> list[int]:
        """Architectures that it compiles for, in ascending order: 90 for sm_90."""
        number = c_int()
        self._call("nvrtcGetNumSupportedArchs", byref(number))
        found = (c_int * number.value)()
        self._call("nvrtcGetSupportedArchs", found)
        return sorted(found)

    def compile(self, source: str, name: str, architecture: str, options: Sequence[str] = OPTIONS) -> Compiled:
        """Compile CUDA C++ without includes; a KernelError has the compiler's messages, which name our files."""
        target, is_binary = self._target(architecture)
        program = c_void_p()
        self._call("nvrtcCreateProgram", byref(program), source.encode(), f"{name}.cu".encode(), 0, None, None)
        try:
            words = [f"--gpu-architecture={target}".encode(), *(option.encode() for option in options)]
            status = self._function("nvrtcCompileProgram")(program, len(words), (c_char_p * len(words))(*words))
            log = self._text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
            if status == _COMPILATION_FAILED:
                raise KernelError(f"{self} could not compile the kernel {name} for {architecture}:\n{log}")
            self._check("nvrtcCompileProgram", status, log)
            return Compiled(self._text(program, "CUBIN" if is_binary else "PTX"), log)
        finally:
            self._call("nvrtcDestroyProgram", byref(program))

    def _target(self, architecture: str) -> tuple[str, bool]:
        """Return the target, and whether it gives a cubin: GPUs newer than the compiler get PTX."""
        match = _ARCHITECTURE.fullmatch(architecture)
        wanted, known = int(match[1]) if match else 0, self.architectures
        if wanted in known:
            return architecture, True
        older = [number for number in known if number < wanted]
        if not older:
            raise KernelError(
                f"{self} does not compile for {architecture}, but for sm_{', sm_'.join(map(str, known))}. "
                "Older GPUs need an older one: pip install 'gpubeton[cuda12]' goes back to sm_50."
            )
        return f"compute_{older[-1]}", False

    def __str__(self) -> str:
        return f"NVRTC {self.version[0]}.{self.version[1]} ({self.path})"

    def _load_builtins(self) -> None:
        """Load the library that NVRTC looks for by name, and would not find in a wheel's folder."""
        for file in sorted(Path(self.path).parent.glob("libnvrtc-builtins.so*")):
            with suppress(OSError):  # NVRTC's own message has more
                ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)

    def _function(self, name: str) -> Callable[..., int]:
        function = getattr(self._library, name)
        function.argtypes = _PROTOTYPES[name]
        function.restype = c_int
        return function  # type: ignore[no-any-return]  # ctypes makes it when asked for

    def _call(self, name: str, *arguments: Any) -> None:
        self._check(name, self._function(name)(*arguments), "")

    def _check(self, name: str, status: int, log: str) -> None:
        if status != 0:
            explain = self._library.nvrtcGetErrorString
            explain.restype = c_char_p
            words = (explain(c_int(status)) or b"").decode(errors="replace")
            raise KernelError(f"{name} failed with status {status} ({words}); NVRTC is {self.path}.\n{log}".rstrip())

    def _text(self, program: c_void_p, what: str) -> bytes:
        size = c_size_t()
        self._call(f"nvrtcGet{what}Size", program, byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw


@cache
def load(path: str | None = None) -> Nvrtc:
    """Load NVRTC from the path, or from the first usable place; the same object each time."""
    library, place = libraries.load(
        "nvrtc",
        path=path,
        variable=VARIABLE,
        install=libraries.INSTALL,
        check=_why_not,
    )
    return Nvrtc(library, place.path)


def _why_not(library: ctypes.CDLL, place: Place) -> str:
    """Return why a library cannot be used: not NVRTC, or for a newer CUDA than the driver's; "" if it can."""
    major, minor = c_int(), c_int()
    try:
        status = library.nvrtcVersion(byref(major), byref(minor))
    except AttributeError:
        return "not NVRTC: it has no function nvrtcVersion"
    if status != 0:
        return f"nvrtcVersion does not give its version (status {status})"
    driver = driver_version()
    if driver is not None and major.value > driver[0] and not place.is_explicit:
        return f"it is for CUDA {major.value}, and the driver for CUDA {driver[0]}.{driver[1]}"
    return ""
