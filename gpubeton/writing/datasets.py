"""Datasets that the writer opens itself: folders of images, and tar files of webdataset."""

from __future__ import annotations

import inspect
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from gpubeton.errors import NoSamplesError, OptionError, WriteError
from gpubeton.writing.encoder import Task, split_rows

#: torchvision's list.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class ImageFolder:
    """Image files in one folder per class, in the order of torchvision's ImageFolder, so that labels are the same.

    With `flat`, a folder of images without folders of classes is allowed: its images have no labels. Hidden files and
    folders, whose names begin with a dot, are none of them: notebooks, macOS and version control leave such things.
    """

    def __init__(
        self, root: str | os.PathLike[str], suffixes: Sequence[str] = IMAGE_SUFFIXES, *, flat: bool = False
    ) -> None:
        self._suffixes = tuple(suffixes)
        self.files: list[str] = []  # paths as text: there may be millions
        self.labels: list[int] | None = None
        self.passed_over: Counter[str] = Counter()  # number of other files, by their ending or by what they are
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
        folders = [entry.name for entry in entries if entry.is_dir() and not self._is_hidden(entry.name)]
        self.classes = tuple(folders)  # the position of a name is the label
        if flat:
            images = self._images(os.fspath(root), [entry.name for entry in entries if entry.is_file()])
            if not folders:
                self.classes, self.files = (), images
                if not images:
                    raise OptionError(
                        f"{os.fspath(root)}: no images in it ({', '.join(suffixes)}), and no folders of images, one "
                        "per class"
                    )
                return
            # Images beside the folders of the classes have no class.
            self.passed_over.update(Path(file).suffix.lower() for file in images)
        if not folders:
            raise OptionError(f"{os.fspath(root)}: no folders in it, expected one folder of images per class")
        self.labels = []
        for label, name in enumerate(folders):
            found = [
                file
                for parent, names in self._walk(os.path.join(root, name))  # noqa: PTH118  text, not a Path for each
                for file in self._images(parent, names)
            ]
            if not found:
                raise OptionError(
                    f"{Path(root) / name}: no images in it ({', '.join(suffixes)}). Every folder is a class; remove "
                    "or move those that are none"
                )
            self.files += found
            self.labels += [label] * len(found)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Path, int] | tuple[Path]:
        path = Path(self.files[index])
        return (path,) if self.labels is None else (path, self.labels[index])

    def _walk(self, top: str) -> list[tuple[str, list[str]]]:
        """List the folders below a folder with the files in each, links to folders included, each folder once."""
        seen, found = {os.path.realpath(top)}, []
        for parent, folders, names in os.walk(top, followlinks=True):
            found.append((parent, names))
            inside = []
            for name in folders:
                target = os.path.realpath(os.path.join(parent, name))  # noqa: PTH118
                if self._is_hidden(name):
                    continue
                # A link to a folder that holds it would bring the samples of all classes, again and again.
                if target in seen or Path(target) in Path(os.path.realpath(parent)).parents:
                    self.passed_over["links to folders that were read"] += 1
                    continue
                seen.add(target)
                inside.append(name)
            folders[:] = inside
        return sorted(found)

    def _is_hidden(self, name: str) -> bool:
        if name.startswith("."):
            self.passed_over["hidden"] += 1
            return True
        return False

    def _images(self, folder: str, names: Iterable[str]) -> list[str]:
        found = []
        for name in sorted(names):
            if self._is_hidden(name):
                continue
            if name.lower().endswith(self._suffixes):
                found.append(f"{folder}{os.sep}{name}")
            else:
                self.passed_over[Path(name).suffix.lower()] += 1
        return found


Pipeline = Callable[[Any], Iterable[Any]]
"""Called with the ``webdataset.WebDataset`` of one shard, gives its samples."""

_ALL_IN_ORDER = {"shardshuffle": False, "nodesplitter": None, "workersplitter": None, "empty_check": False}
"""Arguments of WebDataset: every sample of the shard once, in every process."""

_SAME_NUMBER = "The pipeline has to give the same number of samples each time."


class Shards:
    """The samples of several tar files of webdataset, one file after the other.

    Reading is sequential, with one process per shard: a sample in the middle is found by reading the shard up to it.
    """

    def __init__(self, shards: Sequence[str | os.PathLike[str]] | str, pipeline: Pipeline) -> None:
        self.names = _expanded(shards) if isinstance(shards, str) else [os.fspath(shard) for shard in shards]
        if not self.names:
            raise NoSamplesError("0 shards, at least 1 is needed")
        self._pipeline = pipeline
        self._starts: list[int] = [0]
        # The place of this process: the shard, the next of its samples, and the iterator that gives it.
        self._shard, self._position = -1, 0
        self._samples: Iterator[Any] = iter(())
        _open_dataset(self.names[0])  # so that a missing package is reported at once

    def __len__(self) -> int:
        return self._starts[-1]

    def count(self, shard: int) -> int:
        """Count the samples of a shard, by making them."""
        number = 0
        try:
            for _ in self._open(shard):
                number += 1
        except Exception as error:
            raise WriteError(
                f"{self.names[shard]}: sample {number} of the shard, while counting: {type(error).__name__}: {error}"
            ) from error
        return number

    def accept_counts(self, counts: Sequence[int]) -> None:
        """Set the number of samples of each shard."""
        self._starts = [0, *accumulate(counts)]

    def task_sequences(self, chunksize: int) -> list[list[Task]]:
        """Divide the rows of the file among processes: the tasks of each shard."""
        bounds = zip(self._starts[:-1], self._starts[1:], strict=True)
        return [split_rows(start, stop, chunksize) for start, stop in bounds]

    def __getitem__(self, row: int) -> Any:
        shard = bisect_right(self._starts, row) - 1
        position, count = row - self._starts[shard], self._starts[shard + 1] - self._starts[shard]
        if shard != self._shard or position < self._position:
            self._shard, self._position, self._samples = shard, 0, iter(self._open(shard))
        sample: Any = None
        while self._position <= position:
            sample = self._next(count)
            self._position += 1
        if self._position == count and next(self._samples, self) is not self:
            message = f"{self._place()}: there is one more sample than the {count} that were counted. {_SAME_NUMBER}"
            raise WriteError(message)
        return sample

    def _next(self, count: int) -> Any:
        try:
            return next(self._samples)
        except StopIteration:
            raise WriteError(
                f"{self._place()}: {count} samples were counted, and now there are only {self._position}. "
                f"{_SAME_NUMBER}"
            ) from None
        except Exception as error:
            raise WriteError(f"{self._place()}: {type(error).__name__}: {error}") from error

    def _place(self) -> str:
        return f"{self.names[self._shard]}, sample {self._position} of the shard"

    def _open(self, shard: int) -> Iterable[Any]:
        return self._pipeline(_open_dataset(self.names[shard]))

    def __getstate__(self) -> dict[str, Any]:
        # An open shard cannot be sent to another process.
        return {**self.__dict__, "_shard": -1, "_samples": None}


def _webdataset() -> Any:
    try:
        import webdataset
    except ImportError as error:
        raise WriteError(
            f"shards need {error.name}, which is not installed. Try: pip install 'gpubeton[webdataset]'"
        ) from error
    return webdataset


def _open_dataset(shard: str) -> Any:
    dataset = _webdataset().WebDataset
    known = inspect.signature(dataset.__init__).parameters
    return dataset(shard, **{name: value for name, value in _ALL_IN_ORDER.items() if name in known})


def _expanded(pattern: str) -> list[str]:
    expanded: list[str] = _webdataset().shardlists.expand_urls(pattern)
    return expanded
