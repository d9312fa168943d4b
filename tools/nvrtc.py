"""NVRTC, NVIDIA's compiler for CUDA C++, through NVIDIA's binding: for every architecture, without a GPU."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from gpubeton._gpu.kernels import OPTIONS

__all__ = ["OPTIONS", "CompileError", "Compiled", "Nvrtc", "load"]


class CompileError(RuntimeError):
    """A kernel that could not be compiled; the text is what the compiler says."""


class Compiled(NamedTuple):
    """A compiled kernel."""

    code: bytes
    """A cubin, or PTX for ``compute_90``."""
    log: str
    """Warnings, and what ``--ptxas-options=-v`` prints."""


class Nvrtc:
    """The compiler. Made by `load`."""

    def __init__(self) -> None:
        from cuda.bindings import nvrtc

        self._nvrtc: Any = nvrtc
        self.version: tuple[int, int] = self._call("nvrtcVersion")
        self.architectures: list[int] = sorted(self._call("nvrtcGetSupportedArchs")[0])  # 90 for sm_90

    def compile(self, source: str, name: str, architecture: str, options: tuple[str, ...] = OPTIONS) -> Compiled:
        """Compile CUDA C++ without includes for sm_90 or compute_90.

        Raises
        ------
        CompileError
            If it is wrong, or if the compiler does not know the architecture or an option.
        """
        (program,) = self._call("nvrtcCreateProgram", source.encode(), f"{name}.cu".encode(), 0, None, None)
        try:
            words = [f"--gpu-architecture={architecture}".encode(), *(option.encode() for option in options)]
            (status,) = self._nvrtc.nvrtcCompileProgram(program, len(words), words)
            log = self._text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
            if status:
                raise CompileError(f"{name} for {architecture}: {status.name}\n{log}")
            return Compiled(self._text(program, "CUBIN" if architecture.startswith("sm_") else "PTX"), log)
        finally:
            self._call("nvrtcDestroyProgram", program)

    def _text(self, program: Any, what: str) -> bytes:
        (size,) = self._call(f"nvrtcGet{what}Size", program)
        # The binding writes into bytes; Python shares those of length 0 and 1.
        text = bytes(size + 2)
        self._call(f"nvrtcGet{what}", program, text)
        return text[:size]

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *values = getattr(self._nvrtc, name)(*arguments)
        if status:
            raise CompileError(f"{name}: {status.name}")
        return tuple(values)


@cache
def load() -> Nvrtc:
    """Load the compiler.

    Returns
    -------
    Nvrtc
        The same object each time.

    Raises
    ------
    ImportError
        Without NVIDIA's binding: ``pip install cuda-bindings``.
    RuntimeError
        Without the library: ``pip install nvidia-cuda-nvrtc``.
    """
    return Nvrtc()
