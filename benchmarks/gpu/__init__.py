"""GPU benchmarks: nvJPEG alone, gpubeton, and other loaders, all on the same bytes."""

from __future__ import annotations
