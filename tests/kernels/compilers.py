"""The CUDA compilers of this machine."""

from __future__ import annotations

from functools import cache

from gpubeton._gpu import libraries, nvrtc
from gpubeton.errors import KernelError, LibraryError


@cache
def compilers():
    """Every NVRTC that can be found, one for each version: newer and older ones have to compile the kernels."""
    found = {}
    for place in libraries.find("nvrtc"):
        if place.path:
            try:
                compiler = nvrtc.load(place.path)
            except (LibraryError, KernelError):
                continue
            found.setdefault(compiler.version, compiler)
    return [found[version] for version in sorted(found)]
