"""Functions that decoders written for FFCV call, plain or compiled by `Compiler.compile`."""

from __future__ import annotations

from gpubeton._cpu.user_calls import imdecode, memcpy, resize_crop

__all__ = ["imdecode", "memcpy", "resize_crop"]
