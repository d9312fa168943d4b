"""Store beside ``.beton`` files what loaders use: the entry points of JPEG files, and one index of many files."""

from __future__ import annotations

import errno
import os
import tempfile
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpubeton._bytes import list_shards, open_descriptor, read_at, source_type, temporary_folder
from gpubeton._writing import (
    AtomicFile,
    TargetFolder,
    find_all,
    find_checksums,
    is_locked,
    remove_if_abandoned,
    resolve_target,
    short_name,
    write_at,
)
from gpubeton.errors import NotesError, OptionError, StorageError
from gpubeton.fields.registry import CustomFields, open_beton, open_index
from gpubeton.format.data_files import DESCRIPTION
from gpubeton.format.entry_layout import AFTER_CHECKSUMS, BESIDE, digest_of, index_path, is_index
from gpubeton.format.entry_points import EntryBlock, identity_of, image_fields, open_blocks, write_entry_points
from gpubeton.format.file_notes import DAMAGED, Notes, notes_of, read_notes
from gpubeton.format.index import find_metadata_end, metadata_checksum
from gpubeton.format.layout import ENTRY_DTYPE, ImageMode
from gpubeton.format.manifest import COLUMNS, Manifest, Shard, path_in, write_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from typing_extensions import Self

    from gpubeton._bytes import Progress, RemoteOptions
    from gpubeton.format import Index
    from gpubeton.format.data_files import DataFile

__all__ = ["Indexed", "IndexedShards", "index_images", "index_shards"]

_NUM_THREADS = 8  # shards that are described at once
_RECORD_DTYPE = np.dtype(
    [("part", "<u4"), ("images", "<u4"), ("entries", "<u8"), ("checksum", "<u4"), ("zeros", "<u4")]
)


@dataclass(frozen=True)
class Indexed:
    """The entry points of a file. Made by `index_images`."""

    path: Path | None  #: the file with the entry points; None if the `.beton` file has none beside it
    images: int  #: JPEG files of the fields that loaders decode in parts
    indexed: int  #: those of them with entry points; progressive and damaged files, for example, have none
    bytes: int  #: size of the entry points
    new: int  #: images whose entry points were found by this call; others were there before
    checksums: int = 0  #: checksums in the file beside it


def index_images(
    path: str | os.PathLike[str],
    custom_fields: CustomFields | None = None,
    *,
    overwrite: bool = False,
    num_workers: int = -1,
    on_progress: Progress | None = None,
) -> Indexed:
    """Find the entry points of the JPEG files in a ``.beton`` file and store them beside it, as ``FILE.index``.

    A loader of the file then decodes only the part of each JPEG that a crop needs; its images are the same. For a file
    without checksums, as FFCV's, a CRC-32 of each value is stored there, too: loaders compare the values with it. The
    file itself is not changed. After an interruption of any kind, the same call continues.

    Parameters
    ----------
    path, custom_fields
        As for `verify`.
    overwrite : bool
        Whether to make entry points and checksums for a file that has valid ones, in itself or beside it, and to
        replace a file of another kind. Damaged ones and those of another file are always replaced.
    num_workers, on_progress
        As for `verify`, but for images.

    Returns
    -------
    Indexed
        What the file has now.

    Raises
    ------
    OptionError
        If ``FILE.index`` is another kind of file or cut short, and `overwrite` is not set.
    StorageError
        If the entry points cannot be written, or the file is changed or replaced while it is read.

    Examples
    --------
    >>> from gpubeton.fields import IntField, RGBImageField
    >>> from gpubeton.writer import DatasetWriter
    >>> writer = DatasetWriter("plain.beton", {"image": RGBImageField("jpg"), "label": IntField()}, index=False)
    >>> classes = writer.from_image_folder("train")
    >>> index_images("plain.beton").path.name
    'plain.beton.index'
    >>> index_images("plain.beton").new
    0
    """
    index = open_beton(path, custom_fields)
    names = image_fields(index)
    blocks, faults = open_blocks(index)
    indexed_now, lacks = 0, _lacks_checksums(index)
    beside = Path(index_path(os.fspath(path)))
    is_complete = set(blocks) == set(names) and (not lacks or index.checksums.any())
    if (names or lacks) and (overwrite or faults or not is_complete):
        target = resolve_target(beside)
        if not overwrite and target.exists() and target.stat().st_size and not is_index(os.fspath(target)):
            raise OptionError(
                f"{beside}: exists, and does not end as entry points do: it is cut short, or another kind of file. "
                "Move it away, or replace it: --overwrite (overwrite=True)"
            )
        version = AFTER_CHECKSUMS if lacks else BESIDE
        with UnfinishedEntries(target, index, names, version) as entries:
            indexed_now = entries.find(num_workers, on_progress or (lambda *_: None))
            _finish(target, index, entries, version, num_workers)
            entries.warn_of_damage(os.fspath(path), is_marked=lacks)
        blocks, _ = open_blocks(index)
    elif beside.exists():
        remove_if_abandoned(unfinished_path(resolve_target(beside)))  # of a process killed after it gave the name
    return Indexed(
        beside if (blocks or lacks) and beside.exists() else None,
        sum(int((index.column(name)["mode"] == ImageMode.JPG).sum()) for name in names),
        sum(int((block.counts > 0).sum()) for block in blocks.values()),
        sum(block.nbytes for block in blocks.values()),
        indexed_now,
        len(index.allocations) if lacks else 0,
    )


def _finish(target: Path, index: Index, entries: UnfinishedEntries, version: int, num_workers: int) -> None:
    """Write the file under its name, with checksums if there are none, and remove the unfinished one."""
    source, rows, notes = index.files[0], index.allocations, b""
    if version == AFTER_CHECKSUMS:
        checksums = find_checksums(rows, source.path, num_workers, source.identity)
        for _, name, samples in entries.damaged():
            # An empty region and the next one may begin at the same place.
            checksums[np.isin(rows["ptr"], index.regions(name).offset[samples]) & (rows["size"] > 0)] ^= DAMAGED
        with source.open() as opened:
            of_metadata = metadata_checksum(opened, find_metadata_end(opened, index)[1])
        notes = Notes({"regions": digest_of(rows)}, checksums, of_metadata).to_bytes()
    source.identity.check(source.path, source_type(source.path).find_identity(source.path))
    with AtomicFile(target) as file:
        file.write(0, notes)
        end = len(notes)
        for part, (_, name) in enumerate(entries.parts):
            blocks = (record.block for record in entries.records() if record.part == part)
            identity = identity_of(index, name, version=version)
            end = write_entry_points(file.write, end, name, identity, blocks, version)
        file.commit()
    entries.path.unlink(missing_ok=True)


def _lacks_checksums(index: Index) -> bool:
    """Whether a file has regions, and no checksums of them in itself."""
    with index.files[0].open() as source, suppress(NotesError):
        notes = notes_of(source)
        return len(index.allocations) > 0 and (notes is None or notes.checksums is None)
    return False  # `gpubeton verify` names the fault


@dataclass(frozen=True)
class IndexedShards:
    """The index of a folder of ``.beton`` files. Made by `index_shards`."""

    folder: str  #: the folder
    shards: int  #: files in it
    samples: int  #: their samples
    bytes: int  #: size of the index


def index_shards(
    folder: str | os.PathLike[str],
    custom_fields: CustomFields | None = None,
    *,
    remote: RemoteOptions | None = None,
) -> IndexedShards:
    """Write one index of all ``.beton`` files of a folder, as ``index.json`` and ``index.bin`` beside them.

    A loader of the folder then opens these two instead of each file, and all processes of a machine share the memory of
    the index. The files are checked as whenever they are opened, and not changed. Call it again when files are added or
    replaced: until then, loaders warn and open each file.

    Parameters
    ----------
    folder : str or path
        The folder; also a URL that ends in "/".
    custom_fields
        As for `verify`.
    remote : RemoteOptions, optional
        How the store of a URL is reached.

    Returns
    -------
    IndexedShards
        The written files.

    Raises
    ------
    FormatError
        If a file is damaged, or several have different fields.
    StorageError
        If the index cannot be written.
    OSError
        If the folder has no such files.

    Examples
    --------
    >>> import os, shutil
    >>> os.makedirs("folder", exist_ok=True)
    >>> for number in range(3):
    ...     _ = shutil.copy("train.beton", f"folder/{number}.beton")
    >>> index_shards("folder").samples
    900
    >>> from gpubeton import Loader
    >>> Loader("folder", 100).reader.num_samples
    900
    """
    name = os.fspath(folder)
    paths = list_shards(name, remote)
    if not paths:
        raise FileNotFoundError(errno.ENOENT, "no files whose names end in .beton", name)
    index, _ = open_index(paths, custom_fields, remote)
    written = write_manifest(name, index, remote)
    return IndexedShards(name, len(index.files), index.num_samples, written.num_bytes)


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
        shards, names_of = zip(*threads.map(partial(_describe, index), index.files), strict=True)
    names = None if None in names_of else names_of[0] if len(set(names_of)) == 1 else ()
    paths = [file.path for file in index.files]
    wrong = [path for path, shard in zip(paths, shards, strict=True) if path != path_in(folder, shard.name)]
    if wrong or len(set(paths)) < len(paths):
        raise StorageError(f"{folder}: {(wrong or paths)[0]} is no file of this folder, or occurs twice")
    if "://" not in folder:
        return _write_pair(Path(folder), index, shards, names)
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as work:
        manifest = _write_pair(Path(work), index, shards, names)
        # The description last: until it is there, readers take the one before, and find the columns changed.
        for name in (COLUMNS, DESCRIPTION):
            TargetFolder(folder, remote).upload(name, Path(work) / name, overwrite=True)
    return manifest


def _write_pair(folder: Path, index: Index, shards: tuple[Shard, ...], class_names: tuple[str, ...] | None) -> Manifest:
    """Write the columns, then their description, each of which appears when it is complete."""
    with AtomicFile(folder / COLUMNS) as file:
        columns = write_columns(file.write, 0, index)
        file.commit()
    manifest = Manifest.of(index, shards, columns, class_names)
    with AtomicFile(folder / DESCRIPTION) as file:
        file.write(0, manifest.to_bytes())
        file.commit()
    return manifest


# --- entry points that were found so far


def unfinished_path(target: Path) -> Path:
    """Name the file with the entry points that were found so far."""
    # Not .unfinished: a long name is cut, so that a conversion's unfinished file would have the same one.
    return target.with_name(f".{short_name(target)}.entries")


class EntryRecord(NamedTuple):
    """The entry points of some images."""

    part: int
    block: EntryBlock
    checksums: NDArray[np.uint32]  # (N,) CRC-32 of the images; 0 if they were not asked for
    damaged: NDArray[np.bool_]  # (N,) which no library decodes
    stop: int  # where it ends in the file

    def to_bytes(self) -> bytes:
        """Give what the file holds of it."""
        block = self.block
        content = block.counts.astype("<u4").tobytes() + block.seals.tobytes() + self.checksums.tobytes()
        content += self.damaged.tobytes() + block.entries.tobytes()
        header = np.array([(self.part, len(block.counts), len(block.entries), 0, 0)], _RECORD_DTYPE)
        header["checksum"] = zlib.crc32(content, zlib.crc32(header.tobytes()[:16]))
        return header.tobytes() + content


class UnfinishedEntries:
    """The entry points that were found so far, in ``.NAME.entries``; they survive any interruption."""

    # After the identity of the images, it has a record for some images at a time: a header, the number of entries, the
    # seal and the checksum of each image, whether it is damaged, and the entries. A part is a field of a file.

    def __init__(
        self, target: Path, index: Index, names: list[str], version: int, *, with_checksums: bool = False
    ) -> None:
        self._target, self.path = target, unfinished_path(target)
        self._index, self._with_checksums = index, with_checksums
        self.parts = [(file, name) for file in range(len(index.files)) for name in names]
        # With the time of the last change: checksums are those of the bytes at the end.
        key = blake2b(b"2" + repr([file.identity for file in index.files]).encode(), digest_size=16)
        for file, name in self.parts:
            key.update(name.encode() + identity_of(index, name, file, version))
        self._key = key.digest()
        try:
            self._descriptor = open_descriptor(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StorageError(error.errno, f"{self._target}: no file can be written here: {error.strerror}") from error

    def __enter__(self) -> Self:
        if is_locked(self._descriptor):
            os.close(self._descriptor)
            raise StorageError(f"{self._target}: another process is writing this file. Wait for it.")
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._descriptor)

    def find(self, num_workers: int, on_progress: Progress) -> int:
        """Find the missing entry points; return the number of images of this call."""
        if read_at(self._descriptor, len(self._key), 0) != self._key:
            os.ftruncate(self._descriptor, 0)
            write_at(self._descriptor, 0, self._key, self.path)
        done, end = [0] * len(self.parts), len(self._key)
        for record in self.records():
            done[record.part] += len(record.block.counts)
            end = record.stop
        os.ftruncate(self._descriptor, end)
        index, resumed = self._index, sum(done)
        total = sum(index.files[file].num_samples for file, _ in self.parts)
        on_progress(resumed, total)
        finished = resumed
        for part, (file, name) in enumerate(self.parts):
            identity = index.files[file].identity
            for block, checksums, damaged in find_all(
                index, name, file, num_workers, done[part], identity, with_checksums=self._with_checksums
            ):
                content = EntryRecord(part, block, checksums.astype(np.uint32), damaged, 0).to_bytes()
                write_at(self._descriptor, end, content, self.path)
                end += len(content)
                finished += len(block.counts)
                on_progress(finished, total)
        return finished - resumed

    def damaged(self) -> Iterator[tuple[int, str, NDArray[np.intp]]]:
        """Give the numbers of a file's images that no library decodes, and before them those of the file and field."""
        images: list[list[NDArray[np.bool_]]] = [[] for _ in self.parts]
        for record in self.records():
            images[record.part].append(record.damaged)
        for (file, name), masks in zip(self.parts, images, strict=True):
            if any(map(np.any, masks)):
                yield file, name, np.flatnonzero(np.concatenate(masks))

    def warn_of_damage(self, path: str, *, is_marked: bool) -> None:
        """Warn of the images that no library decodes; loaders notice those with a marked checksum in any case."""
        damaged = list(self.damaged())
        if not damaged:
            return
        file, name, images = damaged[0]
        sample = self._index.files[file].first_sample + int(images[0])
        place = self._index.origin(sample) or f"sample {sample}"
        when = "whatever the crop" if is_marked else "where a crop needs the damaged part"
        count = sum(len(numbers) for _, _, numbers in damaged)
        warnings.warn(
            f"{path}: {count} damaged JPEG{'s' * (count > 1)}, which no library decodes, the first of {place}, field "
            f"{name!r}. Loaders will take {'them' if count > 1 else 'it'} for bad images, {when}: see on_error. The "
            f"reasons: gpubeton verify {path}",
            stacklevel=3,
        )

    def records(self) -> Iterator[EntryRecord]:
        """Read the records in their order, up to the first that is not complete."""
        position = len(self._key)
        while len(header := read_at(self._descriptor, _RECORD_DTYPE.itemsize, position)) == _RECORD_DTYPE.itemsize:
            row = np.frombuffer(header, _RECORD_DTYPE)[0]
            part, images, entries = int(row["part"]), int(row["images"]), int(row["entries"])
            size = 13 * images + ENTRY_DTYPE.itemsize * entries
            if part >= len(self.parts) or size > os.fstat(self._descriptor).st_size:
                return
            content = read_at(self._descriptor, size, position + len(header))
            if len(content) < size or zlib.crc32(content, zlib.crc32(header[:16])) != row["checksum"]:
                return
            counts, seals, checksums = np.frombuffer(content[: 12 * images], "<u4").reshape(3, -1)
            first = np.concatenate([np.zeros(1, np.uint64), np.cumsum(counts, dtype=np.uint64)])
            position += len(header) + size
            damaged = np.frombuffer(content[12 * images : 13 * images], np.bool_)
            block = EntryBlock(first, seals, np.frombuffer(content[13 * images :], ENTRY_DTYPE))
            yield EntryRecord(part, block, checksums, damaged, position)
