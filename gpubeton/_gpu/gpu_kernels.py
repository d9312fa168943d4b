"""Kernels: the sources of kernels/, and the cache of machine code."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

from gpubeton._gpu import nvrtc
from gpubeton.errors import KernelError


class KernelVariant(str):
    """Name of a kernel with other source before its own; `Device.launch` takes it as any name."""

    __slots__ = ("kernel", "text")

    kernel: str  # of `kernels/`, and its function
    text: str  # source to put before the kernel's

    def __new__(cls, kernel: str, text: str, name: str) -> KernelVariant:
        variant = super().__new__(cls, f"{kernel}-{name}")
        variant.kernel, variant.text = kernel, text
        return variant


SIGNED_KERNELS = {
    kernel: KernelVariant(kernel, "#define SIGNED_WEIGHTS\n", "signed")
    for kernel in ("jpeg_across", "jpeg_down", "jpeg_taps", "resample", "taps")
}
"""The kernels that resample with signed weights, those of bicubic, by the name of the others."""


# Where the kernels are: in an installed package, or in a checkout.
PLACES = (Path(__file__).resolve().parents[1] / "_kernels", Path(__file__).resolve().parents[2] / "kernels")

_INCLUDE = re.compile(r'#include "([\w.]+)"')
_ONCE = "#pragma once"


def folder(places: tuple[Path, ...] = PLACES) -> Path:
    """Return the folder of the kernels, of the package or of the checkout."""
    for place in places:
        if place.is_dir():
            return place
    raise KernelError(
        f"The CUDA kernels were not found: none of {', '.join(map(str, places))} is a folder. "
        "The installation is incomplete; install gpubeton again."
    )


def kernel_names(places: tuple[Path, ...] = PLACES) -> list[str]:
    """Return the name of every kernel, in alphabetical order."""
    return sorted(path.stem for path in folder(places).glob("*.cu"))


def function_of(kernel: str) -> str:
    """Return the name of a kernel's function."""
    return kernel.kernel if isinstance(kernel, KernelVariant) else kernel


@cache
def source_of(kernel: str, places: tuple[Path, ...] = PLACES) -> str:
    """Return the source of a kernel with the files that it includes, each once; ``#line`` names our files."""
    if isinstance(kernel, KernelVariant):
        return kernel.text + source_of(kernel.kernel, places)
    if kernel not in kernel_names(places):
        raise KernelError(f"There is no kernel {kernel!r}; {folder(places)} has {', '.join(kernel_names(places))}.")
    return "".join(_source_lines(f"{kernel}.cu", set(), folder(places)))


def _source_lines(name: str, seen: set[str], place: Path) -> list[str]:
    """Return a file's lines, with included files in place of ``#include``."""
    seen.add(name)
    path = place / name
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise KernelError(f"{path}: {error.strerror}. A kernel includes it; install gpubeton again.") from error
    made = [f'#line 1 "kernels/{name}"\n']
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        include = _INCLUDE.match(line)
        if include is None:
            made.append(line if line.strip() != _ONCE else "\n")
            continue
        if include[1] not in seen:
            made += _source_lines(include[1], seen, place)
        made.append(f'#line {number + 1} "kernels/{name}"\n')
    return made


#: Names the folder of the cache.
VARIABLE = "GPUBETON_CACHE_DIR"

# The format of entries, and the bytes of their digest.
_VERSION = 1
_DIGEST = 32


def cache_folder() -> Path:
    """Return the folder of the cache: GPUBETON_CACHE_DIR, or ``gpubeton/kernels`` in the user's cache."""
    named = os.environ.get(VARIABLE, "")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "gpubeton" / "kernels"


def load_machine_code(kernel: str, architecture: str, options: tuple[str, ...] = nvrtc.OPTIONS) -> bytes:
    """Return a kernel's machine code for an architecture such as "sm_90": from the cache, else from the compiler."""
    # An entry is named by a hash of all that decides its code, and holds the SHA-256 of the code, then the code. An
    # unreadable or damaged entry only costs time.
    source, compiler = source_of(kernel), nvrtc.load()
    parts = [_VERSION, kernel, architecture, compiler.version, options, source]
    name = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
    try:
        entry = cache_folder() / f"{kernel}-{architecture}-{name[:32]}"
    except RuntimeError:  # a user without a home
        return compiler.compile(source, kernel, architecture, options).code
    with suppress(OSError):
        content = entry.read_bytes()
        if len(content) > _DIGEST and hashlib.sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
            return content[_DIGEST:]
    code = compiler.compile(source, kernel, architecture, options).code
    with suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_bytes(hashlib.sha256(code).digest() + code)  # a part of it counts as damaged
    return code
