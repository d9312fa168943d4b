"""Kernel cache: compiled kernels on disk, so that each is compiled once for each machine.

An entry is a file: the SHA-256 of the code, then the code. Its name is a hash of all that decides the code, so that an
entry never becomes wrong; one that is damaged is made again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from gpubeton.gpu import nvrtc
from gpubeton.gpu.kernel_sources import source_of

#: Names the folder of the cache.
VARIABLE = "GPUBETON_CACHE_DIR"

# Of the entries themselves.
_VERSION = 1
_DIGEST = 32


def cache_folder() -> Path:
    """Give the folder of the cache.

    Returns
    -------
    Path
        What the environment variable GPUBETON_CACHE_DIR says; by default ``gpubeton/kernels`` in the user's cache.
    """
    named = os.environ.get(VARIABLE, "")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "gpubeton" / "kernels"


def load_cubin(kernel: str, architecture: str) -> bytes:
    """Give a kernel compiled for an architecture: from the cache, else from the compiler.

    A cache that cannot be read or written costs time, and nothing else.

    Parameters
    ----------
    kernel : str
        Its name.
    architecture : str
        What for, e.g. "sm_90".

    Returns
    -------
    bytes
        The code, as a driver loads it.

    Raises
    ------
    KernelError
        If there is no such kernel, or it could not be compiled.
    LibraryError
        If there is no compiler.
    """
    source, compiler = source_of(kernel), nvrtc.load()
    parts = [_VERSION, kernel, architecture, compiler.version, nvrtc.OPTIONS, source]
    name = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
    try:
        entry = cache_folder() / f"{kernel}-{architecture}-{name[:32]}"
    except RuntimeError:  # a user without a home
        return compiler.compile(source, kernel, architecture).code
    code = _read(entry)
    if code is None:
        code = compiler.compile(source, kernel, architecture).code
        _write(entry, code)
    return code


def _read(entry: Path) -> bytes | None:
    """The code in an entry; None if there is none, or it is damaged."""
    try:
        content = entry.read_bytes()
    except OSError:
        return None
    code = content[_DIGEST:]
    return code if code and hashlib.sha256(code).digest() == content[:_DIGEST] else None


def _write(entry: Path, code: bytes) -> None:
    """Write an entry; whoever reads it meanwhile sees all of it or none."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=entry.parent)
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(code).digest() + code)
        Path(temporary).replace(entry)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
