"""Find the JPEG engines of the GPU, and the library of the driver that opens them."""

from __future__ import annotations

import ctypes
from typing import Any

from benchmarks.gpu.hazards.finding import Finding
from benchmarks.gpu.nvjpeg_steps import Backend, cuda_version
from benchmarks.gpu.target import Target
from gpubeton.errors import DeviceError
from gpubeton.gpu.nvjpeg import Handle

__all__ = ["are_the_engines_there"]


def are_the_engines_there(target: Target) -> Finding:
    """Check which backends start, how many engines there are, and whether the driver's decoding library exists."""
    figures: dict[str, Any] = {"nvjpeg": target.library.version, "cuda": cuda_version(target.library)}
    try:
        ctypes.CDLL("libnvcuvid.so.1")
        figures["libnvcuvid"] = "found"
    except OSError as error:
        figures["libnvcuvid"] = str(error)
    for backend in Backend:
        try:
            handle = Handle(target.library, backend)
        except DeviceError as error:
            figures[backend.name] = str(error)
            continue
        engines, cores = handle.hardware_engines()
        figures[backend.name] = {"engines": engines, "cores_of_each": cores}
        handle.close()
    found = figures[Backend.HARDWARE.name]
    is_there = isinstance(found, dict) and found["engines"] > 0
    verdict = f"{found['engines']} engines of {found['cores_of_each']} cores" if is_there else f"no engines: {found}"
    return Finding("engines", "Can the JPEG engines be reached?", verdict, figures, is_there)
