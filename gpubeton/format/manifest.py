"""Manifest of a folder of shards: two files beside them, from which the index of all of them is read.

``index.json`` describes the shards and their fields; ``index.bin`` has the columns of `gpubeton.format.compact_index`.

::

    format          "gpubeton index 3"; earlier ones had no checksums of the values
    header, fields  of the first shard; ``form`` is what the columns have of a field
    shards          name, size, samples, page size, version, hash of the metadata, and ``entry_place``: the fields with
                    entry points, the bytes from ``start`` to ``stop`` that hold them, and ``beside``, the size and
                    version of the file beside the shard if they are there; null if the shard has to be looked at
    class_names     of all shards; [] if they have none or differ, null if the notes have to be read
    fingerprint, num_bytes, checksums
                    of the columns
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton._bytes.local_file import temporary_folder
from gpubeton._bytes.object_store import ObjectFile, list_objects, put_object
from gpubeton._bytes.open_files import find_identity, list_shards, open_bytes, source_type
from gpubeton.errors import FormatError, NotesError, OptionError, RemoteChangedError, RemoteDeniedError, StorageError
from gpubeton.format.compact_index import BLOCK, blocks_of, check_index, checksums_of, form_of, read_rows
from gpubeton.format.data_files import MAX_FILES, DataFile, EntryPlace
from gpubeton.format.entry_layout import index_path
from gpubeton.format.entry_points import find_place
from gpubeton.format.file_notes import notes_offset, read_notes
from gpubeton.format.header import Descriptor, Header, header_of, read_fields
from gpubeton.format.index import Index, metadata_type_of
from gpubeton.format.layout import ARGUMENTS_SIZE, metadata_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from typing_extensions import Buffer

    from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
    from gpubeton._bytes.remote_options import RemoteOptions

DESCRIPTION, COLUMNS = "index.json", "index.bin"
"""Names of the two files."""

_FORMAT = "gpubeton index 3"
_LARGEST_DESCRIPTION = 256 << 20  # bytes; 200 for each shard
_NUM_THREADS = 8  # shards that are looked at, at once

#: Hashes of copied shards that were compared with their manifest.
_CHECKED: set[str] = set()


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
    # Of its metadata, notes and allocation table, which the index is made of: a copy was modified at another time.
    digest: str | None
    entry_place: EntryPlace | None = None  # None if it is not known

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
        entry_place = None
        with suppress(FormatError, OSError):  # their faults are described where they are opened
            entry_place = find_place(file.path, file.identity)
        return cls(name, file.size, file.num_samples, file.page_size, version, modified, end, digest, entry_place)

    def find(self, path: str, listed: str | None, remote: RemoteOptions | None = None) -> SourceIdentity:
        """Find the identity of the file, FormatError if it is not there or has another size."""
        # `listed`: the version in the list of the store, None if there is no list. Without one, an object is taken for
        # the one that was described: requests for its bytes are refused if it was replaced.
        version = self.version if listed is None or (self.version or "").strip('"') == listed.strip('"') else listed
        if version and (version == self.version or version.startswith('"')):  # as in answers; Azure lists no quotes
            known = source_type(path).known_identity(path, self.size, version, remote)
            if known is not None:
                return known
        try:
            found = find_identity(path, remote)
        except FileNotFoundError as error:
            raise FormatError(f"{self.name} is not there") from error
        if found.size != self.size:
            raise FormatError(f"{self.name} has {found.size} bytes now, and had {self.size}")
        return found

    def is_copied(self, identity: SourceIdentity) -> bool:
        """Whether a file is another one, or in another state, than the one that was described."""
        version, modified = getattr(identity, "etag", None), getattr(identity, "mtime_ns", None)
        return (version is None or version != self.version) and (modified is None or modified != self.modified)

    def check_copy(self, path: str, identity: SourceIdentity) -> None:
        """Raise FormatError if a file has other metadata than the one that was described."""
        try:
            with open_bytes(path, identity) as source:
                is_equal = _hash_rows(source, self.metadata_end) == self.digest
        except RemoteChangedError:  # the size in the list is not compared
            is_equal = False
        if not is_equal:
            raise FormatError(f"{self.name} was replaced")


def _hash_rows(source: ByteSource, metadata_end: int) -> str:
    """Hash what an index is made of: header, fields, metadata, notes with the checksums, and allocation table."""
    header = header_of(source)
    digest = blake2b(digest_size=16)
    for start, stop in ((0, min(metadata_end, source.size)), (notes_offset(source, header), source.size)):
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
    class_names: tuple[str, ...] | None = None  # see `Index`

    def to_bytes(self) -> bytes:
        """Give the content of ``index.json``."""
        fields = [
            {"name": each.name, "type": each.type_id, "arguments": _encode(each.arguments), "form": form}
            for each, form in zip(self.descriptors, self.forms, strict=True)
        ]
        content = {
            "format": _FORMAT,
            "header": asdict(self.header),
            "fields": fields,
            "shards": [asdict(shard) for shard in self.shards],
            "class_names": self.class_names,
            "fingerprint": self.fingerprint,
            "num_bytes": self.num_bytes,
            "checksums": self.checksums,
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
            names = content.get("class_names")
            descriptors = tuple(
                Descriptor(str(each["name"]), _number(each["type"]), _decode(each["arguments"]))
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
                None if names is None else _texts(names),
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


def _encode(arguments: bytes) -> str:
    return base64.b64encode(arguments.rstrip(b"\0")).decode()


def _decode(text: str) -> bytes:
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
    place = found.get("entry_place")
    shard = Shard(**{**found, "name": name, "entry_place": None if place is None else _entry_place(place)})
    _number(shard.metadata_end)
    page_size = _number(shard.page_size)
    if not (_number(shard.size) and _number(shard.samples) and page_size) or page_size & (page_size - 1):
        raise FormatError(f"{name}: no bytes or samples, or pages of {page_size} bytes")
    if shard.entry_place is not None and shard.entry_place.stop > shard.size * (4 if shard.entry_place.beside else 1):
        raise FormatError(f"{name}: entry points up to byte {shard.entry_place.stop} for {shard.size} bytes")
    if not all(isinstance(each, str | None) for each in (shard.version, shard.digest)):
        raise FormatError(f"{name}: {shard.version!r} or {shard.digest!r}, expected text")
    return shard


def _texts(found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise FormatError(f"{found!r:.100}, expected a list of texts")
    return tuple(found)


def _entry_place(found: Mapping[str, Any]) -> EntryPlace:
    start, stop, beside = _number(found["start"]), _number(found["stop"]), found["beside"]
    if beside is not None:
        size, version = beside
        if stop != _number(size) or not isinstance(version, str | None):
            raise FormatError(f"entry points up to byte {stop} beside a shard, in a file of {size} bytes")
        beside = size, version
    if start > stop:
        raise FormatError(f"entry points from byte {start} to {stop}")
    return EntryPlace(_texts(found["fields"]), start, stop, beside)


# --- folders of shards ------------------------------------------------------------------------------------------------


def _list_versions(folder: str, remote: RemoteOptions | None) -> dict[str, str | None] | None:
    """List the shards of a folder, and the files beside them with the versions of a store; None if it shows no list."""
    if not issubclass(source_type(folder), ObjectFile):
        return dict.fromkeys(Path(path).name for path in list_shards(folder)) if "://" not in folder else None
    try:
        listed = list_objects(folder, remote)
    except (OptionError, RemoteDeniedError):  # web servers; rights to read, but not to list
        return None
    kinds = (".beton", index_path(".beton"))
    return {url.rpartition("/")[2]: version or "" for url, _, version in listed if url.endswith(kinds)}


def _usable_place(shard: Shard, path: str, listed: Mapping[str, str | None] | None) -> EntryPlace | None:
    """Give the place of the entry points of a shard, None if they have to be looked for: others may lie there now."""
    place = shard.entry_place
    if place is None or source_type(path).is_mappable or (place.beside is not None and not place.beside[1]):
        return None
    if listed is not None:
        found, expected = listed.get(index_path(shard.name)), None if place.beside is None else place.beside[1]
        if (found and found.strip('"')) != (expected and expected.strip('"')):  # Azure lists no quotes
            return None
    return place


def _describe(index: Index, file: DataFile) -> tuple[Shard, tuple[str, ...] | None]:
    """Describe a file, and give the names of its classes; () if it has none, None if its notes cannot be read."""
    shard = Shard.of(file, index)
    try:
        notes = read_notes(file.path, file.identity)
    except NotesError:
        return shard, None
    return shard, (notes and notes.class_names) or ()


def write_manifest(folder: str, index: Index, remote: RemoteOptions | None = None) -> Manifest:
    """Write the manifest of a folder or a URL whose shards are the files of `index`, in this order."""
    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        shards, own_names = zip(*threads.map(partial(_describe, index), index.files), strict=True)
    names = None if None in own_names else own_names[0] if len(set(own_names)) == 1 else ()
    paths = [file.path for file in index.files]
    wrong = [path for path, shard in zip(paths, shards, strict=True) if path != _join(folder, shard.name)]
    if wrong or len(set(paths)) < len(paths):
        raise StorageError(f"{folder}: {(wrong or paths)[0]} is no file of this folder, or occurs twice")
    if "://" not in folder:
        return _write_pair(Path(folder), index, shards, names)
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as place:
        manifest = _write_pair(Path(place), index, shards, names)
        # The description last: until it is there, readers take the one before, and find the columns changed.
        for name in (COLUMNS, DESCRIPTION):
            put_object(_join(folder, name), Path(place) / name, remote, overwrite=True)
    return manifest


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if "://" in folder else str(Path(folder, name))


def _write_pair(folder: Path, index: Index, shards: tuple[Shard, ...], class_names: tuple[str, ...] | None) -> Manifest:
    """Write the columns, then their description, each under a temporary name first."""
    checksums, num_bytes = [], 0

    def blocks() -> Iterable[bytes]:
        nonlocal num_bytes
        for block in blocks_of(index):
            checksums.append(zlib.crc32(block))
            num_bytes += len(block)
            yield block

    _write_file(folder / COLUMNS, blocks())
    forms = tuple(form_of(own) for own in index.rows)
    manifest = Manifest(
        index.header, index.descriptors, forms, shards, index.fingerprint, num_bytes, tuple(checksums), class_names
    )
    _write_file(folder / DESCRIPTION, [manifest.to_bytes()])
    return manifest


def _write_file(path: Path, blocks: Iterable[Buffer]) -> None:
    """Write a file under a temporary name first."""
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


def _warn_of_copies(folder: str, count: int) -> None:
    """Tell how to spare the comparison of shards copied to a store; it is quick on this machine."""
    if "://" in folder and not folder.startswith(("http://", "https://")):  # where no index can be written
        warnings.warn(
            f"{folder}: {DESCRIPTION} was written for other copies of {count} of the shards. Their metadata was "
            f"compared, and is the same. To spare this, write the index again: gpubeton index {folder}",
            stacklevel=2,
        )


class StoredIndex:
    """A description and columns that were written before, of files as they are now."""

    def __init__(self, folder: str, remote: RemoteOptions | None) -> None:
        with open_bytes(_join(folder, DESCRIPTION), remote=remote) as source:
            if source.size > _LARGEST_DESCRIPTION:
                raise FormatError(f"{source.name}: {source.size} bytes")
            self._text = source.read_exactly(0, source.size)
        self.manifest = Manifest.from_bytes(self._text)
        self._columns = _join(folder, COLUMNS)
        self._remote = remote
        self.folder = folder
        self.files: Sequence[tuple[str, SourceIdentity]] = ()
        self.entry_places: list[EntryPlace | None] = [None] * len(self.manifest.shards)

    @classmethod
    def of_folder(cls, folder: str, remote: RemoteOptions | None = None) -> StoredIndex:
        """Open the manifest of a folder: FileNotFoundError if it has none, FormatError if it is that of other files."""
        found = cls(folder, remote)
        paths = [_join(folder, shard.name) for shard in found.manifest.shards]
        names = [shard.name for shard in found.manifest.shards]
        listed = _list_versions(folder, remote)
        if listed is not None and (odd := {name for name in listed if name.endswith(".beton")} ^ set(names)):
            raise FormatError(f"{min(odd)} is " + ("not there" if min(odd) in names else "a further shard"))
        found.entry_places = [
            _usable_place(shard, path, listed) for shard, path in zip(found.manifest.shards, paths, strict=True)
        ]
        shards, versions = found.manifest.shards, map((listed or {}).get, names)
        with ThreadPoolExecutor(_NUM_THREADS) as threads:
            identities = list(threads.map(partial(Shard.find, remote=remote), shards, paths, versions))
            found.files = list(zip(paths, identities, strict=True))
            copies = [each for each in zip(shards, paths, identities, strict=True) if each[0].is_copied(each[2])]
            states = repr([identity.cache_key or identity for _, _, identity in copies])
            key = blake2b(found._text + states.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
            if copies and key not in _CHECKED:
                list(threads.map(Shard.check_copy, *zip(*copies, strict=True)))
                _warn_of_copies(folder, len(copies))
            _CHECKED.add(key)
        return found

    def open(self, custom_types: Mapping[str, np.dtype[np.generic]]) -> Index:
        """Map or read the columns; FormatError if anything is wrong."""
        manifest = self.manifest
        with open_bytes(self._columns, remote=self._remote) as source:
            if source.size != manifest.num_bytes:
                raise FormatError(f"{source.name} has {source.size} bytes, expected {manifest.num_bytes}")
            content = source.map() if source.is_mappable else source.read_array(0, source.size)
        kinds = [metadata_type_of(self._columns, each, custom_types) for each in manifest.descriptors]
        rows = read_rows(content, manifest.descriptors, kinds, manifest.forms, manifest.num_samples)
        starts = accumulate((shard.samples for shard in manifest.shards), initial=0)
        files = [
            DataFile(*file, shard.page_size, first, shard.samples, place)
            for file, shard, first, place in zip(self.files, manifest.shards, starts, self.entry_places, strict=False)
        ]
        index = Index(
            tuple(files), manifest.header, manifest.descriptors, rows, manifest.fingerprint, manifest.class_names
        )
        if tuple(checksums_of(content)) != manifest.checksums:
            raise FormatError(f"{self._columns} has other checksums than expected: it is damaged")
        check_index(index)
        return index
