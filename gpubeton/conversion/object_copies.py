"""Copies of objects of a store on the disk of this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from gpubeton.files.object_store import list_objects
from gpubeton.files.open_files import open_bytes

if TYPE_CHECKING:
    from gpubeton.files.remote_options import RemoteOptions

#: Bytes that are copied at a time.
_BLOCK = 64 << 20


def list_urls(prefix: str, remote: RemoteOptions | None) -> list[str]:
    """List the objects below a prefix."""
    return sorted(url for url, _, _ in list_objects(prefix, remote, is_deep=True))


def copy_object(url: str, folder: Path, remote: RemoteOptions | None) -> Path:
    """Copy an object to a folder, unless this version of it is there; the ending of its name stays."""
    with open_bytes(url, remote=remote) as source:
        version = f"{url} {source.size} {source.identity()}"
        copy = folder / (hashlib.sha256(version.encode()).hexdigest()[:32] + PurePosixPath(url).suffix)
        # After a reboot a copy may be shorter than it was.
        if not copy.exists() or copy.stat().st_size != source.size:
            unfinished = copy.with_suffix(f".unfinished{copy.suffix}")
            with unfinished.open("wb") as file:
                for start in range(0, source.size, _BLOCK):
                    file.write(source.load(start, min(_BLOCK, source.size - start)))
            unfinished.replace(copy)
    return copy
