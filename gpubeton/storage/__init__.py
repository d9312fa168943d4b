"""Storage: how the bytes of ``.beton`` files come into memory, mapped or read by threads."""

from __future__ import annotations

from gpubeton.storage.fetch import Fetch, Storage
from gpubeton.storage.mapped import MappedStorage
from gpubeton.storage.reads import ReadStorage

__all__ = ["Fetch", "MappedStorage", "ReadStorage", "Storage"]
