"""Sources that other libraries read: datasets of torchvision."""

from __future__ import annotations

import importlib
import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton._sources.source import LabelledSource, Labels, class_names_of, stat_identity
from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
        self.set_labels(
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
