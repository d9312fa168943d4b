"""The parts that a source is split into, one for each shard: whole files, or some of its images or rows."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton._sources import LABEL, FileSource, LabelledSource, Source, find_files, open_source, recognise
from gpubeton.dataset.file_settings import choose_samples
from gpubeton.errors import OptionError
from gpubeton.format.dataset import expand_braces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubeton._bytes import RemoteOptions
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
    root: str = ""
    images: tuple[str, ...] = ()  # paths from the root on, in place of files
    labels: tuple[Any, ...] = ()  # of the images

    def open(self) -> Source:
        """Open the part."""
        remote = self.options.get("remote")
        source: Source = FileSource(self.root, self.images, self.labels, remote) if self.images else JoinedFiles(self)
        source.kind, source.fields, source.class_names = self.kind, self.fields, self.class_names
        return source


def split_parts(
    source: str, kind: str | None, options: Mapping[str, Any], settings: Settings, count: int
) -> list[SourcePart]:
    """Split a source into parts of equal size: of whole files if it has several, otherwise of images or rows."""
    kind = kind or _recognise(source, options.get("remote"))
    files = _list_files(source, kind, options.get("remote"))
    is_whole = len(files) > 1 or kind == "webdataset"
    opened = _open_first(files, kind, options, is_whole=is_whole)
    loose, labels = opened.loose_files, opened.columns.get(LABEL, ())
    if is_whole and loose is not None:
        raise OptionError(f"{source}: {len(files)} tables of paths; expected one, or tables that hold the images")
    if is_whole and settings.limit is not None:
        raise OptionError(f"{source}: limit is {settings.limit}, but shards of it are made of whole files")
    passed_over = {} if is_whole else dict(opened.passed_over)  # otherwise those of the first file
    part = SourcePart(
        kind, options, dict(opened.fields), opened.class_names, tuple(opened.unused), passed_over,
        opened.labels_are_names,
    )  # fmt: skip
    chosen = choose_samples(len(files) if is_whole else len(opened), settings).tolist()
    if not 1 <= count <= len(chosen):
        unit = "files" if is_whole else "samples"
        raise OptionError(f"{source}: {count} shards of {len(chosen)} {unit}; expected 1 to {len(chosen)} shards")
    bounds = [number * len(chosen) // count for number in range(count + 1)]
    shares = [tuple(chosen[start:stop]) for start, stop in itertools.pairwise(bounds)]
    if is_whole:
        return [replace(part, files=tuple(files[number] for number in share)) for share in shares]
    if loose is None:
        return [replace(part, files=(source,), rows=share) for share in shares]
    root, images = loose
    return [
        replace(
            part, root=root, images=tuple(images[row] for row in share),
            labels=tuple(labels[row] for row in share if labels),
        )
        for share in shares
    ]  # fmt: skip


def _open_first(files: list[str], kind: str, options: Mapping[str, Any], *, is_whole: bool) -> LabelledSource:
    """Open the first file, which shows the fields and the classes; all tar files if these name the classes."""
    opened = open_source(files[0], kind, **options)
    if not is_whole or opened.class_names is None or "class_names" in options:
        return opened
    if kind != "webdataset":
        raise OptionError(
            f"{files[0]}: its labels are names of classes, and each of the {len(files)} files may have others. "
            "Give the names of all: --classes FILE"
        )
    return open_source(files, kind, **options)


def _recognise(source: str, remote: RemoteOptions | None) -> str:
    kind = recognise(source, remote)
    is_here = kind == "folder" and "://" not in source
    return "table" if is_here and _tables(source) and not any(map(os.DirEntry.is_dir, os.scandir(source))) else kind


def _tables(folder: str) -> list[str]:
    return sorted(entry.path for entry in os.scandir(folder) if entry.name.lower().endswith(".parquet"))


def _list_files(source: str, kind: str, remote: RemoteOptions | None) -> list[str]:
    """List the files that a source consists of; itself if it is not divided by files."""
    if kind == "webdataset":
        return find_files(source, ".tar", remote)
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


class JoinedFiles(Source):
    """Whole files, or rows of one."""

    def __init__(self, part: SourcePart) -> None:
        rows = part.rows
        options = dict(part.options)
        if part.class_names is not None and part.kind != "zip":
            options["class_names"] = part.class_names
        if rows is not None and part.files[0].lower().endswith(".parquet"):
            options["rows"], rows = rows, None  # the others are not read
        sources = [_open(part, name, options) for name in part.files]
        self._samples = [(source, row) for source in sources for row in rows or range(len(source))]

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        source, row = self._samples[index]
        return source[row][: 1 + len(self.fields)]

    def name(self, index: int) -> str:
        source, row = self._samples[index]
        return source.name(row)

    def identity(self, index: int) -> str:
        source, row = self._samples[index]
        return f"{source.name(row)} {source.identity(row)}"  # files may have equal rows


def _open(part: SourcePart, name: str, options: Mapping[str, Any]) -> Source:
    """Open one of the files of a part; OptionError if its labels are not those of the whole source."""
    opened = open_source(name, part.kind, **options)
    label, expected = opened.fields.get(LABEL), part.fields.get(LABEL)
    is_alike = label == expected or (label, expected) == ("int", "float")
    are_same = opened.labels_are_names == part.labels_are_names and opened.class_names == part.class_names
    if part.fields and not (is_alike and are_same):
        kinds = {None: "missing", "int": "whole numbers or names of classes", "float": "numbers"}
        raise OptionError(
            f"{name}: its labels are {kinds[label]}, its classes {opened.class_names}; expected {kinds[expected]}, "
            f"{part.class_names}, as in the first file. Make them alike, choose the column or the ending (--label), or "
            "give the names of all classes (--classes FILE)"
        )
    return opened
