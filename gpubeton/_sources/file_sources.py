"""Sources of loose files or objects: images in folders, and images that a table lists."""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.file_list import FileList, FileListIdentity, path_of
from gpubeton._bytes.object_store import list_tree
from gpubeton._bytes.open_files import open_bytes
from gpubeton._machine import install
from gpubeton._sources.source import (
    LABEL,
    PACKED,
    LabelledSource,
    Labels,
    Places,
    choose_column,
    choose_image_column,
    places_of_rows,
    stat_identity,
)
from gpubeton.errors import OptionError
from gpubeton.fields.codecs import CODECS
from gpubeton.fields.jpeg import decode_rgb, read_frame
from gpubeton.fields.pixels import file_content

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton._bytes.store_client import RemoteOptions

#: torchvision's list, and files that can be stored as they are.
_SUFFIXES = ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"
IMAGE_SUFFIXES = tuple(dict.fromkeys([*_SUFFIXES, *(f".{codec.suffix}" for codec in CODECS.values())]))
#: Usual names of the parts of a dataset.
_PARTS = frozenset({"train", "training", "val", "valid", "validation", "eval", "test"})
#: Files and folders of notebooks, macOS and version control; macOS also puts a folder into zip files.
_HIDDEN = re.compile(r"(?:^|/)(?:\.[^/]*|__MACOSX(?=/|$))")


class ImageFolder:
    """Image files in one folder per class, in the order of torchvision's ImageFolder, so that labels are the same."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        names: Iterable[str] | None = None,  # of files in the root, with slashes; of folders with one at the end
        suffixes: Sequence[str] = IMAGE_SUFFIXES,
    ) -> None:
        self.files: list[str] = []  # paths from the root on, as text: there may be millions
        self.labels: list[int] = []  # none without classes
        self.passed_over: Counter[str] = Counter()  # number of other entries, by their ending or kind
        hidden, folders = set[str](), dict[str, list[str]]()
        for path in self._walk(root) if names is None else names:
            if match := _HIDDEN.search(path):
                hidden.add(path[: match.end()])
                continue
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, []).append(name)
        self.passed_over.update(["hidden"] * len(hidden))
        # The position of a name is the label.
        self.classes = tuple(sorted({folder.partition("/")[0] for folder in folders if folder}))
        if len(self.classes) > 1 and _PARTS.issuperset(map(str.lower, self.classes)):
            warnings.warn(
                f"{os.fspath(root)}: the folders {', '.join(self.classes)} become classes, as every folder does. If "
                f"they are parts of a dataset, give one of them: {os.fspath(root).rstrip('/')}/{self.classes[-1]}",
                stacklevel=2,
            )
        numbers = {name: label for label, name in enumerate(self.classes)}
        for folder in sorted(folders, key=lambda folder: (folder.partition("/")[0], folder)):
            label, files = numbers.get(folder.partition("/")[0]), sorted(filter(None, folders[folder]))
            # Images beside the folders of the classes have no class.
            has_place = label is not None or not self.classes
            images = [name for name in files if has_place and name.lower().endswith(tuple(suffixes))]
            self.passed_over.update(Path(name).suffix.lower() for name in set(files).difference(images))
            self.files += [f"{folder}/{name}" for name in images] if folder else images
            self.labels += [] if label is None else [label] * len(images)
        endings = f"no images in it ({', '.join(suffixes)})"
        if empty := sorted(set(range(len(self.classes))).difference(self.labels)):
            name = self.classes[empty[0]]
            raise OptionError(
                f"{os.fspath(root).rstrip('/')}/{name}: {endings}. Every folder is a class; remove folders without "
                "images, or move them away"
            )
        if not self.files:
            others = sorted(ending for ending in self.passed_over if ending.startswith("."))[:5]
            there = f"; it has files that end in {', '.join(others)}" if others else ""
            advice = "" if PACKED.isdisjoint(others) else ". Decompress tars: then their samples are read in place"
            raise OptionError(f"{os.fspath(root)}: {endings}, and no folders of images, one per class{there}{advice}")

    def _walk(self, root: str | os.PathLike[str]) -> Iterator[str]:
        """List the files and folders in a folder; those behind links, too, but each folder of a class once."""
        for entry in os.scandir(root):
            if entry.is_file():
                yield entry.name
            if not entry.is_dir():
                continue
            yield f"{entry.name}/"
            seen = {os.path.realpath(entry.path)}
            for parent, folders, names in () if _HIDDEN.match(entry.name) else os.walk(entry.path, followlinks=True):
                inside = Path(parent).relative_to(root).as_posix()
                yield from (f"{inside}/{name}" for name in names)
                visible = [name for name in folders if not _HIDDEN.match(name)]
                yield from (f"{inside}/{name}/" for name in set(folders).difference(visible))
                folders.clear()
                for name in visible:
                    target = os.path.realpath(os.path.join(parent, name))  # noqa: PTH118  a text
                    # A link to a folder that holds it would bring the samples of all classes, again and again.
                    if target in seen or Path(target) in Path(os.path.realpath(parent)).parents:
                        self.passed_over["links to folders that were read"] += 1
                    else:
                        seen.add(target)
                        folders.append(name)


class FileSource(LabelledSource):
    """Images that are files, or objects of a store, by their paths from a folder on."""

    loose_files: tuple[str, Sequence[str]]

    def __init__(
        self,
        root: str,
        names: Sequence[str],
        labels: Sequence[Any],
        remote: RemoteOptions | None = None,
        states: NDArray[np.int64] | None = None,  # see `FileList.of`
    ) -> None:
        self.loose_files, self._labels = (root, names), labels
        self._objects = FileList.of(root, names, remote, states) if "://" in root else None

    def __len__(self) -> int:
        return len(self.loose_files[1])

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        image = Path(self._path(index)) if self._objects is None else self._objects.read(index)
        return self._with_label(image, index)

    def name(self, index: int) -> str:
        return self._path(index)

    def identity(self, index: int) -> str:
        files = self._objects
        state = stat_identity(self._path(index)) if files is None else f"{files.sizes[index]} {files.times[index]}"
        return f"{self.loose_files[1][index]} {self._label_text(index)} {state}"

    def input_files(self) -> Iterator[str]:
        return map(self._path, range(len(self)))

    def places(self) -> Places:
        root, names = self.loose_files
        files = self._objects or FileList.of(str(Path(root).absolute()), names)  # as they are now
        identity, rows = FileListIdentity.of(files), [np.zeros_like(files.sizes), files.starts, files.sizes]
        return places_of_rows([(identity.name, identity)], np.stack(rows, axis=1))

    def _path(self, index: int) -> str:
        root, names = self.loose_files
        return path_of(root, names[index])


class FolderSource(FileSource):
    """Images in a folder."""

    # Folders in it are classes, as in torchvision's ImageFolder. Without any, images directly in it have no labels.

    kind = "folder"

    def __init__(
        self,
        root: str | os.PathLike[str],
        suffixes: Sequence[str] = IMAGE_SUFFIXES,
        *,
        remote: RemoteOptions | None = None,
    ) -> None:
        folder, states = os.fspath(root), None
        if "://" in folder:
            folder = f"{folder.rstrip('/')}/"
            names, states = list_tree(folder, remote)
            images = ImageFolder(folder, names, suffixes)
            rows = dict(zip(names, range(len(names)), strict=True))
            states = states[[rows[name] for name in images.files]]
        else:
            images, folder = ImageFolder(folder, suffixes=suffixes), str(Path(root).absolute())
        super().__init__(folder, images.files, images.labels, remote, states)
        self.passed_over = images.passed_over
        if images.classes:
            self.fields, self.class_names = {LABEL: "int"}, images.classes


class CheckedFolder(FolderSource):
    """Images in a folder; JPEG files are decoded, to find damaged ones, unless they will be made smaller."""

    def __init__(self, root: str | os.PathLike[str], suffixes: Sequence[str], max_side: int | None) -> None:
        super().__init__(root, suffixes)
        self._max_side = max_side

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        path, *label = super().__getitem__(index)
        content = file_content(path) or b""
        frame = read_frame(content)
        if frame is not None and (self._max_side is None or max(frame.height, frame.width) <= self._max_side):
            decode_rgb(content)
        return content, *label


_IMAGE_COLUMNS = ("image", "path", "image_path", "img_path", "img", "file", "filepath", "file_name", "filename")
_LABEL_COLUMNS = ("label", "target", "class_id", "class", "category", "y")
_CLASS_COLUMNS = ("class_name", "class")
_TABS = (".tsv", ".tab")


def open_table(
    path: str | os.PathLike[str],
    *,
    image: str | None = None,
    label: str | None = None,
    root: str | os.PathLike[str] | None = None,
    class_names: Sequence[str] | None = None,
    rows: Sequence[int] | None = None,  # of Parquet: no others are read; the classes are known
    remote: RemoteOptions | None = None,
) -> LabelledSource:
    """Open the images and labels that a CSV, TSV or Parquet file lists."""
    # A column gives each image's path, relative to the table's folder or to `root`, or absolute, or its URL; in Parquet
    # it may hold the image files themselves. Another column gives its label: whole numbers, numbers, or names of
    # classes. If labels are whole numbers, a column ``class_name`` (or ``class``) names the classes. Without arguments,
    # columns are found by their usual names.
    table = os.fspath(path)
    ending = os.path.splitext(table.partition("?")[0] if "://" in table else table)[1].lower()  # noqa: PTH122  a URL, too
    file: Any = table
    if "://" in table or ending != ".parquet":
        with open_bytes(table, remote=remote) as opened:
            file = io.BytesIO(opened.read_exactly(0, opened.size))
    columns = _read_parquet(table, file, rows) if ending == ".parquet" else _read_csv(table, file, ending)
    image = choose_image_column(table, columns, image, _usual(columns, _IMAGE_COLUMNS))
    images = columns[image]
    folder = None if root is None else os.fspath(root)
    source: LabelledSource
    if isinstance(images, ArrowColumn):
        source = TableOfImages(table, images, folder, rows)
    else:
        source = TableOfFiles(table, [name if isinstance(name, str) else "" for name in images], folder, rows, remote)
    others = {key: columns[key] for key in columns if key != image}
    label = choose_column(table, others, label, _usual(others, _LABEL_COLUMNS), "--label")
    source.unused = [name for name in others if name != label and (label is None or name not in _CLASS_COLUMNS)]
    if label is not None:
        values, names = columns[label], class_names or None
        if names is None and rows is None and (names := _class_names(columns, label)):
            values = list(map(int, values))  # its names were found by its numbers
        source.set_labels(Labels(values, names, where=table))
    return source


class TableOfFiles(FileSource):
    """Images whose paths or URLs are in a table."""

    kind = "table"

    def __init__(
        self,
        table: str,
        names: Sequence[str],
        root: str | None,
        rows: Sequence[int] | None,
        remote: RemoteOptions | None,
    ) -> None:
        self._table, self._rows = table, range(len(names)) if rows is None else rows
        folder = os.path.dirname(table) if root is None else root  # noqa: PTH120  a URL, too
        if root is None and names and all("://" in name for name in names):
            folder = os.path.commonprefix(names).partition("?")[0].rpartition("/")[0]  # noqa: RUF071  parts follow
            if folder.count("/") < 2:
                raise OptionError(f"{table}: URLs of several buckets or servers; expected those of one")
        if "://" in folder:
            folder = f"{folder.rstrip('/')}/"
            names = [name.removeprefix(folder) for name in names]
        super().__init__(folder, names, (), remote)

    def name(self, index: int) -> str:
        return f"{super().name(index)} (row {self._rows[index]} of {self._table})"

    def input_files(self) -> Iterator[str]:
        yield self._table
        yield from super().input_files()


class TableOfImages(LabelledSource):
    """Images in a column of a Parquet file."""

    kind = "table"

    def __init__(self, table: str, images: ArrowColumn, root: str | None, rows: Sequence[int] | None) -> None:
        self._table, self._images = table, images
        self._rows = range(len(images)) if rows is None else rows
        self._root = Path(table).parent if root is None else Path(root)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        value = self._images[index]
        content = value.get("bytes") or value.get("path") if isinstance(value, Mapping) else value
        if isinstance(content, str):
            content = self._root / content
        elif not isinstance(content, bytes):
            raise TypeError(f"{value!r} is neither a path nor the content of a file")
        return self._with_label(content, index)

    def name(self, index: int) -> str:
        return f"row {self._rows[index]} of {self._table}"

    def identity(self, index: int) -> str:
        return f"{self._rows[index]} {self._label_text(index)} {stat_identity(self._table)}"

    def input_files(self) -> Sequence[str]:
        return [self._table]


def _usual(columns: Iterable[str], names: Sequence[str]) -> list[str]:
    """List the columns of usual names, in upper or lower case."""
    by_name = {column.lower(): column for column in columns}
    return [by_name[name] for name in names if name in by_name]


def _class_names(columns: Mapping[str, Sequence[Any]], label: str) -> tuple[str, ...] | None:
    """Read the names of classes from another column than their numbers, if each number has one name."""
    names = next((columns[name] for name in _CLASS_COLUMNS if name in columns and name != label), None)
    if names is None:
        return None
    try:
        by_number = {int(number): str(name) for number, name in zip(columns[label], names, strict=True)}
    except (TypeError, ValueError):
        return None
    if min(by_number) < 0 or len(set(zip(map(int, columns[label]), names, strict=True))) != len(by_number):
        return None
    # A number that no sample has is a class without a name.
    return tuple(by_number.get(number, str(number)) for number in range(max(by_number) + 1))


def _read_csv(path: str, file: io.BytesIO, ending: str) -> dict[str, list[Any]]:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    lines = [row for row in csv.reader(text, delimiter="\t" if ending in _TABS else ",") if row]
    if len(lines) < 2:
        raise OptionError(f"{path}: no rows in it, expected a line with the columns' names, then one for each sample")
    header, *rows = lines
    odd = next((number for number, row in enumerate(rows) if len(row) != len(header)), None)
    if odd is not None:
        raise OptionError(f"{path}: row {odd} has {len(rows[odd])} values, expected {len(header)}: {', '.join(header)}")
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def _read_parquet(path: str, file: Any, rows: Sequence[int] | None) -> Mapping[str, Sequence[Any]]:
    try:
        from pyarrow import parquet, types
    except ImportError as error:
        raise OptionError(
            f"{path}: Parquet needs {error.name}, which is not installed. Try: {install('parquet')}"
        ) from error
    try:
        table, places = _read_rows(file, rows) if rows is not None else (parquet.read_table(file), None)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, and not of the content
            raise
        raise OptionError(f"{path}: no Parquet file that can be read ({error})") from error
    columns: dict[str, Sequence[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        # Files of images stay in Arrow's memory: as objects of Python there would be all of them twice.
        if types.is_binary(column.type) or types.is_large_binary(column.type) or types.is_nested(column.type):
            columns[name] = ArrowColumn(column, range(len(column)) if places is None else places)
        else:
            values = column.to_pylist()
            columns[name] = values if places is None else [values[place] for place in places]
    return columns


def _read_rows(path: Any, rows: Sequence[int]) -> tuple[Any, list[int]]:
    """Read some rows, one row group after the other; give a table of them, and the place of each row in it."""
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        ends, numbers = np.cumsum(counts), np.asarray(rows)
        groups, tables = np.searchsorted(ends, numbers, "right"), []
        for group in np.unique(groups).tolist():
            in_group = numbers[groups == group] - (ends[group] - counts[group])
            tables.append(file.read_row_group(group).take(in_group))
    # Not in the order of the rows: columns of more than 2 GiB cannot be put into another.
    places = np.empty(len(numbers), np.int64)
    places[np.argsort(groups, kind="stable")] = np.arange(len(numbers))
    return pa.concat_tables(tables), places.tolist()


class ArrowColumn(Sequence[Any]):
    """A column of a table of Arrow, of which each value is converted when it is used."""

    def __init__(self, column: Any, places: Sequence[int]) -> None:
        self._column, self._places = column, places

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: Any) -> Any:
        return self._column[self._places[index]].as_py()
