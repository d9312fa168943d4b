"""TargetFolder: the folder or the prefix of an object store that the shards of a dataset are written to."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from uuid import uuid4

from gpubeton.errors import RemoteExistsError
from gpubeton.files.local_file import temporary_folder
from gpubeton.files.object_store import head_object, list_objects, put_object
from gpubeton.files.open_files import open_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpubeton.files.remote_options import RemoteOptions

#: The plan of a conversion to shards, in its target.
PLAN_NAME = "conversion.json"


def is_url(name: str) -> bool:
    """Whether a name is that of an object in a store, and not a path."""
    return "://" in name


class TargetFolder:
    """A folder, or the prefix of an object store; each file appears whole."""

    def __init__(self, name: str, remote: RemoteOptions | None = None) -> None:
        self.name = name.rstrip("/") + "/" if is_url(name) else os.path.abspath(name)  # noqa: PTH100  a text
        self._remote = remote
        self.path = None if is_url(name) else Path(self.name)  # None in an object store

    def place(self, name: str) -> str:
        """Give the URL or the path of a file."""
        return self.name + name if self.path is None else os.fspath(self.path / name)

    def names(self) -> set[str]:
        """List the files that are there."""
        if self.path is None:
            return {url.removeprefix(self.name) for url, *_ in list_objects(self.name, self._remote)}
        return {each.name for each in self.path.iterdir()} if self.path.is_dir() else set()

    def holds(self, name: str) -> bool:
        """Whether a file is there."""
        if self.path is not None:
            return (self.path / name).exists()
        try:
            head_object(self.place(name), self._remote)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Read a part of a file, `FileNotFoundError` if it is not there."""
        with open_bytes(self.place(name), remote=self._remote) as source:
            return source.read_exactly(start, source.size - start if size is None else size)

    def write(self, name: str, content: bytes | Iterable[bytes]) -> None:
        """Write a file, over an older one, from its content or the parts of it."""
        parts = [content] if isinstance(content, bytes) else content
        if self.path is None:
            with TemporaryDirectory(dir=temporary_folder()) as scratch:
                file = Path(scratch, name)
                with file.open("wb") as opened:
                    opened.writelines(parts)
                put_object(self.place(name), file, self._remote, overwrite=True)
            return
        self.path.mkdir(parents=True, exist_ok=True)
        unfinished = self.path / f".{name}.{uuid4().hex}"  # other machines may write the same
        try:
            with unfinished.open("wb") as opened:
                opened.writelines(parts)
            unfinished.replace(self.path / name)
        finally:
            unfinished.unlink(missing_ok=True)

    def upload(self, name: str, file: Path, *, overwrite: bool = False) -> None:
        """Put a file of this machine there, or leave the one that is there already."""
        with suppress(RemoteExistsError):
            put_object(self.place(name), file, self._remote, overwrite=overwrite)
