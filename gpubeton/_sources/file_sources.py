"""Sources of loose files: images in folders, and images that a table lists."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpubeton._machine import install
from gpubeton._sources.image_folder import IMAGE_SUFFIXES, ImageFolder
from gpubeton._sources.source import (
    LABEL,
    LabelledSource,
    Labels,
    Places,
    choose_column,
    choose_image_column,
    places_of_files,
    stat_identity,
)
from gpubeton.errors import OptionError
from gpubeton.fields.jpeg import decode_rgb, read_frame
from gpubeton.fields.pixels import file_content


class FileSource(LabelledSource):
    """Images that are files, by their paths from a folder on."""

    loose_files: tuple[str, Sequence[str]]

    def __init__(self, root: str | os.PathLike[str], names: Sequence[str], labels: Sequence[Any]) -> None:
        self.loose_files, self._labels = (os.fspath(root), names), labels

    def __len__(self) -> int:
        return len(self.loose_files[1])

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return self._with_label(Path(self.name(index)), index)

    def name(self, index: int) -> str:
        root, names = self.loose_files
        return os.path.join(root, names[index])  # noqa: PTH118  a text

    def identity(self, index: int) -> str:
        return f"{self.loose_files[1][index]} {self._label_text(index)} {stat_identity(self.name(index))}"

    def input_files(self) -> Iterator[str]:
        return map(self.name, range(len(self)))

    def places(self) -> Places:
        return places_of_files(*self.loose_files)


class FolderSource(FileSource):
    """Images in a folder."""

    # Folders in it are classes, as in torchvision's ImageFolder. Without any, images directly in it have no labels.

    kind = "folder"

    def __init__(self, root: str | os.PathLike[str], suffixes: Sequence[str] = IMAGE_SUFFIXES) -> None:
        images = ImageFolder(root, suffixes=suffixes)
        super().__init__(Path(root).absolute(), images.files, images.labels)
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


class TableSource(LabelledSource):
    """Images and labels that a CSV, TSV or Parquet file lists."""

    # A column gives each image's path, relative to the table's folder or to `root`, or absolute; in Parquet it may hold
    # the image files themselves. Another column gives its label: whole numbers, numbers, or names of classes. If labels
    # are whole numbers, a column ``class_name`` (or ``class``) names the classes. Without arguments, columns are found
    # by their usual names.

    kind = "table"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        image: str | None = None,
        label: str | None = None,
        root: str | os.PathLike[str] | None = None,
        class_names: Sequence[str] | None = None,
        rows: Sequence[int] | None = None,  # of Parquet: no others are read; the classes are known
    ) -> None:
        self._path, self._rows = Path(path), rows
        self._root = self._path.parent if root is None else Path(root)
        is_parquet = self._path.suffix.lower() == ".parquet"
        columns: Mapping[str, Sequence[Any]] = _read_parquet(self._path, rows) if is_parquet else _read_csv(self._path)
        image = choose_image_column(path, columns, image, _usual(columns, _IMAGE_COLUMNS))
        self._images = columns[image]
        if all(isinstance(value, str) for value in self._images):
            self.loose_files = os.fspath(self._root), self._images
        others = {key: columns[key] for key in columns if key != image}
        label = choose_column(path, others, label, _usual(others, _LABEL_COLUMNS), "--label")
        self.unused = [name for name in others if name != label and (label is None or name not in _CLASS_COLUMNS)]
        if label is not None:
            values, names = columns[label], class_names or None
            if names is None and rows is None and (names := _class_names(columns, label)):
                values = list(map(int, values))  # its names were found by its numbers
            self._set_labels(Labels(values, names, where=os.fspath(path)))

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        value = self._images[index]
        content = value.get("bytes") if isinstance(value, Mapping) else value
        if not isinstance(content, bytes):
            content = self._file(value)
        return self._with_label(content, index)

    def name(self, index: int) -> str:
        value = self._images[index]
        row = f"row {self._row(index)} of {self._path}"
        return f"{self._file(value)} ({row})" if isinstance(value, str) else row

    def identity(self, index: int) -> str:
        value, label = self._images[index], self._label_text(index)
        if isinstance(value, str):
            return f"{value} {label} {stat_identity(self._file(value))}"
        return f"{self._row(index)} {label} {stat_identity(self._path)}"

    def input_files(self) -> Iterator[Path]:
        yield self._path
        if self.loose_files:
            yield from map(self._file, self._images)

    def places(self) -> Places:
        if isinstance(self._images, ArrowColumn):
            raise OptionError(
                f"{self._path}: its images are compressed parts of it, and no files. Convert it: "
                f"gpubeton convert {self._path} NAME.beton"
            )
        return places_of_files(self._root, [value if isinstance(value, str) else "" for value in self._images])

    def _row(self, index: int) -> int:
        return index if self._rows is None else self._rows[index]

    def _file(self, value: Any) -> Path:
        path = value.get("path") if isinstance(value, Mapping) else value
        if not isinstance(path, str) or not path:
            raise ValueError(f"{value!r} is neither a path nor the content of a file")
        return self._root / path


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


def _read_csv(path: Path) -> dict[str, list[Any]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter="\t" if path.suffix.lower() in (".tsv", ".tab") else ",")
        header = next(reader, None)
        rows = [row for row in reader if row]
    if header is None or not rows:
        raise OptionError(f"{path}: no rows in it, expected a line with the columns' names, then one for each sample")
    odd = next((number for number, row in enumerate(rows) if len(row) != len(header)), None)
    if odd is not None:
        raise OptionError(f"{path}: row {odd} has {len(rows[odd])} values, expected {len(header)}: {', '.join(header)}")
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def _read_parquet(path: Path, rows: Sequence[int] | None) -> Mapping[str, Sequence[Any]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise OptionError(
            f"{path}: Parquet needs {error.name}, which is not installed. Try: {install('parquet')}"
        ) from error
    try:
        table, places = _read_rows(path, rows) if rows is not None else (parquet.read_table(path), None)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, and not of the content
            raise
        raise OptionError(f"{path}: no Parquet file that can be read ({error})") from error
    columns = {name: table.column(name) for name in table.column_names}
    # Files of images stay in Arrow's memory: as objects of Python there would be all of them twice.
    return {
        name: ArrowColumn(column, places) if _holds_files(column.type) else _placed(column.to_pylist(), places)
        for name, column in columns.items()
    }


def _read_rows(path: Path, rows: Sequence[int]) -> tuple[Any, list[int]]:
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


def _placed(values: list[Any], places: list[int] | None) -> list[Any]:
    return values if places is None else [values[place] for place in places]


def _holds_files(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_nested(kind))


class ArrowColumn(Sequence[Any]):
    """A column of a table of Arrow, of which each value is converted when it is used."""

    def __init__(self, column: Any, places: list[int] | None = None) -> None:
        self._column, self._places = column, places

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: Any) -> Any:
        return self._column[index if self._places is None else self._places[index]].as_py()
