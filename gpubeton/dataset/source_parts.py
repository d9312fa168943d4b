"""The parts that a source is split into, one for each shard: whole files, or some of its images or rows."""

from __future__ import annotations

import itertools
import os
import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton._sources import (
    LABEL,
    LabelledSource,
    Source,
    TarSource,
    find_files,
    open_kind,
    open_source,
    recognise,
    stat_identity,
)
from gpubeton.dataset.file_settings import choose_samples
from gpubeton.errors import OptionError
from gpubeton.format.dataset import expand_braces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubeton.dataset.file_settings import Settings

_SPLITS = re.compile(r"(?:^|[/_.-])(train|validation|valid|val|dev|test)(?=[/_.-])", re.IGNORECASE)


@dataclass(frozen=True)
class SourcePart:
    """What a shard is made of, without the other parts: small enough to be sent to a task."""

    kind: str
    options: Mapping[str, Any]  # of `open_source`
    fields: Mapping[str, str]  # this and the next ones are of the whole source
    class_names: tuple[str, ...] | None
    unused: tuple[str, ...]
    passed_over: Mapping[str, int]
    labels_are_names: bool | None
    files: tuple[str, ...] = ()  # that are opened
    rows: tuple[int, ...] | None = None  # of the only file; None: all of all files
    images: tuple[str, ...] = ()  # in place of files
    labels: tuple[Any, ...] = ()  # of the images

    def open(self) -> Source:
        """Open the part."""
        return ImageList(self) if self.images else JoinedFiles(self)


def split_parts(
    source: str, kind: str | None, options: Mapping[str, Any], settings: Settings, count: int
) -> list[SourcePart]:
    """Split a source into parts of equal size: of whole files if it has several, otherwise of images or rows."""
    kind = kind or _recognise(source)
    files = _list_files(source, kind)
    is_whole = len(files) > 1 or kind == "webdataset"
    opened = _open_first(files, kind, options, is_whole=is_whole)
    images: Sequence[str] | None = None
    labels: Sequence[Any] = ()
    are_names: bool | None = None
    if isinstance(opened, LabelledSource):
        images, labels, are_names = opened.image_files(), opened.labels, opened.labels_are_names
    if is_whole and images is not None:
        raise OptionError(f"{source}: {len(files)} tables of paths; expected one, or tables that hold the images")
    if is_whole and settings.limit is not None:
        raise OptionError(f"{source}: limit is {settings.limit}, but shards of it are made of whole files")
    passed_over = {} if is_whole else dict(opened.passed_over)  # otherwise those of the first file
    part = SourcePart(
        kind, options, dict(opened.fields), opened.class_names, tuple(opened.unused), passed_over, are_names
    )
    chosen = choose_samples(len(files) if is_whole else len(opened), settings).tolist()
    if not 1 <= count <= len(chosen):
        unit = "files" if is_whole else "samples"
        raise OptionError(f"{source}: {count} shards of {len(chosen)} {unit}; expected 1 to {len(chosen)} shards")
    bounds = [number * len(chosen) // count for number in range(count + 1)]
    shares = [tuple(chosen[start:stop]) for start, stop in itertools.pairwise(bounds)]
    if is_whole:
        return [replace(part, files=tuple(files[number] for number in share)) for share in shares]
    if images is None:
        return [replace(part, files=(source,), rows=share) for share in shares]
    root = options.get("root") or os.path.dirname(source)  # noqa: PTH120  a text
    paths = [os.path.join(root, name) for name in images]  # noqa: PTH118
    return [
        replace(part, images=tuple(paths[row] for row in share), labels=tuple(labels[row] for row in share if labels))
        for share in shares
    ]


def _open_first(files: list[str], kind: str, options: Mapping[str, Any], *, is_whole: bool) -> Source:
    """Open the first file, which shows the fields and the classes; all tar files if these name the classes."""
    opened = open_source(files[0], kind, **options)
    if not is_whole or opened.class_names is None or "class_names" in options:
        return opened
    if kind != "webdataset":
        raise OptionError(
            f"{files[0]}: its labels are names of classes, and each of the {len(files)} files may have others. "
            "Give the names of all: --classes FILE"
        )
    return TarSource(files, **options)


def _recognise(source: str) -> str:
    kind = recognise(source)
    is_folder_of_tables = kind == "folder" and _tables(source) and not any(map(os.DirEntry.is_dir, os.scandir(source)))
    return "table" if is_folder_of_tables else kind


def _tables(folder: str) -> list[str]:
    return sorted(entry.path for entry in os.scandir(folder) if entry.name.lower().endswith(".parquet"))


def _list_files(source: str, kind: str) -> list[str]:
    """List the files that a source consists of; itself if it is not divided by files."""
    if kind == "webdataset":
        return find_files(source, ".tar")
    if kind != "table":
        return [source]
    is_folder = Path(source).is_dir()
    files = _tables(source) if is_folder else expand_braces(source)
    splits = {match.lower() for name in files for match in _SPLITS.findall(name.removeprefix(source))}
    if is_folder and len(splits) > 1:
        raise OptionError(
            f"{source}: files of several splits by their names: {', '.join(sorted(splits))}. Choose one, such as "
            f"{Path(files[0]).name!r}, with braces for several files: 'train-{{00000..00013}}.parquet'"
        )
    return files or [source]


class ImageList(LabelledSource):
    """Some images of a folder or a table, with their labels."""

    def __init__(self, part: SourcePart) -> None:
        self.kind, self.fields, self.class_names = part.kind, part.fields, part.class_names
        self._images, self._labels = part.images, part.labels

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return self._with_label(Path(self._images[index]), index)

    def name(self, index: int) -> str:
        return self._images[index]

    def identity(self, index: int) -> str:
        return f"{self._images[index]} {self._label_text(index)} {stat_identity(self._images[index])}"


class JoinedFiles(Source):
    """Whole files, or rows of one, with the fields and the classes of the whole source."""

    def __init__(self, part: SourcePart) -> None:
        self.kind, self.fields, self.class_names = part.kind, part.fields, part.class_names
        options = dict(part.options)
        if part.class_names is not None and part.kind not in ("folder", "zip"):
            options["class_names"] = part.class_names
        if part.labels_are_names is not None and part.kind not in ("folder", "torchvision", "zip"):
            options["are_names"] = part.labels_are_names
        rows = part.rows
        if rows is not None and (part.kind == "huggingface" or part.files[0].lower().endswith(".parquet")):
            options["rows"], rows = rows, tuple(range(len(rows)))  # the others are not read
        self._sources = [self._open(name, options) for name in part.files]
        self._ends = list(itertools.accumulate(map(len, self._sources)))
        self._rows = range(self._ends[-1]) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        number, row = self._find(index)
        return self._sources[number][row][: 1 + len(self.fields)]

    def name(self, index: int) -> str:
        number, row = self._find(index)
        return self._sources[number].name(row)

    def identity(self, index: int) -> str:
        number, row = self._find(index)
        return f"{number} {self._sources[number].identity(row)}"  # files may have equal rows

    def _find(self, index: int) -> tuple[int, int]:
        row = self._rows[index]
        number = bisect_right(self._ends, row)
        return number, row - (self._ends[number - 1] if number else 0)

    def _open(self, name: str, options: Mapping[str, Any]) -> Source:
        opened = open_kind(name, self.kind, options)
        label, expected = opened.fields.get(LABEL), self.fields.get(LABEL)
        is_alike = label == expected or (label, expected) == ("int", "float")
        if self.fields and not (is_alike and opened.class_names == self.class_names):
            kinds = {None: "missing", "int": "whole numbers or names", "float": "numbers"}
            raise OptionError(
                f"{name}: its labels are {kinds[label]}, its classes {opened.class_names}; expected "
                f"{kinds[expected]}, {self.class_names}, as in the first file. Make them alike, choose the column or "
                "the ending (--label), or give the names of all classes (--classes FILE)"
            )
        return opened
