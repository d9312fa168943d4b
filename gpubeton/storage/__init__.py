"""Storage: how the bytes of `.beton` files come into memory, mapped, read or loaded ahead by threads."""

from __future__ import annotations

from gpubeton.storage.mapped_storage import MAX_GAP, MappedStorage
from gpubeton.storage.page_storage import PageStorage
from gpubeton.storage.protocols import Fetch, Storage
from gpubeton.storage.read_storage import MAX_READ, ReadStorage
from gpubeton.storage.staging import STEP, Buffer, Staging, allocate_block

__all__ = [
    "MAX_GAP",
    "MAX_READ",
    "STEP",
    "Buffer",
    "Fetch",
    "MappedStorage",
    "PageStorage",
    "ReadStorage",
    "Staging",
    "Storage",
    "allocate_block",
]
