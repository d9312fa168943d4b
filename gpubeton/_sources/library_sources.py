"""Sources that other libraries have made: datasets of Hugging Face on disk, and of torchvision."""

from __future__ import annotations

import importlib
import inspect
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._sources.arrow_files import ArrowFiles
from gpubeton._sources.file_patterns import find_files
from gpubeton._sources.source import (
    LabelledSource,
    Labels,
    Places,
    choose_column,
    choose_image_column,
    class_names_of,
    places_of_rows,
    stat_identity,
)
from gpubeton.errors import FormatError, OptionError
from gpubeton.fields.json import parse_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_LABEL_COLUMNS = ("label", "labels", "fine_label", "target", "class")
#: Names of files in the cache of `datasets`, of which the first group is the split.
_CACHED = re.compile(r".+?-([a-zA-Z_]\w*(?:\.\w+)*)(?:-\d{5}-of-\d{5})?\.arrow")


class HuggingFaceSource(LabelledSource):
    """A dataset of Hugging Face in Arrow files: of ``save_to_disk``, in a folder of the cache, or named."""

    # Image files in it are stored as they are. By default the image is the first column of images, and the label the
    # column ``label`` or of a similar name.

    kind = "huggingface"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        split: str | None = None,
        image: str | None = None,
        label: str | None = None,
        class_names: Sequence[str] | None = None,
        are_names: bool | None = None,
        rows: Sequence[int] | None = None,  # no others are read
    ) -> None:
        self._path, self._rows = Path(path), rows
        files, self._identity, info = _list_files(os.fspath(path), split)
        self._arrow = ArrowFiles(files)
        described: Any = info or _parse(files[0], self._arrow.metadata.get(b"huggingface", b"{}")).get("info")
        features = described.get("features") if isinstance(described, dict) else None
        kinds = {name: kind for name, kind in (features or {}).items() if isinstance(kind, dict)}
        images = [name for name in self._arrow.names if kinds.get(name, {}).get("_type") == "Image"]
        self._image = choose_image_column(path, self._arrow.names, image, images)
        label = choose_column(path, self._arrow.names, label, _LABEL_COLUMNS, "--label")
        self.unused = [name for name in self._arrow.names if name not in (self._image, label)]
        self._arrow.column(self._image)  # its check
        if label is not None:
            column, names = self._arrow.column(label), class_names or kinds.get(label, {}).get("names")
            values = (column if rows is None else column.take(list(rows))).to_pylist()
            self._set_labels(Labels(values, names, where=os.fspath(path), are_names=are_names))

    def __len__(self) -> int:
        return len(self._arrow) if self._rows is None else len(self._rows)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        value = self._arrow.column(self._image)[self._row(index)].as_py()
        if isinstance(value, dict):
            value = value.get("path") if value.get("bytes") is None else value["bytes"]
        return self._with_label(Path(value) if isinstance(value, str) else value, index)

    def name(self, index: int) -> str:
        return f"row {self._row(index)} of {self._path}"

    def identity(self, index: int) -> str:
        return f"{self._row(index)} {self._label_text(index)} {self._identity}"

    def input_files(self) -> Iterable[str]:
        return self._arrow.paths

    def places(self) -> Places:
        places = self._arrow.places(self._image)
        return places_of_rows(self._arrow.containers, places if self._rows is None else places[np.array(self._rows)])


def _list_files(path: str, split: str | None) -> tuple[list[str], str, dict[str, Any]]:
    """List the Arrow files of a dataset; give a text that changes with them, too, and its description if it has one."""
    folder = Path(path)
    if not folder.is_dir():
        files = find_files(path, ".arrow")
        return files, " ".join(map(stat_identity, files)), {}
    if (folder / "dataset_dict.json").is_file():
        folder /= _choose_split(path, _names_in(folder / "dataset_dict.json", "splits"), split)
    state, info = folder / "state.json", folder / "dataset_info.json"
    if state.is_file():
        names = _names_in(state, "_data_files")
    else:
        splits: dict[str, list[str]] = {}
        for name in sorted(file.name for file in folder.glob("*.arrow") if not file.name.startswith("cache-")):
            match = _CACHED.fullmatch(name)
            splits.setdefault(match[1] if match else "", []).append(name)
        names = splits[_choose_split(path, splits, split)]
    files = [os.fspath(folder / name) for name in names]
    text = state.read_text() if state.is_file() else " ".join(map(stat_identity, files))
    return files, text, _read(info) if info.is_file() else {}


def _choose_split(path: str, splits: Collection[str], split: str | None) -> str:
    if split is None and len(splits) == 1:
        return next(iter(splits))
    if split is None or split not in splits:
        raise OptionError(
            f"{path}: the splits are {', '.join(map(repr, splits))}, "
            f"{'choose one' if split is None else f'there is no {split!r}'}: --split NAME"
        )
    return split


def _names_in(path: Path, key: str) -> list[str]:
    """List the names of files or folders beside a description that it has at a key."""
    try:
        values = [value["filename"] if isinstance(value, dict) else value for value in _read(path)[key]]
        names = [Path(value).name for value in values]
    except (KeyError, TypeError) as error:
        raise FormatError(f"{path}: no list of names at {key!r} ({error!r})") from error
    if not names:
        raise FormatError(f"{path}: no names at {key!r}; expected at least one")
    return names


def _read(path: Path) -> dict[str, Any]:
    return _parse(path, path.read_bytes())


def _parse(path: str | os.PathLike[str], content: bytes) -> dict[str, Any]:
    """Parse a description of a dataset; `FormatError` if it is damaged."""
    try:
        values = parse_json(content)
    except ValueError as error:
        raise FormatError(f"{os.fspath(path)}: no description of a dataset ({error})") from error
    if not isinstance(values, dict):
        raise FormatError(f"{os.fspath(path)}: no description of a dataset, but {type(values).__name__}")
    return values


class TorchvisionSource(LabelledSource):
    """A dataset of torchvision, by its name in ``torchvision.datasets``; `root` is where torchvision keeps it."""

    # Its images are decoded by torchvision; those of datasets that are folders of files (ImageNet, ImageFolder) are
    # stored as files.

    kind = "torchvision"

    def __init__(
        self,
        name: str,
        *,
        root: str | os.PathLike[str] = "data",
        split: str | None = None,
        download: bool = False,
        class_names: Sequence[str] | None = None,
    ) -> None:
        try:
            datasets = importlib.import_module("torchvision.datasets")
        except ImportError as error:
            raise OptionError(
                f"torchvision:{name} needs {error.name or 'torchvision'}, which is not installed or does not fit to "
                f"this torch ({error}). Try: pip install torchvision"
            ) from error
        make: Any = getattr(datasets, name, None)
        if not inspect.isclass(make):
            exported = getattr(datasets, "__all__", ())
            names = sorted(key for key in exported if inspect.isclass(getattr(datasets, key)))
            raise OptionError(f"torchvision.datasets has no {name!r}; it has {', '.join(names)}")
        self._name = name
        self._split, self._root = split or "train", Path(root)
        try:
            self._dataset: Any = make(**_arguments(make, self._root, self._split, download))
        except TypeError as error:
            raise OptionError(
                f"torchvision:{name} cannot be made of its root and split alone: {error}. Make it in a script, and "
                "write it by DatasetWriter.from_indexed_dataset"
            ) from error
        # Datasets that are folders list their files, which need not be decoded.
        self._samples = getattr(self._dataset, "samples", None)
        self._set_labels(
            Labels(self._targets(), class_names or class_names_of(self._dataset), where=f"torchvision:{name}")
        )

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        image = self._dataset[index][0] if self._samples is None else self._samples[index][0]
        return image, self._labels[index]

    def name(self, index: int) -> str:
        if self._samples is not None:
            return str(self._samples[index][0])
        return f"sample {index} of torchvision.datasets.{self._name}, {self._split}"

    def identity(self, index: int) -> str:
        file = "" if self._samples is None else f" {stat_identity(self._samples[index][0])}"
        return f"{self.name(index)} {self._label_text(index)}{file}"

    def input_files(self) -> Iterable[Path]:
        return self._root.rglob("*")

    def _targets(self) -> list[Any]:
        for attribute in ("targets", "_labels", "labels"):
            labels = getattr(self._dataset, attribute, None)
            if labels is not None and len(labels) == len(self._dataset):
                return [label.item() if hasattr(label, "item") else label for label in labels]
        return [self._dataset[index][1] for index in range(len(self._dataset))]


def _arguments(make: Any, root: Path, split: str, download: bool) -> dict[str, Any]:
    """Pass the root, and the split by the argument that this dataset has for it."""
    parameters = inspect.signature(make).parameters
    arguments: dict[str, Any] = {"root": os.fspath(root)} if "root" in parameters else {}
    if "train" in parameters:
        if split not in ("train", "test", "val"):
            raise OptionError(f"torchvision:{make.__name__}: --split is {split!r}, expected train or test")
        arguments["train"] = split == "train"
    elif "split" in parameters:
        arguments["split"] = split
    if "download" in parameters:
        arguments["download"] = download
    return arguments
