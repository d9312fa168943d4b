"""Index samples where they lie: in tar files, folders, zip and Arrow files."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes import FileListIdentity, find_identity
from gpubeton._sources import ArchiveSource, LabelledSource, Source
from gpubeton._writing import AtomicFile, make_index, remove_if_abandoned, resolve_target
from gpubeton.dataset.indexing import UnfinishedEntries, unfinished_path
from gpubeton.errors import OptionError
from gpubeton.format.data_files import INDEX_SUFFIX, EntryPlace
from gpubeton.format.entry_layout import BESIDE
from gpubeton.format.entry_points import identity_of, image_fields, write_entry_points
from gpubeton.format.file_notes import DAMAGED
from gpubeton.format.index import Index
from gpubeton.format.index_file import FIRST_COLUMN, MAGIC, TRAILER, folder_of, is_outside, relative_name
from gpubeton.format.manifest import Manifest, Shard, write_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpubeton._bytes import Progress, RemoteOptions
    from gpubeton.format.data_files import DataFile

__all__ = ["IndexedSource", "index_source", "write_index"]


@dataclass(frozen=True)
class IndexedSource:
    """The index of samples that stay where they are. Made by `index_source`."""

    path: Path  #: the index
    samples: int  #: samples in it
    containers: int  #: files that hold them; a folder of images counts once
    bytes: int  #: size of the index
    indexed: int  #: images with entry points
    #: Images whose size cannot be found, as they are damaged or of an unknown kind. Loaders handle them as damaged
    #: ones, see `on_error` of `Loader`.
    unread: list[str]
    #: Folders and URLs of files that do not lie in the folder of the index: a loader is told them as `containers`.
    outside: list[str]


def index_source(
    source: Source,
    path: str | os.PathLike[str],
    *,
    entry_points: bool = True,
    overwrite: bool = False,
    num_workers: int = -1,
    on_progress: Progress | None = None,
) -> IndexedSource:
    """Write an index of samples that stay where they are, from which a loader reads them in place.

    The index has what a ``.beton`` file of these samples would have, but for the bytes of the images: batches, orders
    and checkpoints of a loader are the same. The images are read for their headers, and for their entry points and
    checksums. After an interruption, the same call continues.

    Parameters
    ----------
    source : Source
        The samples: the result of `open_source` for images in folders, tables, tar, zip or Arrow files.
    path : str or path
        The new file, whose name ends in ".index".
    entry_points : bool
        Whether to find the entry points of JPEGs, about 2 % of their bytes, so that loaders decode only what a crop
        needs, and the checksums of all images. This reads every image; without, only the headers are read.
    overwrite : bool
        Whether to replace an existing file.
    num_workers : int
        Number of threads; less than 1 means one for each core.
    on_progress : callable, optional
        Called with the number of finished images and of all images.

    Returns
    -------
    IndexedSource
        What was written.

    Raises
    ------
    OptionError
        If the source cannot be read in place, or `path` exists or has another ending.
    StorageError
        If the index cannot be written, or a file is changed while it is read.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> from gpubeton.dataset import open_source
    >>> index_source(open_source("train"), "train.index").samples
    300
    >>> Loader("train.index", 100).reader.class_names
    ('class_0', 'class_1', 'class_2')
    """
    if not os.fspath(path).endswith(INDEX_SUFFIX) or "://" in os.fspath(path):
        raise OptionError(
            f"{os.fspath(path)}: expected a file of this machine whose name ends in {INDEX_SUFFIX}. It may be copied "
            "to a store, beside the files that it names"
        )
    target = resolve_target(Path(path))
    if target.exists() and not overwrite:
        raise OptionError(f"{os.fspath(path)} exists. Replace it: --overwrite (overwrite=True)")
    if not isinstance(source, LabelledSource):
        raise OptionError(f"a source of kind {source.kind} cannot be read in place. Convert it: gpubeton convert")
    report = on_progress or (lambda *_: None)
    silent: Progress = lambda *_: None  # noqa: E731  reading the headers is the short part
    index, unread = make_index(source, num_workers=num_workers, on_progress=silent if entry_points else report)
    if not entry_points:
        size, indexed = _write(target, index, [], ()), 0
    else:
        names = image_fields(index)
        with UnfinishedEntries(target, index, names, BESIDE, with_checksums=True) as entries:
            entries.find(num_workers, report)
            checksums = np.concatenate(
                [record.checksums ^ (np.uint32(DAMAGED) * record.damaged) for record in entries.records()]
            )
            rows = replace(index.rows[0], checksums=checksums), *index.rows[1:]
            index = Index(index.files, index.header, index.descriptors, rows, index.fingerprint, index.class_names)
            indexed = sum(int((record.block.counts > 0).sum()) for record in entries.records())
            size = _write(target, index, entries.parts, entries.records())
            entries.warn_of_damage(os.fspath(path), is_marked=True)
        entries.path.unlink(missing_ok=True)
    remove_if_abandoned(unfinished_path(target))
    outside = sorted({folder for file in index.files for folder in _outside_of(target, file)})
    return IndexedSource(Path(path), index.num_samples, len(index.files), size, indexed, unread, outside)


def _outside_of(target: Path, file: DataFile) -> Iterator[str]:
    """Name the folders or URLs of a container that do not lie in the folder of its index."""
    name = relative_name(os.fspath(target), file.path)
    if not isinstance(file.identity, FileListIdentity):
        yield from [folder_of(name)] * is_outside(name)
        return
    files = file.identity.files
    yield from [files.root] * is_outside(name)
    if far := [os.path.join(files.root, path) for path in files.outside]:  # noqa: PTH118
        yield os.path.commonpath([os.path.dirname(path) for path in far])  # noqa: PTH120


def _write(target: Path, index: Index, parts: list[tuple[int, str]], records: Iterable[Any]) -> int:
    """Write the file; return its size. `records` are those of entry points, part by part."""
    shards = [Shard.of(file, index) for file in index.files]
    with AtomicFile(target) as file:
        file.write(0, MAGIC.ljust(FIRST_COLUMN, b"\0"))
        columns = write_columns(file.write, FIRST_COLUMN, index)
        end = FIRST_COLUMN + columns[0]
        for number, described in enumerate(index.files):
            if isinstance(described.identity, FileListIdentity):
                names = described.identity.files.to_bytes()
                file.write(end, names)
                shards[number] = replace(shards[number], names=(end, end + len(names)))
                end += len(names)
        for part, of_part in groupby(records, key=lambda record: record.part):
            number, name = parts[part]
            start = end
            blocks: Iterator[Any] = (record.block for record in of_part)
            identity = identity_of(index, name, number, BESIDE)
            end = write_entry_points(file.write, start, name, identity, blocks, BESIDE)
            shards[number] = replace(shards[number], entry_place=EntryPlace((name,), start, end))
        shards = [replace(shard, name=relative_name(os.fspath(target), shard.name)) for shard in shards]
        text = Manifest.of(index, shards, columns, index.class_names).to_bytes()
        file.write(end, text + TRAILER.pack(end, len(text), MAGIC))
        for described in index.files:
            described.open().close()  # it has not changed meanwhile
        file.commit()
    return end + len(text) + TRAILER.size


def write_index(
    path: str | os.PathLike[str],
    rows: Iterable[tuple[str | os.PathLike[str], int, int, Mapping[str, float]]],
    *,
    class_names: Sequence[str] | None = None,
    entry_points: bool = True,
    overwrite: bool = False,
    num_workers: int = -1,
    on_progress: Progress | None = None,
    remote: RemoteOptions | None = None,
) -> IndexedSource:
    """Write an index of images in files of any kind, by their places.

    Parameters
    ----------
    path : str or path
        The new file, whose name ends in ".index".
    rows : iterable of (str or path, int, int, mapping of str to int or float)
        For each sample the file or URL that holds its image, the offset and size of the image there in bytes, and its
        numbers by the names of their fields, such as ``{"label": 3}``: the same names in each row. The image is a whole
        JPEG, PNG or other image file. Rows of one file follow each other.
    class_names : sequence of str, optional
        Names of the classes, whose position is the label.
    entry_points, overwrite, num_workers, on_progress
        As for `index_source`.
    remote : RemoteOptions, optional
        How the stores of URLs are reached.

    Returns
    -------
    IndexedSource
        What was written.

    Raises
    ------
    OptionError
        If there are no rows, or a place lies outside its file, or `path` exists or has another ending.
    StorageError
        If the index cannot be written, or a file is changed while it is read.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> from pathlib import Path
    >>> photos = sorted(Path("train/class_0").iterdir())
    >>> rows = [(photo, 0, photo.stat().st_size, {"label": 7}) for photo in photos]
    >>> write_index("some.index", rows).samples
    100
    >>> images, labels = next(iter(Loader("some.index", 2)))
    >>> labels.tolist()
    [[7], [7]]
    """
    return index_source(
        _Rows(rows, class_names, remote),
        path,
        entry_points=entry_points,
        overwrite=overwrite,
        num_workers=num_workers,
        on_progress=on_progress,
    )


class _Rows(ArchiveSource):
    """Samples by the places of their images."""

    kind = "rows"

    def __init__(
        self,
        rows: Iterable[tuple[str | os.PathLike[str], int, int, Mapping[str, float]]],
        class_names: Sequence[str] | None,
        remote: RemoteOptions | None,
    ) -> None:
        numbers: dict[str, int] = {}
        places: list[tuple[int, int, int]] = []
        columns: dict[str, list[float]] = {}
        for path, offset, size, values in rows:
            number = numbers.setdefault(os.fspath(path), len(numbers))
            places.append((number, offset, size))
            if len(places) == 1:
                columns = {name: [] for name in values}
            if values.keys() != columns.keys():
                raise OptionError(
                    f"{os.fspath(path)}: row {len(places) - 1} has values of {sorted(values)}, the first row of "
                    f"{sorted(columns)}. Give each row the same"
                )
            for name, value in values.items():
                columns[name].append(value)
        if not places or min(min(place) for place in places) < 0:
            raise OptionError("rows: expected at least one, and no negative offset or size")
        self._containers = [(path, find_identity(path, remote)) for path in numbers]
        self._places, self._names = np.array(places, np.int64), range(len(places))
        self.class_names = None if class_names is None else tuple(class_names)
        self._columns = columns
        self.fields = {
            name: "int" if all(isinstance(value, int | np.integer) for value in values) else "float"
            for name, values in columns.items()
        }

    @property
    def columns(self) -> Mapping[str, Sequence[float]]:
        return self._columns

    def name(self, index: int) -> str:
        _, offset, size = self._places[index].tolist()
        return f"{self._container(index)[0]}: {size} bytes at {offset}"
