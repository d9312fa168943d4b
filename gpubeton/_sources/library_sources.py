"""Sources that other libraries read: datasets of torchvision, and tar files by pipelines of webdataset."""

from __future__ import annotations

import importlib
import inspect
import os
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton._machine import install
from gpubeton._sources.source import LabelledSource, Labels, Source, class_names_of, stat_identity
from gpubeton.errors import NoSamplesError, OptionError, WriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


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


#: Arguments of WebDataset: every sample of the shard once, in every process.
_ALL_IN_ORDER = {"shardshuffle": False, "nodesplitter": None, "workersplitter": None, "empty_check": False}
_SAME_NUMBER = "The pipeline has to give the same number of samples each time."


class Shards(Source):
    """The samples of several tar files of webdataset, one file after the other."""

    # Reading is sequential, with one process per shard: a sample in the middle is found by reading the shard up to it.

    def __init__(
        self,
        shards: Sequence[str | os.PathLike[str]] | str,
        pipeline: Callable[[Any], Iterable[Any]],  # called with the ``WebDataset`` of one shard, gives its samples
    ) -> None:
        names = _webdataset().shardlists.expand_urls(shards) if isinstance(shards, str) else shards
        self.names = [os.fspath(name) for name in names]
        if not self.names:
            raise NoSamplesError("0 shards, at least 1 is needed")
        self._pipeline = pipeline
        self.starts: list[int] = [0]  # first row of each shard, and the number of rows
        # The place of this process: the shard, the next of its samples, and the iterator that gives it.
        self._shard, self._position = -1, 0
        self._samples: Iterator[Any] = iter(())
        _open_dataset(self.names[0])  # so that a missing package is reported at once

    def __len__(self) -> int:
        return self.starts[-1]

    def count(self, shard: int) -> int:
        """Count the samples of a shard, by making them."""
        return sum(1 for _ in self._open(shard))

    def name(self, row: int) -> str:
        shard = bisect_right(self.starts, row) - 1
        return self._place(shard, row - self.starts[shard])

    def __getitem__(self, row: int) -> Any:
        shard = bisect_right(self.starts, row) - 1
        position, count = row - self.starts[shard], self.starts[shard + 1] - self.starts[shard]
        if shard != self._shard or position < self._position:
            self._shard, self._position, self._samples = shard, 0, self._open(shard)
        sample: Any = None
        while self._position <= position:
            sample = next(self._samples, self)
            if sample is self:
                raise WriteError(
                    f"{self._place(shard, self._position)}: {count} samples were counted, and now there are only "
                    f"{self._position}. {_SAME_NUMBER}"
                )
            self._position += 1
        if self._position == count and next(self._samples, self) is not self:
            place = self._place(shard, position + 1)
            raise WriteError(f"{place}: there is one more sample than the {count} that were counted. {_SAME_NUMBER}")
        return sample

    def _place(self, shard: int, position: int) -> str:
        return f"{self.names[shard]}, sample {position} of the shard"

    def _open(self, shard: int) -> Iterator[Any]:
        number = 0
        try:
            for sample in self._pipeline(_open_dataset(self.names[shard])):
                yield sample
                number += 1
        except Exception as error:
            raise WriteError(f"{self._place(shard, number)}: {type(error).__name__}: {error}") from error

    def __getstate__(self) -> dict[str, Any]:
        # An open shard cannot be sent to another process.
        return {**self.__dict__, "_shard": -1, "_samples": None}


def _webdataset() -> Any:
    try:
        import webdataset
    except ImportError as error:
        raise WriteError(f"shards need {error.name}, which is not installed. Try: {install('webdataset')}") from error
    return webdataset


def _open_dataset(shard: str) -> Any:
    dataset = _webdataset().WebDataset
    parameters = inspect.signature(dataset.__init__).parameters
    return dataset(shard, **{name: value for name, value in _ALL_IN_ORDER.items() if name in parameters})
