"""TableSource: images and labels that a CSV or Parquet file lists."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpubeton.conversion.source import LABEL, Labels, Source, stat_identity
from gpubeton.errors import OptionError

__all__ = ["TableSource"]

_IMAGE_COLUMNS = ("image", "path", "image_path", "img_path", "img", "file", "filepath", "file_name", "filename")
_LABEL_COLUMNS = ("label", "target", "class_id", "class", "category", "y")
_CLASS_COLUMNS = ("class_name", "class")


class TableSource(Source):
    """Images and labels that a CSV, TSV or Parquet file lists.

    A column gives each image's path, relative to the table's folder or absolute; in Parquet it may hold the image
    files themselves. Another one gives its label: whole numbers, numbers, or names of classes. Where labels are whole
    numbers and a column ``class_name`` (or ``class``) stands beside them, that names the classes.

    Parameters
    ----------
    path : str or path
        The table. CSV and TSV need a first line with the columns' names; Parquet needs ``gpubeton[parquet]``.
    image, label : str, optional
        The columns. By default found by their usual names; without a label's column there are no labels.
    root : str or path, optional
        What paths are relative to.
    class_names : sequence of str, optional
        Names of the classes in the order of their numbers.

    Raises
    ------
    OptionError
        If a column is not there, or pyarrow is not installed.
    """

    kind = "table"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        image: str | None = None,
        label: str | None = None,
        root: str | os.PathLike[str] | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        self._path = Path(path)
        self._root = self._path.parent if root is None else Path(root)
        columns = _read_parquet(self._path) if self._path.suffix.lower() == ".parquet" else _read_csv(self._path)
        image = self._find(columns, image, _IMAGE_COLUMNS, "images", "--image")
        if image is None:
            raise OptionError(
                f"{path}: no column of images; the columns are {', '.join(map(repr, columns))}. Name it: --image COLUMN"
            )
        self._images = columns[image]
        label = self._find(
            {key: columns[key] for key in columns if key != image}, label, _LABEL_COLUMNS, "labels", "--label"
        )
        self._labels: list[int] | list[float] = []
        self.fields = {}
        if label is not None:
            names = class_names or _names_beside(columns, label)
            labels = Labels(columns[label], names, where=os.fspath(path))
            self._labels, self.fields, self.class_names = labels.numbers, {LABEL: labels.kind}, labels.class_names

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        value = self._images[index]
        content = value.get("bytes") if isinstance(value, Mapping) else value
        if not isinstance(content, bytes):
            content = self._file(value)
        return (content, self._labels[index]) if self._labels else (content,)

    def name(self, index: int) -> str:
        value = self._images[index]
        if isinstance(value, str):
            return f"{self._file(value)} (row {index} of {self._path})"
        return f"row {index} of {self._path}"

    def identity(self, index: int) -> str:
        value, label = self._images[index], self._labels[index] if self._labels else ""
        if isinstance(value, str):
            return f"{value} {label} {stat_identity(self._file(value))}"
        return f"{index} {label} {stat_identity(self._path)}"

    def _file(self, value: Any) -> Path:
        path = value.get("path") if isinstance(value, Mapping) else value
        if not isinstance(path, str) or not path:
            raise ValueError(f"{value!r} is neither a path nor the content of a file")
        return self._root / path

    def _find(
        self, columns: Mapping[str, Any], wanted: str | None, usual: Sequence[str], what: str, option: str
    ) -> str | None:
        if wanted is not None:
            if wanted not in columns:
                raise OptionError(
                    f"{self._path}: no column {wanted!r} for the {what}; there are {', '.join(map(repr, columns))}. "
                    f"Choose one of them: {option} COLUMN"
                )
            return wanted
        by_name = {name.lower(): name for name in columns}
        return next((by_name[name] for name in usual if name in by_name), None)


def _names_beside(columns: Mapping[str, Sequence[Any]], label: str) -> tuple[str, ...] | None:
    """Read the names of classes from a column beside that of their numbers, if there is one and each has one name."""
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


def _read_parquet(path: Path) -> dict[str, list[Any]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise OptionError(
            f"{path}: Parquet needs {error.name}, which is not installed. Try: pip install 'gpubeton[parquet]'"
        ) from error
    table = parquet.read_table(path)
    return {name: table.column(name).to_pylist() for name in table.column_names}
