"""Manifest of a folder of shards: two files beside them, from which the index of all of them is read.

``index.json`` describes the shards and their fields; ``index.bin`` has the columns of `gpubeton.format.compact_index`.
The directory of a cache keeps the same pair of files for any dataset that was opened before.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton.errors import FormatError, OptionError, RemoteDeniedError, StorageError
from gpubeton.files.byte_locks import locked_byte
from gpubeton.files.cached_file import boot_tag
from gpubeton.files.local_file import FileIdentity
from gpubeton.files.node_cache import make_directory
from gpubeton.files.object_store import ObjectFile, list_objects, put_object
from gpubeton.files.open_files import find_identity, list_shards, open_bytes, source_type
from gpubeton.format.compact_index import BLOCK, blocks_of, check_index, checksums_of, form_of, read_rows
from gpubeton.format.data_files import MAX_FILES, DataFile
from gpubeton.format.header import Descriptor, Header, decode_header, read_fields
from gpubeton.format.index import Index, metadata_type_of
from gpubeton.format.layout import ARGUMENTS_SIZE, HEADER_DTYPE, metadata_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from typing_extensions import Buffer

    from gpubeton.files.byte_source import ByteSource, SourceIdentity
    from gpubeton.files.remote_options import RemoteOptions

DESCRIPTION, COLUMNS = "index.json", "index.bin"
"""Names of the two files."""

_FORMAT = "gpubeton index 1"
_LARGEST_DESCRIPTION = 256 << 20  # bytes; 200 for each shard
_MIN_CACHED = 1 << 20  # bytes of columns that are worth two files
_MAX_AGE = 30 * 86400  # seconds after which a cache forgets what no process has opened
_NUM_THREADS = 8


@dataclass(frozen=True)
class Shard:
    """A file of the dataset, as a manifest describes it."""

    name: str  # in the folder
    size: int  # bytes
    samples: int
    page_size: int
    version: str | None  # what a store calls this state of the file
    modified: int | None  # nanoseconds since 1970, of a file of this machine
    metadata_end: int
    # Of its metadata and allocation table, which the index is made of: a copy was modified at another time.
    digest: str | None

    @classmethod
    def of(cls, file: DataFile, index: Index) -> Shard:
        """Describe a file as it was when it was checked."""
        modified, version = getattr(file.identity, "mtime_ns", None), getattr(file.identity, "etag", None)
        name = file.path.rpartition("/")[2]
        with file.open() as source:
            header, descriptors = read_fields(source)  # in the order of this file
            row_type = metadata_dtype([index.column(descriptor.name).dtype for descriptor in descriptors])
            end = header.metadata_offset + header.num_samples * row_type.itemsize
            digest = _hash_rows(source, end)
        return cls(name, file.size, file.num_samples, file.page_size, version, modified, end, digest)

    def check(self, path: str, listed: str | None, remote: RemoteOptions | None = None) -> SourceIdentity:
        """Return the identity of the file, FormatError if it is not the one that was described."""
        # `listed`: the version in the list of the store, None if there is no list. Without one, an object is taken for
        # the one that was described: requests for its bytes are refused if it was replaced.
        is_listed = listed is None or (self.version or "").strip('"') == listed.strip('"')  # Azure lists no quotes
        if self.version and is_listed:
            known = source_type(path).known_identity(path, self.size, self.version, remote)
            if known is not None:
                return known
        try:
            found = find_identity(path, remote)
        except FileNotFoundError as error:
            raise FormatError(f"{self.name} is not there") from error
        if found.size != self.size:
            raise FormatError(f"{self.name} has {found.size} bytes now, and had {self.size}")
        version, modified = getattr(found, "etag", None), getattr(found, "mtime_ns", None)
        if (version is None or version != self.version) and (modified is None or modified != self.modified):
            with open_bytes(path, found) as source:
                if _hash_rows(source, self.metadata_end) != self.digest:
                    raise FormatError(f"{self.name} was replaced")
        return found


def _hash_rows(source: ByteSource, metadata_end: int) -> str:
    """Hash what an index is made of: header, fields, metadata and allocation table."""
    header = decode_header(source.name, source.read(0, HEADER_DTYPE.itemsize))
    digest = blake2b(digest_size=16)
    for start, stop in ((0, min(metadata_end, source.size)), (header.alloc_table_ptr, source.size)):
        for at in range(start, stop, BLOCK):
            digest.update(source.load(at, min(BLOCK, stop - at)))
    return digest.hexdigest()


@dataclass(frozen=True)
class Manifest:
    """All that is known of a dataset before its columns are read."""

    header: Header  # of the first file
    descriptors: tuple[Descriptor, ...]
    forms: tuple[str, ...]  # of each field, see `compact_index.form_of`
    shards: tuple[Shard, ...]
    fingerprint: str
    num_bytes: int  # of the columns
    checksums: tuple[int, ...]  # CRC-32 of each block of the columns

    def to_bytes(self) -> bytes:
        """Give the content of ``index.json``."""
        fields = [
            {"name": each.name, "type": each.type_id, "arguments": _text(each.arguments), "form": form}
            for each, form in zip(self.descriptors, self.forms, strict=True)
        ]
        rest = {"fingerprint": self.fingerprint, "num_bytes": self.num_bytes, "checksums": self.checksums}
        content = {
            "format": _FORMAT,
            "header": asdict(self.header),
            "fields": fields,
            "shards": [asdict(shard) for shard in self.shards],
            **rest,
        }
        text = json.dumps(content)
        return json.dumps({"checksum": zlib.crc32(text.encode()), "content": content}).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> Manifest:
        """Read the content of ``index.json``, FormatError if it is damaged."""
        try:
            outer = json.loads(text)
            content = outer["content"]
            if zlib.crc32(json.dumps(content).encode()) != outer["checksum"]:
                raise FormatError("another checksum than expected: it is damaged")
            if content["format"] != _FORMAT:
                raise FormatError(f"format {content['format']!r}, expected {_FORMAT!r}")
            descriptors = tuple(
                Descriptor(str(each["name"]), _number(each["type"]), _arguments(each["arguments"]))
                for each in content["fields"]
            )
            found = cls(
                Header(**{name: _number(value) for name, value in content["header"].items()}),
                descriptors,
                tuple(str(each["form"]) for each in content["fields"]),
                tuple(_shard(each) for each in content["shards"]),
                str(content["fingerprint"]),
                _number(content["num_bytes"]),
                tuple(_number(each) for each in content["checksums"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"no description of shards: {type(error).__name__}: {error}") from error
        if len(found.shards) > MAX_FILES:
            raise FormatError(f"{len(found.shards)} shards, expected at most {MAX_FILES}")
        if not found.shards or len({each.name for each in descriptors}) < len(descriptors) or not descriptors:
            raise FormatError("no shards, or no fields of different names")
        return found

    @property
    def num_samples(self) -> int:
        """Samples of all shards."""
        return sum(shard.samples for shard in self.shards)


def _text(arguments: bytes) -> str:
    return base64.b64encode(arguments.rstrip(b"\0")).decode()


def _arguments(text: str) -> bytes:
    arguments = base64.b64decode(text, validate=True)
    if len(arguments) > ARGUMENTS_SIZE:
        raise FormatError(f"arguments of {len(arguments)} bytes")
    return arguments.ljust(ARGUMENTS_SIZE, b"\0")


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise FormatError(f"{value!r}, expected a number from 0 on")
    return value


def _shard(found: Mapping[str, Any]) -> Shard:
    name = str(found["name"])
    if name in ("", ".", "..") or set(name) & {"/", "\\", "\0"}:
        raise FormatError(f"a shard of the name {name!r}")
    shard = Shard(**{**found, "name": name})
    _number(shard.metadata_end)
    page_size = _number(shard.page_size)
    if not (_number(shard.size) and _number(shard.samples) and page_size) or page_size & (page_size - 1):
        raise FormatError(f"{name}: no bytes or samples, or pages of {page_size} bytes")
    if not all(isinstance(each, str | None) for each in (shard.version, shard.digest)):
        raise FormatError(f"{name}: {shard.version!r} or {shard.digest!r}, expected text")
    return shard


# --- folders of shards ------------------------------------------------------------------------------------------------


def _list_versions(folder: str, remote: RemoteOptions | None) -> dict[str, str | None] | None:
    """List the shards of a folder, with the versions of a store; None if the store does not show a list."""
    if not issubclass(source_type(folder), ObjectFile):
        return dict.fromkeys(Path(path).name for path in list_shards(folder)) if "://" not in folder else None
    try:
        listed = list_objects(folder, remote)
    except (OptionError, RemoteDeniedError):  # web servers; rights to read, but not to list
        return None
    return {url.rpartition("/")[2]: version for url, _, version in listed if url.endswith(".beton")}


def write_manifest(folder: str, index: Index, remote: RemoteOptions | None = None) -> Manifest:
    """Write the manifest of a folder or a URL whose shards are the files of `index`, in this order."""
    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        shards = tuple(threads.map(partial(Shard.of, index=index), index.files))
    paths = [file.path for file in index.files]
    wrong = [path for path, shard in zip(paths, shards, strict=True) if path != _join(folder, shard.name)]
    if wrong or len(set(paths)) < len(paths):
        raise StorageError(f"{folder}: {(wrong or paths)[0]} is no file of this folder, or occurs twice")
    if "://" not in folder:
        return _write_pair(Path(folder), "index", index, shards)
    with tempfile.TemporaryDirectory() as place:
        manifest = _write_pair(Path(place), "index", index, shards)
        # The description last: until it is there, readers take the one before, and find the columns changed.
        for name in (COLUMNS, DESCRIPTION):
            put_object(_join(folder, name), Path(place) / name, remote, overwrite=True)
    return manifest


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if "://" in folder else str(Path(folder, name))


def _write_pair(folder: Path, stem: str, index: Index, shards: tuple[Shard, ...]) -> Manifest:
    """Write the columns, then their description, each under a temporary name first."""
    checksums, num_bytes = [], 0

    def blocks() -> Iterable[bytes]:
        nonlocal num_bytes
        for block in blocks_of(index):
            checksums.append(zlib.crc32(block))
            num_bytes += len(block)
            yield block

    _write(folder / f"{stem}.bin", blocks())
    forms = tuple(form_of(own) for own in index.rows)
    manifest = Manifest(index.header, index.descriptors, forms, shards, index.fingerprint, num_bytes, tuple(checksums))
    _write(folder / f"{stem}.json", [manifest.to_bytes()])
    return manifest


def _write(path: Path, blocks: Iterable[Buffer]) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with open(descriptor, "wb") as file:
            file.writelines(blocks)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise


class StoredIndex:
    """A description and columns that were written before, of files as they are now."""

    def __init__(self, description: str, columns: str, remote: RemoteOptions | None = None) -> None:
        with open_bytes(description, remote=remote) as source:
            if source.size > _LARGEST_DESCRIPTION:
                raise FormatError(f"{description}: {source.size} bytes")
            self._text = source.read_exactly(0, source.size)
        self.manifest = Manifest.from_bytes(self._text)
        self._columns = columns
        self._remote = remote
        self.files: Sequence[tuple[str, SourceIdentity]] = ()

    @classmethod
    def of_folder(cls, folder: str, remote: RemoteOptions | None = None) -> StoredIndex:
        """Open the manifest of a folder: FileNotFoundError if it has none, FormatError if it is that of other files."""
        found = cls(_join(folder, DESCRIPTION), _join(folder, COLUMNS), remote)
        paths = [_join(folder, shard.name) for shard in found.manifest.shards]
        names = [shard.name for shard in found.manifest.shards]
        listed = _list_versions(folder, remote)
        if listed is not None and (odd := set(listed) ^ set(names)):
            raise FormatError(f"{min(odd)} is " + ("not there" if min(odd) in names else "a further shard"))
        versions = map((listed or {}).get, names)
        with ThreadPoolExecutor(_NUM_THREADS) as threads:
            check = partial(Shard.check, remote=remote)
            found.files = list(zip(paths, threads.map(check, found.manifest.shards, paths, versions), strict=True))
        return found

    def open(self, custom_types: Mapping[str, np.dtype[np.generic]], cache: IndexCache | None) -> Index:
        """Map or read the columns; FormatError if anything is wrong."""
        with open_bytes(self._columns, remote=self._remote) as source:
            if source.size != self.manifest.num_bytes:
                raise FormatError(f"{source.name} has {source.size} bytes, expected {self.manifest.num_bytes}")
            if not source.is_mappable and cache is not None:
                with suppress(FormatError):
                    return self._read(cache.copy_of(source, self._text), custom_types, cache)
                return self._read(cache.copy_of(source, self._text, is_damaged=True), custom_types, cache)
            return self._read(source, custom_types, cache)

    def _read(
        self, source: ByteSource, custom_types: Mapping[str, np.dtype[np.generic]], cache: IndexCache | None
    ) -> Index:
        manifest = self.manifest
        content = source.map() if source.is_mappable else source.read_array(0, source.size)
        key = blake2b(self._text + repr(source.identity()).encode(), digest_size=16).hexdigest()
        kinds = [metadata_type_of(self._columns, each, custom_types) for each in manifest.descriptors]
        rows = read_rows(content, manifest.descriptors, kinds, manifest.forms, manifest.num_samples)
        starts = accumulate((shard.samples for shard in manifest.shards), initial=0)
        files = [
            DataFile(*file, shard.page_size, first, shard.samples)
            for file, shard, first in zip(self.files, manifest.shards, starts, strict=False)
        ]
        index = Index(tuple(files), manifest.header, manifest.descriptors, rows, manifest.fingerprint)
        if cache is None or not cache.is_checked(key):
            if tuple(checksums_of(content)) != manifest.checksums:
                raise FormatError(f"{self._columns} has other checksums than expected: it is damaged")
            check_index(index)
            if cache is not None:
                cache.mark_checked(key)
        return index


class IndexCache:
    """Indices in a directory of this machine, which its processes map: one copy for all of them."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._folder = Path(directory) / "indexes"
        make_directory(Path(directory), self._folder)

    def find(self, paths: Sequence[str], remote: RemoteOptions | None = None) -> StoredIndex | None:
        """Find the index of some files as they are now; None if there is none, or it is damaged."""
        with ThreadPoolExecutor(_NUM_THREADS) as threads:
            identities = list(threads.map(lambda path: find_identity(path, remote), paths))
        key = _key(paths, identities)
        if key is None:
            return None
        try:
            found = StoredIndex(str(self._folder / f"{key}.json"), str(self._folder / f"{key}.bin"))
        except (OSError, FormatError):
            return None
        found.files = list(zip(paths, identities, strict=True))
        with suppress(OSError):
            os.utime(self._folder / f"{key}.json")
        return found if len(found.manifest.shards) == len(paths) else None

    def keep(self, index: Index) -> bool:
        """Write the index of files that were just opened, if it is large; return whether it was."""
        key = _key([file.path for file in index.files], [file.identity for file in index.files])
        if key is None or sum(own.nbytes for own in index.rows) < _MIN_CACHED:
            return False
        self._forget()
        shards = tuple(
            Shard(Path(file.path).name, file.size, file.num_samples, file.page_size, None, None, 0, None)
            for file in index.files
        )
        try:
            _write_pair(self._folder, key, index, shards)
        except OSError as error:
            self._warn(error)
            return False
        return True

    def _warn(self, error: OSError) -> None:
        warnings.warn(
            f"{self._folder}: the index cannot be kept here: {error}. Each process reads it from the files. Check the "
            "free space and the rights of the directory.",
            stacklevel=2,
        )

    @contextmanager
    def lock(self, paths: Sequence[str]) -> Iterator[None]:
        """Let one process at a time open some files: the next ones find its result."""
        with locked_byte(self._folder / "lock", zlib.crc32("\0".join(paths).encode())):
            yield

    def copy_of(self, source: ByteSource, description: bytes, *, is_damaged: bool = False) -> ByteSource:
        """Copy columns into the directory, unless they are there; open the copy, or the source if the disk fails."""
        stem = self._folder / blake2b(description, digest_size=16).hexdigest()
        columns = stem.with_suffix(".bin")
        try:
            with locked_byte(self._folder / "lock", 1 << 32):
                if is_damaged or not columns.exists() or columns.stat().st_size != source.size:
                    self._forget()
                    _write(columns, _load_blocks(source))
                stem.with_suffix(".json").write_bytes(description)  # its time is that of the last use
            return open_bytes(columns)
        except StorageError:  # of the source
            raise
        except OSError as error:
            self._warn(error)
            return source

    def is_checked(self, key: str) -> bool:
        """Whether a process of this boot has checked some columns, and found them right."""
        mark = self._folder / f"{key}.checked"
        try:
            is_checked = mark.read_text() == str(boot_tag())
            os.utime(mark)
        except OSError:
            return False
        return is_checked

    def mark_checked(self, key: str) -> None:
        """Let other processes know that some columns are right."""
        with suppress(OSError):  # the next process checks them again
            _write(self._folder / f"{key}.checked", [str(boot_tag()).encode()])

    def _forget(self) -> None:
        """Remove what no process has opened for a month."""
        with suppress(OSError):
            used: dict[str, float] = {}
            for path in self._folder.glob("*.*"):
                used[path.stem] = max(used.get(path.stem, 0), path.stat().st_mtime)
            for path in self._folder.glob("*.*"):
                if used[path.stem] < time.time() - _MAX_AGE:
                    path.unlink()


def _load_blocks(source: ByteSource) -> Iterator[memoryview]:
    """Read a file from its start to its end, some blocks at a time."""
    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        for first in range(0, source.size, _NUM_THREADS * BLOCK):
            starts = range(first, min(first + _NUM_THREADS * BLOCK, source.size), BLOCK)
            yield from threads.map(lambda at: source.load(at, min(BLOCK, source.size - at)), starts)


def _key(paths: Sequence[str], identities: Sequence[SourceIdentity]) -> str | None:
    """Hash what identifies the states of some files; None if nothing does, as of an object without a strong ETag."""
    if not all(identity.cache_key or isinstance(identity, FileIdentity) for identity in identities):
        return None
    named = [path if "://" in path else str(Path(path).absolute()) for path in paths]
    states = [identity.cache_key or repr(identity) for identity in identities]
    return blake2b(repr([_FORMAT, named, states]).encode(), digest_size=16).hexdigest()
