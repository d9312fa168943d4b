"""Parts: the shares of a source that shards are made of, each opened without the others."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gpubeton.conversion.source import LABEL, LabelledSource, Source, SourceFileError, stat_identity
from gpubeton.conversion.source_kinds import open_kind
from gpubeton.errors import OptionError, RemoteMissingError
from gpubeton.files.open_files import open_bytes
from gpubeton.writing.target_folder import is_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubeton.files.remote_options import RemoteOptions

#: Files that are copied from an object store at once, and bytes that are copied at a time.
_COPIES, _BLOCK = 32, 64 << 20

Part = dict[str, list[Any]]
"""One of: ``files``, which are opened whole; ``images`` and, if there are any, ``labels``; ``rows`` of the source."""


@dataclass(frozen=True)
class Layout:
    """What all parts of a source have in common."""

    source: str
    kind: str
    options: Mapping[str, Any]  # of `open_source`
    fields: Mapping[str, str]  # as of `Source`
    class_names: tuple[str, ...] | None
    passed_over: Mapping[str, int]  # as of `Source`
    labels_are_names: bool | None = None  # as of `LabelledSource`
    unused: tuple[str, ...] = ()  # as of `Source`

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Layout:
        """Make it from values of JSON."""
        names = values["class_names"]
        unused = tuple(values.get("unused", ()))
        return cls(**{**values, "class_names": None if names is None else tuple(names), "unused": unused})


def open_part(layout: Layout, part: Part, scratch: Path, remote: RemoteOptions | None) -> Source:
    """Open a part; what lies in an object store is copied to the folder `scratch` before."""
    if "images" in part:
        files = copy_files(part["images"], scratch, remote)
        return ImageListSource(layout, part["images"], files, part.get("labels", []))
    names = part.get("files", [layout.source])
    rows = part.get("rows")
    paths = copy_files(names, scratch, remote)
    options = dict(layout.options)
    if layout.class_names is not None and layout.kind != "folder":
        options["class_names"] = layout.class_names
    if layout.labels_are_names is not None and layout.kind not in ("folder", "torchvision"):
        options["are_names"] = layout.labels_are_names
    if rows is not None and (layout.kind == "huggingface" or names[0].lower().endswith(".parquet")):
        options["rows"] = rows  # the others are not read
        rows = list(range(len(rows)))
    return PartSource(layout, dict(zip(paths, names, strict=True)), options, rows)


def copy_files(names: Sequence[str], scratch: Path, remote: RemoteOptions | None) -> list[str]:
    """Copy files from object stores; give the path of each, or its URL if there is no such object."""

    def copied(name: str) -> str:
        try:
            return os.fspath(copy_object(name, scratch, remote))
        except RemoteMissingError:  # a bad sample, and not a bad part
            return name

    urls = list(dict.fromkeys(filter(is_url, names)))  # each once: two threads would disturb each other
    with ThreadPoolExecutor(_COPIES) as threads:
        copies = dict(zip(urls, threads.map(copied, urls), strict=True))
    return [copies.get(name, name) for name in names]


def copy_object(url: str, folder: Path, remote: RemoteOptions | None) -> Path:
    """Copy an object to a folder, unless this version of it is there; the ending of its name stays."""
    with open_bytes(url, remote=remote) as source:
        version = f"{url} {source.size} {source.identity()}"
        copy = folder / (hashlib.sha256(version.encode()).hexdigest()[:32] + PurePosixPath(url).suffix)
        # After a reboot a copy may be shorter than it was.
        if not copy.exists() or copy.stat().st_size != source.size:
            unfinished = copy.with_suffix(f".unfinished{copy.suffix}")
            with unfinished.open("wb") as file:
                for start in range(0, source.size, _BLOCK):
                    file.write(source.load(start, min(_BLOCK, source.size - start)))
            unfinished.replace(copy)
    return copy


class ImageListSource(LabelledSource):
    """Images that the plan lists, with their labels."""

    def __init__(self, layout: Layout, names: Sequence[str], files: Sequence[str], labels: Sequence[Any]) -> None:
        self.kind, self.fields, self.class_names = layout.kind, layout.fields, layout.class_names
        self._names, self._files, self._labels = names, files, labels

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        name, file = self._names[index], self._files[index]
        if not is_url(name):
            return self._with_label(Path(file), index)
        if is_url(file):
            raise FileNotFoundError(f"{name}: no such object")
        # Its content: an error would name the copy.
        return self._with_label(Path(file).read_bytes(), index)

    def name(self, index: int) -> str:
        return self._names[index]

    def identity(self, index: int) -> str:
        return f"{self._names[index]} {self._label_text(index)} {stat_identity(self._files[index])}"


class BadFile(Source):
    """A damaged or missing file, as one sample that cannot be read: an error, or left out and listed."""

    fields: Mapping[str, str] = MappingProxyType({})

    def __init__(self, name: str, reason: str) -> None:
        self._name, self._reason = name, reason

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        raise OSError(self._reason)

    def name(self, index: int) -> str:
        return self._name


class PartSource(Source):
    """Whole files, or rows of a source, with the fields and the classes that the plan fixed."""

    def __init__(
        self, layout: Layout, files: Mapping[str, str], options: Mapping[str, Any], rows: Sequence[int] | None
    ) -> None:
        """Open the files; `files` gives the name of each in the source."""
        self.kind, self.fields, self.class_names = layout.kind, layout.fields, layout.class_names
        self._files = dict(files)
        self._opened = [self._open(path, name, options, is_file=rows is None) for path, name in files.items()]
        self._ends = list(accumulate(map(len, self._opened)))
        self._rows = range(self._ends[-1]) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        opened, own = self._find(index)
        try:
            sample = opened[own]
        except Exception as error:
            reason = self._renamed(str(error))
            if reason == str(error):
                raise
            raise OSError(reason) from error
        return sample[: 1 + len(self.fields)]

    def name(self, index: int) -> str:
        opened, own = self._find(index)
        return self._renamed(opened.name(own))

    def identity(self, index: int) -> str:
        opened, own = self._find(index)
        return f"{bisect_right(self._ends, self._rows[index])} {opened.identity(own)}"  # files may have equal rows

    def _open(self, path: str, name: str, options: Mapping[str, Any], *, is_file: bool) -> Source:
        if is_file:
            try:
                os.stat(path)  # noqa: PTH116  a text
            except FileNotFoundError:
                return BadFile(name, f"{name}: no such file")
        try:
            opened = open_kind(path, self.kind, options)
        except SourceFileError as error:
            return BadFile(name, self._renamed(str(error)))
        except OptionError as error:  # of the settings or the labels: the samples are not bad
            raise OptionError(self._renamed(str(error))) from error
        self._check(opened, name)
        return opened

    def _find(self, index: int) -> tuple[Source, int]:
        row = self._rows[index]
        number = bisect_right(self._ends, row)
        return self._opened[number], row - (self._ends[number - 1] if number else 0)

    def _renamed(self, text: str) -> str:
        """Name files instead of their copies, which have other names in each run."""
        for path, name in self._files.items():
            text = text.replace(path, name)
        return text

    def _check(self, opened: Source, name: str) -> None:
        found = opened.fields.get(LABEL)
        if self.fields and found != self.fields[LABEL] and (found, self.fields[LABEL]) != ("int", "float"):
            raise OptionError(
                f"{name}: its labels are {_kind_of_labels(found)}, and those of the first file "
                f"{_kind_of_labels(self.fields[LABEL])}. Make them alike, or choose the column or the ending: --label"
            )
        if self.fields and opened.class_names != self.class_names:
            raise OptionError(
                f"{name}: its classes are {opened.class_names}, expected {self.class_names}. Give the names of all "
                "classes: --classes FILE"
            )


def _kind_of_labels(kind: str | None) -> str:
    return {None: "missing", "int": "whole numbers or names"}.get(kind, "numbers")
