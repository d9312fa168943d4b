"""Training batches from FFCV's ``.beton`` files, decoded and augmented in one pass.

Importing the package costs nothing: what needs torch or numba is imported
when it is used, from `gpubeton.loader`, `gpubeton.writer`, `gpubeton.fields`
and `gpubeton.transforms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpubeton.loader import Loader
    from gpubeton.writer import DatasetWriter

__all__ = ["DatasetWriter", "Loader", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "Loader":
        from gpubeton.loader import Loader

        return Loader
    if name == "DatasetWriter":
        from gpubeton.writer import DatasetWriter

        return DatasetWriter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
