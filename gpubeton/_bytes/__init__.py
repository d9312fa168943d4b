"""The bytes of files: on this machine, and in object stores.

The tools, `gpubeton.dataset` and `gpubeton.cli`, import these names, and none of the modules.
"""

from __future__ import annotations

from collections.abc import Callable

from gpubeton._bytes.byte_source import ByteSource
from gpubeton._bytes.file_list import FileListIdentity
from gpubeton._bytes.local_file import open_descriptor, read_at, temporary_folder
from gpubeton._bytes.open_files import fill_cache, find_identity, is_folder, list_shards, open_bytes, source_type
from gpubeton._bytes.store_client import RemoteOptions

Progress = Callable[[int, int], None]
"""How long work reports: called from time to time with the units of work that are done, and with all of them."""

__all__ = [
    "ByteSource",
    "FileListIdentity",
    "Progress",
    "RemoteOptions",
    "fill_cache",
    "find_identity",
    "is_folder",
    "list_shards",
    "open_bytes",
    "open_descriptor",
    "read_at",
    "source_type",
    "temporary_folder",
]
