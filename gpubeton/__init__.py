"""Training batches from FFCV's ``.beton`` files, decoded and augmented in one pass.

Importing the package costs nothing: what needs torch or numba is imported
when it is used, from `gpubeton.loader`, `gpubeton.writer`, `gpubeton.fields`
and `gpubeton.transforms`.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
