"""TorchvisionSource: a dataset of torchvision's, by its name."""

from __future__ import annotations

import importlib
import inspect
import os
from typing import TYPE_CHECKING, Any

from gpubeton.conversion.source import LABEL, Labels, Source
from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TorchvisionSource"]


class TorchvisionSource(Source):
    """A dataset of torchvision's, by its name; needs torchvision.

    Its images come as torchvision gives them, decoded; those of datasets that are folders of files (ImageNet,
    ImageFolder) are taken over as files.

    Parameters
    ----------
    name : str
        Such as ``CIFAR10``, as in ``torchvision.datasets``.
    root : str or path
        Where torchvision keeps it.
    split : str
        ``"train"``, ``"test"``, or what the dataset calls it.
    download : bool
        Whether it may be downloaded.
    class_names : sequence of str, optional
        Names of the classes in the order of their numbers; by default the dataset's.

    Raises
    ------
    OptionError
        If torchvision is not installed, or knows no such dataset.
    """

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
        found: Any = getattr(datasets, name, None)
        if not inspect.isclass(found):
            known = sorted(each for each in getattr(datasets, "__all__", ()) if not each.startswith("_"))
            raise OptionError(f"torchvision.datasets has no {name!r}; it has {', '.join(known)}")
        self._name = name
        self._split = split or "train"
        make: Any = found
        self._dataset: Any = make(os.fspath(root), **_arguments(make, self._split, download))
        # Datasets that are folders list their files, which need not be decoded.
        self._samples = getattr(self._dataset, "samples", None)
        labels = Labels(self._targets(), class_names or self._names(), where=f"torchvision:{name}")
        self._labels, self.fields, self.class_names = labels.numbers, {LABEL: labels.kind}, labels.class_names

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> tuple[Any, int | float]:
        image = self._dataset[index][0] if self._samples is None else self._samples[index][0]
        return image, self._labels[index]

    def name(self, index: int) -> str:
        if self._samples is not None:
            return str(self._samples[index][0])
        return f"sample {index} of torchvision.datasets.{self._name}, {self._split}"

    def _names(self) -> list[str] | None:
        names = getattr(self._dataset, "classes", None)
        if not isinstance(names, list | tuple):
            return None
        # ImageNet has several names for each class.
        return [name if isinstance(name, str) else ", ".join(map(str, name)) for name in names]

    def _targets(self) -> list[Any]:
        for attribute in ("targets", "_labels", "labels"):
            found = getattr(self._dataset, attribute, None)
            if found is not None and len(found) == len(self._dataset):
                return [each.item() if hasattr(each, "item") else each for each in found]
        return [self._dataset[index][1] for index in range(len(self._dataset))]


def _arguments(make: Any, split: str, download: bool) -> dict[str, Any]:
    """Say the split in the way that this dataset wants it said."""
    known = inspect.signature(make).parameters
    arguments: dict[str, Any] = {}
    if "train" in known:
        if split not in ("train", "test", "val"):
            raise OptionError(f"torchvision:{make.__name__}: --split is {split!r}, expected train or test")
        arguments["train"] = split == "train"
    elif "split" in known:
        arguments["split"] = split
    if "download" in known:
        arguments["download"] = download
    return arguments
