"""Sources that other libraries read: datasets of Hugging Face on disk, and of torchvision."""

from __future__ import annotations

import importlib
import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton._machine import install
from gpubeton._writing.sample_names import class_names_of
from gpubeton.dataset.source import LabelledSource, Labels, choose_column, choose_image_column, stat_identity
from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LABEL_COLUMNS = ("label", "labels", "fine_label", "target", "class")


class HuggingFaceSource(LabelledSource):
    """A dataset of Hugging Face that ``save_to_disk`` has written; needs ``gpubeton[huggingface]``."""

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
        try:
            import datasets
        except ImportError as error:
            raise OptionError(
                f"{os.fspath(path)}: a dataset of Hugging Face's needs {error.name}, which is not installed. "
                f"Try: {install('huggingface')}"
            ) from error
        self._path, self._rows = Path(path), rows
        dataset: Any = datasets.load_from_disk(os.fspath(path))
        if isinstance(dataset, datasets.DatasetDict):
            dataset = self._split(dataset, split)
        images = [name for name, kind in dataset.features.items() if type(kind).__name__ == "Image"]
        image = choose_image_column(path, dataset.features, image, images)
        label = choose_column(path, dataset.features, label, _LABEL_COLUMNS, "--label")
        self._image = image
        self.unused = [name for name in dataset.features if name not in (image, label)]
        if rows is not None:
            dataset = dataset.select(rows)
        # Files as they are: a JPEG that fits goes into the new file without being encoded again.
        self._dataset = dataset.cast_column(image, datasets.Image(decode=False))
        if label is not None:
            names = class_names or getattr(dataset.features[label], "names", None)
            self._set_labels(Labels(list(dataset[label]), names, where=os.fspath(path), are_names=are_names))
        self._identity = _fingerprint(self._path, split)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        value = self._dataset[index][self._image]
        return self._with_label(value["bytes"] if value["bytes"] is not None else Path(value["path"]), index)

    def name(self, index: int) -> str:
        return f"row {self._row(index)} of {self._path}"

    def identity(self, index: int) -> str:
        return f"{self._row(index)} {self._label_text(index)} {self._identity}"

    def input_files(self) -> Iterable[Path]:
        return self._path.rglob("*")

    def _split(self, dataset: Any, split: str | None) -> Any:
        if split is None and len(dataset) == 1:
            return next(iter(dataset.values()))
        if split not in dataset:
            raise OptionError(
                f"{self._path}: the splits are {', '.join(map(repr, dataset))}, "
                f"{'choose one' if split is None else f'there is no {split!r}'}: --split NAME"
            )
        return dataset[split]


def _fingerprint(path: Path, split: str | None) -> str:
    """Read the state of the dataset, which holds a fingerprint."""
    states = [path / "state.json", path / (split or "") / "state.json", *sorted(path.glob("*/state.json"))]
    return next((state.read_text() for state in states if state.is_file()), "")


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
