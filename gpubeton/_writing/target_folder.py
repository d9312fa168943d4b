"""TargetFolder: the folder or the prefix of an object store that the shards of a dataset are written to."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpubeton._bytes.object_store import head_object, list_objects, put_object
from gpubeton.errors import RemoteExistsError

if TYPE_CHECKING:
    from gpubeton._bytes.remote_options import RemoteOptions


class TargetFolder:
    """A folder, or the prefix of an object store; each file appears whole."""

    def __init__(self, name: str, remote: RemoteOptions | None = None) -> None:
        self.name = name.rstrip("/") + "/" if "://" in name else os.path.abspath(name)  # noqa: PTH100  a text
        self.remote = remote
        self.path = None if "://" in name else Path(self.name)  # None in an object store

    def place(self, name: str) -> str:
        """Give the URL or the path of a file."""
        return self.name + name if self.path is None else os.fspath(self.path / name)

    def names(self) -> set[str]:
        """List the files that are there."""
        if self.path is None:
            return {url.removeprefix(self.name) for url, *_ in list_objects(self.name, self.remote)}
        return {each.name for each in self.path.iterdir()} if self.path.is_dir() else set()

    def holds(self, name: str) -> bool:
        """Whether a file is there."""
        if self.path is not None:
            return (self.path / name).exists()
        try:
            head_object(self.place(name), self.remote)
        except FileNotFoundError:
            return False
        return True

    def upload(self, name: str, file: Path, *, overwrite: bool = False) -> None:
        """Put a file of this machine there, or leave the one that is there already."""
        with suppress(RemoteExistsError):
            put_object(self.place(name), file, self.remote, overwrite=overwrite)
