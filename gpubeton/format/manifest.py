"""Manifest of a folder of shards: two files beside them, from which the index of all of them is read.

``index.json`` describes the shards and their fields::

    format          "gpubeton index 3"; earlier ones had no checksums of the values
    header, fields  of the first shard; ``form`` names the columns of a field
    shards          name, size, samples, page size, version, hash of the metadata, and ``entry_place``: the fields with
                    entry points, the bytes from ``start`` to ``stop`` that hold them, and ``beside``, the size and
                    version of the file beside the shard if they are there; null if the shard has to be looked at
    class_names     of all shards; [] if they have none or differ, null if the notes have to be read
    fingerprint, num_bytes, checksums
                    of ``index.bin``

``index.bin`` has the columns of the index, which all processes of a machine map::

    column      metadata of the first field, one row after the other
    sizes       4 bytes each: of its regions, where the metadata have none
    offsets     8 bytes each: of its regions, where the metadata have others for empty ones
    checksums   4 bytes each: CRC-32 of its regions, where the files have them; 0 if one is not known
    ...         the same of the next fields

Each begins at a multiple of 64 bytes, and is missing if the field has none. Offsets are global ones.
"""

from __future__ import annotations

import base64
import json
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.object_store import ObjectFile, list_objects
from gpubeton._bytes.open_files import find_identity, list_shards, open_bytes, source_type
from gpubeton._machine import count_cores
from gpubeton.errors import FormatError, OptionError, RemoteChangedError, RemoteDeniedError
from gpubeton.format.data_files import DESCRIPTION, MAX_FILES, DataFile, EntryPlace
from gpubeton.format.entry_layout import index_path
from gpubeton.format.entry_points import find_place
from gpubeton.format.field_arguments import ImageKind
from gpubeton.format.file_notes import notes_offset
from gpubeton.format.header import Descriptor, Header, header_of
from gpubeton.format.index import Index, find_metadata_end, metadata_type_of
from gpubeton.format.index_checks import check_index
from gpubeton.format.layout import (
    ARGUMENTS_SIZE,
    IMAGE_DTYPE,
    PLAIN_TYPES,
    FieldType,
    round_up,
)
from gpubeton.format.regions import FieldRows, pointers_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
    from gpubeton._bytes.store_client import RemoteOptions
    from gpubeton.format.index import CustomTypes

COLUMNS = "index.bin"
"""Name of the file beside `DESCRIPTION`."""

BLOCK = 8 << 20
"""Bytes of the columns that have a checksum."""

_FORMAT = "gpubeton index 3"
_LARGEST_DESCRIPTION = 256 << 20  # bytes; 200 for each shard
_ALIGNMENT = 64
_MORE = ("sizes", np.dtype("<u4")), ("offsets", np.dtype("<u8")), ("checksums", np.dtype("<u4"))
_NUM_THREADS = 8  # shards that are looked at, at once
_NUM_PROBES, _PROBE_SIZE = 8, 4096  # parts of a container that tell it from others, and bytes of each

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
    names: tuple[int, int] | None = None  # bytes of an index file that name the loose files of a container

    @property
    def is_container(self) -> bool:
        """Whether it has values alone: a file of another kind, in an index file."""
        return self.metadata_end == 0

    @classmethod
    def of(cls, file: DataFile, index: Index) -> Shard:
        """Describe a file as it was when it was checked."""
        modified, version = getattr(file.identity, "mtime_ns", None), getattr(file.identity, "etag", None)
        name, end, entry_place = file.path, 0, None
        with file.open() as source:
            if not file.is_container:
                name, end = file.path.rpartition("/")[2], find_metadata_end(source, index)[1]
            digest = _hash_rows(source, end)
        with suppress(FormatError, OSError):  # their faults are described where they are opened
            entry_place = None if file.is_container else find_place(file.path, file.identity)
        return cls(name, file.size, file.num_samples, file.page_size, version, modified, end, digest, entry_place)

    def find(self, path: str, listed: str | None, remote: RemoteOptions | None = None) -> SourceIdentity:
        """Find the identity of the file, FormatError if it is not there or has another size."""
        # `listed`: the version in the list of the store, None if there is no list. Without one, an object is taken for
        # the one that was described: requests for its bytes are refused if it was replaced.
        version = self.version if listed is None or (self.version or "").strip('"') == listed.strip('"') else listed
        if version and (version == self.version or version.startswith('"')):  # as in answers; Azure lists no quotes
            described = source_type(path).known_identity(path, self.size, version, remote)
            if described is not None:
                return described
        try:
            identity = find_identity(path, remote)
        except FileNotFoundError as error:
            raise FormatError(f"{self.name} is not there") from error
        if identity.size != self.size:
            raise FormatError(f"{self.name} has {identity.size} bytes now, and had {self.size}")
        return identity

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
    digest = blake2b(digest_size=16)
    if metadata_end == 0:  # a container, whose values have checksums: some of its bytes tell it from others
        for at in np.linspace(0, max(source.size - _PROBE_SIZE, 0), _NUM_PROBES).astype(int).tolist():
            digest.update(source.read(at, _PROBE_SIZE))
        return digest.hexdigest()
    header = header_of(source)
    for start, stop in ((0, min(metadata_end, source.size)), (notes_offset(source, header), source.size)):
        for at in range(start, stop, BLOCK):
            digest.update(source.load(at, min(BLOCK, stop - at)))
    return digest.hexdigest()


@dataclass(frozen=True)
class Manifest:
    """The content of ``index.json``: a dataset without its columns."""

    header: Header  # of the first file
    descriptors: tuple[Descriptor, ...]
    forms: tuple[str, ...]  # of each field, see `form_of`
    shards: tuple[Shard, ...]
    fingerprint: str
    num_bytes: int  # of the columns
    checksums: tuple[int, ...]  # CRC-32 of each block of the columns
    class_names: tuple[str, ...] | None = None  # see `Index`

    @classmethod
    def of(
        cls, index: Index, shards: Iterable[Shard], columns: tuple[int, tuple[int, ...]],
        class_names: tuple[str, ...] | None,
    ) -> Manifest:  # fmt: skip
        """Describe an index whose `columns` were written."""
        forms = tuple(map(form_of, index.rows))
        return cls(index.header, index.descriptors, forms, tuple(shards), index.fingerprint, *columns, class_names)

    def to_bytes(self) -> bytes:
        """Give the content of ``index.json``."""
        fields = []
        for field, form in zip(self.descriptors, self.forms, strict=True):
            arguments = base64.b64encode(field.arguments.rstrip(b"\0")).decode()
            fields.append({"name": field.name, "type": field.type_id, "arguments": arguments, "form": form})
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
        checksum = zlib.crc32(json.dumps(content).encode())
        return json.dumps({"checksum": checksum, "content": content}).encode()

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
                Descriptor(str(field["name"]), _number(field["type"]), _decode(field["arguments"]))
                for field in content["fields"]
            )
            manifest = cls(
                Header(**{name: _number(value) for name, value in content["header"].items()}),
                descriptors,
                tuple(str(field["form"]) for field in content["fields"]),
                tuple(map(_shard, content["shards"])),
                str(content["fingerprint"]),
                _number(content["num_bytes"]),
                tuple(map(_number, content["checksums"])),
                None if names is None else _texts(names),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"no description of shards: {type(error).__name__}: {error}") from error
        if len(manifest.shards) > MAX_FILES:
            raise FormatError(f"{len(manifest.shards)} shards, expected at most {MAX_FILES}")
        if not manifest.shards or len({field.name for field in descriptors}) < len(descriptors) or not descriptors:
            raise FormatError("no shards, or no fields of different names")
        return manifest

    @property
    def num_samples(self) -> int:
        """Samples of all shards."""
        return sum(shard.samples for shard in self.shards)


def _decode(text: str) -> bytes:
    arguments = base64.b64decode(text, validate=True)
    if len(arguments) > ARGUMENTS_SIZE:
        raise FormatError(f"arguments of {len(arguments)} bytes")
    return arguments.ljust(ARGUMENTS_SIZE, b"\0")


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise FormatError(f"{value!r}, expected a number from 0 on")
    return value


def _shard(content: Mapping[str, Any]) -> Shard:
    name, place, names = str(content["name"]), content.get("entry_place"), content.get("names")
    shard = Shard(**{**content, "name": name, "entry_place": None if place is None else _entry_place(place)})
    if names is not None:
        start, stop = map(_number, names)
        shard = replace(shard, names=(start, stop))
    if _number(shard.metadata_end) and (name in ("", ".", "..") or set(name) & {"/", "\\", "\0"}):
        raise FormatError(f"a shard of the name {name!r}")
    size, samples, page_size = map(_number, (shard.size, shard.samples, shard.page_size))
    if not (shard.is_container or size * samples) or not page_size or page_size & (page_size - 1):
        raise FormatError(f"{name}: no bytes or samples, or pages of {page_size} bytes")
    place = None if shard.is_container else shard.entry_place  # that of a container is in the index file
    if place is not None and place.stop > size * (4 if place.beside else 1):
        raise FormatError(f"{name}: entry points up to byte {place.stop} for {size} bytes")
    if not all(isinstance(text, str | None) for text in (shard.version, shard.digest)):
        raise FormatError(f"{name}: {shard.version!r} or {shard.digest!r}, expected text")
    return shard


def _texts(content: Any) -> tuple[str, ...]:
    if not isinstance(content, list) or not all(isinstance(text, str) for text in content):
        raise FormatError(f"{content!r:.100}, expected a list of texts")
    return tuple(content)


def _entry_place(content: Mapping[str, Any]) -> EntryPlace:
    start, stop, beside = _number(content["start"]), _number(content["stop"]), content["beside"]
    if beside is not None:
        size, version = beside
        if stop != _number(size) or not isinstance(version, str | None):
            raise FormatError(f"entry points up to byte {stop} beside a shard, in a file of {size} bytes")
        beside = size, version
    if start > stop:
        raise FormatError(f"entry points from byte {start} to {stop}")
    return EntryPlace(_texts(content["fields"]), start, stop, beside)


# --- columns ----------------------------------------------------------------------------------------------------------


def form_of(rows: FieldRows) -> str:
    """Name the columns of a field: of regions, sizes, offsets, checksums."""
    more = "".join(f"+{name}" for name, _ in _MORE if getattr(rows, name) is not None)
    return "regions" * rows.has_regions + more


def _possible_forms(descriptor: Descriptor, kind: np.dtype[Any]) -> tuple[str, ...]:
    """List the forms that a field of a kind may have."""
    if descriptor.type_id in PLAIN_TYPES:
        return ("",)
    if descriptor.type_id == FieldType.CUSTOM:
        has_pointers = pointers_in(descriptor, np.zeros(1, kind)) is not None
        is_image = ImageKind.describes(descriptor.arguments) and kind == IMAGE_DTYPE
        return ("regions+sizes",) if is_image else ("", "regions+sizes") if has_pointers else ("",)
    form = "regions+sizes" if descriptor.type_id == FieldType.RGB_IMAGE else "regions"
    return form, f"{form}+offsets"


def blocks_of(index: Index) -> Iterator[bytes]:
    """Give the bytes of the file, `BLOCK` at a time."""
    waiting = bytearray()
    for array in chain.from_iterable(rows.arrays for rows in index.rows):
        waiting += bytes(-len(waiting) % _ALIGNMENT)  # a block is a multiple of it
        content = array.reshape(-1).view(np.uint8).data
        while content:
            room = BLOCK - len(waiting)
            waiting += content[:room]
            content = content[room:]
            if len(waiting) == BLOCK:
                yield bytes(waiting)
                waiting.clear()
    if waiting:
        yield bytes(waiting)


def write_columns(write: Callable[[int, bytes], object], start: int, index: Index) -> tuple[int, tuple[int, ...]]:
    """Write the columns from `start` on; give their bytes and the CRC-32 of each block."""
    checksums, end = [], start
    for block in blocks_of(index):
        write(end, block)
        checksums.append(zlib.crc32(block))
        end += len(block)
    return end - start, tuple(checksums)


def read_rows(
    content: NDArray[np.uint8],
    descriptors: Sequence[Descriptor],
    kinds: Sequence[np.dtype[Any]],  # metadata dtype of each field
    forms: Sequence[str],
    num_samples: int,
) -> tuple[FieldRows, ...]:
    """Read the columns as views of the file's bytes; FormatError if these do not fit."""
    fields, stop = [], 0
    for descriptor, kind, form in zip(descriptors, kinds, forms, strict=True):
        possible = _possible_forms(descriptor, kind)
        if form not in (*possible, *(f"{name}+checksums" for name in possible if name)):
            raise FormatError(f"field {descriptor.name!r} of type {descriptor.type_id} in the form {form!r}")
        arrays: list[NDArray[Any] | None] = []
        for dtype in (kind, *(dtype if name in form else None for name, dtype in _MORE)):
            if dtype is None:
                arrays.append(None)
                continue
            start = round_up(stop, _ALIGNMENT)
            stop = start + num_samples * dtype.itemsize
            if stop > len(content):
                raise FormatError(f"{len(content)} bytes, which are too few for {num_samples} samples")
            flat = content[start:stop].view(dtype.base)
            arrays.append(flat.reshape(num_samples, *dtype.shape) if dtype.shape else flat)
        column, sizes, offsets, checksums = arrays
        assert column is not None
        fields.append(FieldRows(column, sizes, offsets, form != "", checksums))
    if stop != len(content):
        raise FormatError(f"{len(content)} bytes, expected {stop} for {num_samples} samples")
    return tuple(fields)


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
        version, expected = listed.get(index_path(shard.name)), None if place.beside is None else place.beside[1]
        if (version and version.strip('"')) != (expected and expected.strip('"')):  # Azure lists no quotes
            return None
    return place


def path_in(folder: str, name: str) -> str:
    """Give the path or the URL of a file of a folder."""
    return f"{folder.rstrip('/')}/{name}" if "://" in folder else str(Path(folder, name))


class StoredIndex:
    """The manifest of a folder whose files are as it describes them."""

    # FileNotFoundError if the folder has none, FormatError if it is that of other files.

    def __init__(self, folder: str, remote: RemoteOptions | None = None) -> None:
        with open_bytes(path_in(folder, DESCRIPTION), remote=remote) as source:
            if source.size > _LARGEST_DESCRIPTION:
                raise FormatError(f"{source.name}: {source.size} bytes")
            text = source.read_exactly(0, source.size)
        self.folder, self._remote, self._columns = folder, remote, path_in(folder, COLUMNS)
        self.manifest = Manifest.from_bytes(text)
        shards = self.manifest.shards
        if any(shard.is_container for shard in shards):
            raise FormatError("it describes containers, expected .beton files")
        names = [shard.name for shard in shards]
        paths = [path_in(folder, name) for name in names]
        listed = _list_versions(folder, remote)
        if listed is not None and (odd := {name for name in listed if name.endswith(".beton")} ^ set(names)):
            raise FormatError(f"{min(odd)} is " + ("not there" if min(odd) in names else "a further shard"))
        self._entry_places = [_usable_place(shard, path, listed) for shard, path in zip(shards, paths, strict=True)]
        versions = map((listed or {}).get, names)
        self.files, num_copies = find_files(shards, paths, versions, text, remote)
        # On this machine the comparison is quick; on a web server no index can be written.
        if num_copies and "://" in folder and not folder.startswith(("http://", "https://")):
            warnings.warn(
                f"{folder}: {DESCRIPTION} was written for other copies of {num_copies} of the shards. Their metadata "
                f"was compared, and is the same. To spare this, write the index again: gpubeton index {folder}",
                stacklevel=2,
            )

    def open(self, custom_types: CustomTypes) -> Index:
        """Map or read the columns; FormatError if anything is wrong."""
        with open_bytes(self._columns, remote=self._remote) as source:
            if source.size != self.manifest.num_bytes:
                raise FormatError(f"{source.name} has {source.size} bytes, expected {self.manifest.num_bytes}")
            content = source.view(0, source.size)
        return assemble(self.manifest, content, self.files, self._entry_places, self._columns, custom_types)


def find_files(
    shards: Sequence[Shard],
    paths: Sequence[str],
    versions: Iterable[str | None],  # of the list of a store
    text: bytes,  # of the manifest
    remote: RemoteOptions | None,
) -> tuple[list[tuple[str, SourceIdentity]], int]:
    """Find the files that a manifest describes, and their identities; count copies that were compared just now."""
    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        identities = list(threads.map(partial(Shard.find, remote=remote), shards, paths, versions))
        copies = [copy for copy in zip(shards, paths, identities, strict=True) if copy[0].is_copied(copy[2])]
        states = repr([identity.cache_key or identity for _, _, identity in copies])
        key = blake2b(text + states.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        is_new = bool(copies) and key not in _CHECKED
        if is_new:
            list(threads.map(Shard.check_copy, *zip(*copies, strict=True)))
        _CHECKED.add(key)
    return list(zip(paths, identities, strict=True)), len(copies) * is_new


def assemble(
    manifest: Manifest,
    content: NDArray[np.uint8],  # the columns
    files: Sequence[tuple[str, SourceIdentity]],
    entry_places: Iterable[EntryPlace | None],
    name: str,  # of the file with the columns
    custom_types: CustomTypes,
) -> Index:
    """Make the index of a manifest and its columns; FormatError if anything is wrong."""
    kinds = [metadata_type_of(files[0][0], descriptor, custom_types) for descriptor in manifest.descriptors]
    rows = read_rows(content, manifest.descriptors, kinds, manifest.forms, manifest.num_samples)
    starts = accumulate((shard.samples for shard in manifest.shards), initial=0)
    checked = [
        DataFile(*file, shard.page_size, first, shard.samples, place, is_container=shard.is_container)
        for file, shard, first, place in zip(files, manifest.shards, starts, entry_places, strict=False)
    ]
    index = Index(
        tuple(checked), manifest.header, manifest.descriptors, rows, manifest.fingerprint, manifest.class_names
    )
    with ThreadPoolExecutor(count_cores()) as threads:
        checksums = threads.map(lambda at: zlib.crc32(content[at : at + BLOCK].data), range(0, len(content), BLOCK))
    if tuple(checksums) != manifest.checksums:
        raise FormatError(f"{name} has other checksums than expected: it is damaged")
    check_index(index)
    return index
