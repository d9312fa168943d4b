"""Index file: one file that says where the samples of other files are, such as those of tar files.

``NAME.index`` has the metadata of the ``.beton`` file that `gpubeton convert` would make of the same samples, so that
orders and checkpoints are the same, and the true places of their bytes beside them::

    magic        "gpubeton-located", filled up with zeros to 64 bytes
    columns      as in ``index.bin`` of a manifest, with ``offsets``
    names        of the loose files of each container that is a folder or a list of files
    entry points of each container, in the form of `gpubeton.format.entry_points`
    description  as ``index.json`` of a manifest, of which each shard is a container; places are those in this file
    trailer      where the description begins (8 bytes), its size (8), the magic (16)

A container is named relative to the folder of the index, or by its path or URL.
"""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from posixpath import normpath
from typing import TYPE_CHECKING

from gpubeton._bytes.file_list import SCHEME as LISTED
from gpubeton._bytes.file_list import FileList, FileListIdentity
from gpubeton._bytes.open_files import open_bytes
from gpubeton._bytes.store_client import RemoteOptions, shown
from gpubeton.errors import FormatError
from gpubeton.format.data_files import INDEX_SUFFIX
from gpubeton.format.index_checks import check_overlaps
from gpubeton.format.manifest import Manifest, assemble, find_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
    from gpubeton.format.index import CustomTypes, Index
    from gpubeton.format.manifest import Shard

CONTAINERS_VARIABLE = "GPUBETON_CONTAINERS"
"""Environment variable with folders and URLs, separated by ";", that index files elsewhere may name."""

MAGIC = b"gpubeton-located"
FIRST_COLUMN = 64
TRAILER = struct.Struct("<QQ16s")
_LARGEST_DESCRIPTION = 256 << 20  # bytes


class IndexFile:
    """An index file whose containers are as it describes them; FormatError if they are not."""

    def __init__(
        self,
        path: str,
        remote: RemoteOptions | None = None,
        containers: Sequence[str] = (),  # folders and URLs, besides that of the index, whose files it may name
    ) -> None:
        self.folder, self._path, self._remote = path, path, remote
        with open_bytes(path, remote=remote) as source:
            self._identity = source.identity()
            text = _read_description(source)
        try:
            self.manifest = Manifest.from_bytes(text)
            shards = self.manifest.shards
            if not all(shard.is_container for shard in shards):
                raise FormatError("it describes .beton files, expected containers")
        except FormatError as error:
            raise FormatError(f"{shown(path)}: {error}. Make it again: gpubeton index") from error
        allowed = (folder_of(path), *containers, *filter(None, os.environ.get(CONTAINERS_VARIABLE, "").split(";")))
        paths = [_locate(path, shard.name, allowed) for shard in shards]
        whole = [number for number, shard in enumerate(shards) if shard.names is None]
        try:
            located, _ = find_files(
                [shards[number] for number in whole], [paths[number] for number in whole], [None] * len(whole), text,
                remote,
            )  # fmt: skip
        except (FormatError, FileNotFoundError, IsADirectoryError) as error:
            raise FormatError(
                f"{shown(path)}: {error}, since the index was made. Make it again: gpubeton index"
            ) from error
        rest = iter(located)
        self.files = [
            next(rest) if shard.names is None else (name, self._list_files(shard, name, allowed))
            for shard, name in zip(shards, paths, strict=True)
        ]

    def _list_files(self, shard: Shard, name: str, allowed: Sequence[str]) -> SourceIdentity:
        """Read the names of the loose files of a container."""
        start, stop = shard.names or (0, 0)
        with open_bytes(self._path, self._identity, remote=self._remote) as source:
            if not (FIRST_COLUMN <= start <= stop <= source.size and name.startswith(f"{LISTED}://")):
                raise FormatError(
                    f"{shown(self._path)}: names of files of {shown(name)} from byte {start} to {stop} of {source.size}"
                )
            files = FileList.from_bytes(source.read_array(start, stop).data)
        root = name.removeprefix(f"{LISTED}://")
        files = replace(files, root=root, remote=self._remote or RemoteOptions() if "://" in root else None)
        for outside in files.outside:
            _locate(self._path, os.path.join(files.root, outside), allowed)  # noqa: PTH118
        identity = FileListIdentity.of(files)
        if identity.size != shard.size:
            raise FormatError(f"{shown(self._path)}: files of {identity.size} bytes in {name}, expected {shard.size}")
        return identity

    def open(self, custom_types: CustomTypes) -> Index:
        """Map or read the columns; FormatError if anything is wrong."""
        manifest = self.manifest
        with open_bytes(self._path, self._identity, remote=self._remote) as source:
            stop = FIRST_COLUMN + manifest.num_bytes
            if stop > source.size:
                raise FormatError(f"{shown(self._path)}: {source.size} bytes, expected {manifest.num_bytes} of columns")
            content = source.view(FIRST_COLUMN, stop)
            places = [shard.entry_place for shard in manifest.shards]
            if any(place is not None and place.stop > source.size for place in places):
                raise FormatError(f"{shown(self._path)}: entry points after its end, {source.size} bytes")
        state = self._identity.size, getattr(self._identity, "etag", None)
        located = [None if place is None else replace(place, path=self._path, beside=state) for place in places]
        try:
            index = assemble(manifest, content, self.files, located, self._path, custom_types)
            check_overlaps(index)
        except FormatError as error:
            raise FormatError(f"{shown(self._path)}: {error}. Make it again: gpubeton index") from error
        return index


def _read_description(source: ByteSource) -> bytes:
    """Read the description at the end of an index file."""
    start, size, magic = 0, 0, b""
    if source.size >= FIRST_COLUMN + TRAILER.size and source.read_exactly(0, len(MAGIC)) == MAGIC:
        start, size, magic = TRAILER.unpack(source.read_exactly(source.size - TRAILER.size, TRAILER.size))
    if magic != MAGIC or size > _LARGEST_DESCRIPTION or start + size != source.size - TRAILER.size:
        kind = "it is cut short, or has other content"
        if source.name.endswith(f".beton{INDEX_SUFFIX}"):
            kind = "it has the entry points of the .beton file beside it. Open that file"
        raise FormatError(f"{shown(source.name)}: no index of containers: {kind}")
    return source.read_exactly(start, size)


# --- names of containers ----------------------------------------------------------------------------------------------


def folder_of(path: str) -> str:
    """Give the folder of an index, which ends in a slash if it is a URL."""
    return path.rpartition("/")[0] + "/" if "://" in path else os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120


def relative_name(path: str, name: str) -> str:
    """Name a container for an index: relative to its folder if it lies there."""
    scheme = f"{LISTED}://" * name.startswith(f"{LISTED}://")
    folder, name = folder_of(path), name.removeprefix(scheme)
    name = name if "://" in name else os.path.abspath(name)  # noqa: PTH100
    if not _lies_in(name, folder):
        return scheme + name
    return scheme + (name[len(folder) :] if "://" in name else os.path.relpath(name, folder))


def is_outside(name: str) -> bool:
    """Whether a container is named by its path or URL, as it does not lie in the folder of the index."""
    inner = name.removeprefix(f"{LISTED}://")
    return "://" in inner or os.path.isabs(inner)  # noqa: PTH117


def _locate(path: str, name: str, allowed: Sequence[str]) -> str:
    """Give the path or URL of a container; FormatError if it lies in none of the allowed folders."""
    scheme = f"{LISTED}://" * name.startswith(f"{LISTED}://")
    inner = name.removeprefix(scheme)
    folder = folder_of(path)
    if not is_outside(name):
        inner = f"{folder}{inner}" if "://" in folder else os.path.join(folder, inner)  # noqa: PTH118
    if "://" not in inner:
        inner = os.path.normpath(inner)
    if "\0" in inner or not any(_lies_in(inner, place) for place in allowed):
        raise FormatError(
            f"{shown(path)}: it names {shown(name)}, which does not lie in its folder. If you trust the index, name "
            "the folder or URL of its containers: Loader(..., containers=[...]), or, also for commands, the "
            f"environment variable {CONTAINERS_VARIABLE}=FOLDER"
        )
    return scheme + inner


def _lies_in(name: str, folder: str) -> bool:
    """Whether a path or URL lies in a folder or URL."""
    if ("://" in name) != ("://" in folder):
        return False
    if "://" not in name:
        return os.path.join(name, "").startswith(os.path.join(os.path.abspath(folder), ""))  # noqa: PTH100, PTH118
    rest = name.partition("://")[2].rstrip("/")
    return f"{name}/".startswith(f"{folder.rstrip('/')}/") and normpath(rest) == rest
