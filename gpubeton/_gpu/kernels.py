"""Kernels: CuPy compiles the sources of kernels/ for the active GPU; their machine code is kept on disk."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from gpubeton._gpu.libraries import install_cuda
from gpubeton._machine import install
from gpubeton.errors import KernelError, LibraryError

#: Options of every kernel. Kernels name each fused multiply-add and need denormal numbers, so that host and device
#: give the same bits.
OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")

_SIGNED = "-signed"

SIGNED_KERNELS = {
    kernel: f"{kernel}{_SIGNED}" for kernel in ("jpeg_across", "jpeg_down", "jpeg_taps", "resample", "taps")
}
"""The kernels that resample with signed weights, those of bicubic, by the name of the others."""

# Where the kernels are: in an installed package, or in a checkout.
FOLDERS = (Path(__file__).resolve().parents[1] / "_kernels", Path(__file__).resolve().parents[2] / "kernels")

_INCLUDE = re.compile(r'#include "([\w.]+)"')
_ONCE = "#pragma once"


def folder(folders: tuple[Path, ...] = FOLDERS) -> Path:
    """Return the folder of the kernels, of the package or of the checkout."""
    for path in folders:
        if path.is_dir():
            return path
    raise KernelError(
        f"The CUDA kernels were not found: none of {', '.join(map(str, folders))} is a folder. "
        "The installation is incomplete; install gpubeton again."
    )


def kernel_names(folders: tuple[Path, ...] = FOLDERS) -> list[str]:
    """Return the name of every kernel, in alphabetical order."""
    return sorted(path.stem for path in folder(folders).glob("*.cu"))


def function_of(kernel: str) -> str:
    """Return the name of a kernel's function."""
    return kernel.removesuffix(_SIGNED)


@cache
def source_of(kernel: str, folders: tuple[Path, ...] = FOLDERS) -> str:
    """Return the source of a kernel with the files that it includes, each once; ``#line`` names our files."""
    # One text: a compiler's cache has to see a change of a header, too, and CuPy's looks at nothing but the text.
    name = function_of(kernel)
    if name not in kernel_names(folders):
        raise KernelError(f"There is no kernel {name!r}; {folder(folders)} has {', '.join(kernel_names(folders))}.")
    define = "" if name == kernel else "#define SIGNED_WEIGHTS\n"
    return define + "".join(_source_lines(f"{name}.cu", set(), folder(folders)))


def _source_lines(name: str, seen: set[str], folder: Path) -> list[str]:
    """Return a file's lines, with included files in place of ``#include``."""
    seen.add(name)
    path = folder / name
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise KernelError(f"{path}: {error.strerror}. A kernel includes it; install gpubeton again.") from error
    lines = [f'#line 1 "kernels/{name}"\n']
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        include = _INCLUDE.match(line)
        if include is None:
            lines.append(line if line.strip() != _ONCE else "\n")
            continue
        if include[1] not in seen:
            lines += _source_lines(include[1], seen, folder)
        lines.append(f'#line {number + 1} "kernels/{name}"\n')
    return lines


#: Names the folder of the cache.
VARIABLE = "GPUBETON_CACHE_DIR"

# The format of entries, and the bytes of their digest.
_VERSION = 2
_DIGEST = 32


def cache_folder() -> Path:
    """Return the folder of the cache: GPUBETON_CACHE_DIR, or ``gpubeton/kernels`` in the user's cache."""
    named = os.environ.get(VARIABLE, "")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "gpubeton" / "kernels"


def load_machine_code(cupy: Any, kernel: str, architecture: str) -> bytes:
    """Return a kernel's machine code for the active GPU, such as an "sm_90": from the cache, else from the compiler."""
    # An entry is named by a hash of all that decides its code, and holds the SHA-256 of the code, then the code. An
    # unreadable or damaged entry only costs time.
    try:
        version = cupy.cuda.nvrtc.getVersion()  # loads the library
    except (RuntimeError, OSError) as error:
        raise LibraryError(f"CUDA's compiler NVRTC cannot be used: {error}. Try {install_cuda()}") from error
    source = source_of(kernel)
    parts = [_VERSION, kernel, architecture, version, cupy.__version__, OPTIONS, source]
    name = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
    try:
        entry = cache_folder() / f"{kernel}-{architecture}-{name[:32]}"
    except RuntimeError:  # a user without a home
        return _compile(cupy, kernel, architecture, source)
    with suppress(OSError):
        content = entry.read_bytes()
        if len(content) > _DIGEST and hashlib.sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
            return content[_DIGEST:]
    code = _compile(cupy, kernel, architecture, source)
    with suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_bytes(hashlib.sha256(code).digest() + code)  # a part of it counts as damaged
    return code


def _compile(cupy: Any, kernel: str, architecture: str, source: str) -> bytes:
    """Compile a kernel: a cubin, or PTX if the GPU is newer than the compiler. Drivers load either."""
    # Not `cupy.RawModule(code=...)`, which adds -ftz=true after our options: see docs/decisions/kernel_compiler.md.
    compiler = cupy.cuda.compiler
    try:
        code, _ = compiler.compile_using_nvrtc(source, OPTIONS, cache_in_memory=True)
    except compiler.CompileException as error:
        major, minor = cupy.cuda.nvrtc.getVersion()
        log = str(error).strip()
        older = f"\nOlder GPUs need an older NVRTC: {install('cuda12')} goes back to sm_50." * ("-arch" in log)
        raise KernelError(
            f"NVRTC {major}.{minor} could not compile the kernel {kernel} for {architecture}:\n{log}{older}"
        ) from error
    return bytes(code)
