"""NVRTC: NVIDIA's compiler for CUDA C++ as a library; it needs neither a GPU nor a CUDA toolkit."""

from __future__ import annotations

import ctypes
import re
from contextlib import suppress
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpubeton._gpu import libraries
from gpubeton._machine import install
from gpubeton.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Names the file, and then no other is tried.
VARIABLE = "GPUBETON_NVRTC"

#: Options of every kernel. Kernels name each fused multiply-add and need denormal numbers, so that host and device
#: give the same bits.
OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")

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

    def __init__(self, library: ctypes.CDLL, path: str, version: tuple[int, ...]) -> None:
        self.path = path
        self.version = version  # e.g. (13, 0)
        self._library = library
        # The library that NVRTC looks for by name, and would not find in a wheel's folder.
        for file in sorted(Path(path).parent.glob("libnvrtc-builtins.so*")):
            with suppress(OSError):  # NVRTC's own message has more
                ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)

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
            status = self._library.nvrtcCompileProgram(program, len(words), (c_char_p * len(words))(*words))
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
                f"Older GPUs need an older one: {install('cuda12')} goes back to sm_50."
            )
        return f"compute_{older[-1]}", False

    def __str__(self) -> str:
        return f"NVRTC {self.version[0]}.{self.version[1]} ({self.path})"

    def _call(self, name: str, *arguments: Any) -> None:
        self._check(name, getattr(self._library, name)(*arguments), "")

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
    return Nvrtc(*libraries.load("nvrtc", _read_version, path=path, variable=VARIABLE))


def _read_version(library: ctypes.CDLL) -> tuple[int, int]:
    major, minor = c_int(), c_int()
    if status := library.nvrtcVersion(byref(major), byref(minor)):
        raise OSError(f"nvrtcVersion does not give its version (status {status})")
    return major.value, minor.value
