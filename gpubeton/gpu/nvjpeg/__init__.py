"""Binding of nvJPEG, NVIDIA's JPEG decoder, as far as batches need it.

`load` finds the library, `Library.create` starts it with a backend, and the `Handle` makes states, which decode batches
in two calls without an object per image. Every status is checked, and errors name a remedy.
"""

from __future__ import annotations

from gpubeton.gpu.nvjpeg.c_types import IMAGE, Backend, ChromaSubsampling, Flags, OutputFormat
from gpubeton.gpu.nvjpeg.checked_calls import Status
from gpubeton.gpu.nvjpeg.library import Handle, JpegHeader, Library, State, load

__all__ = [
    "IMAGE",
    "Backend",
    "ChromaSubsampling",
    "Flags",
    "Handle",
    "JpegHeader",
    "Library",
    "OutputFormat",
    "State",
    "Status",
    "load",
]
