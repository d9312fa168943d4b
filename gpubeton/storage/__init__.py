"""Storage: how the bytes of `.beton` files come into memory, mapped, read or loaded ahead by threads."""

from __future__ import annotations

from gpubeton.storage.mapped_storage import MAX_GAP, MappedStorage
from gpubeton.storage.page_storage import PageStorage
from gpubeton.storage.protocols import Fetch, Storage
from gpubeton.storage.read_storage import MAX_READ, ReadStorage

__all__ = [
    "MAX_GAP",
    "MAX_READ",
    "Fetch",
    "MappedStorage",
    "PageStorage",
    "ReadStorage",
    "Storage",
]
