"""Source: where the samples of a new file come from."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape, glob
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.object_store import list_objects
from gpubeton.errors import OptionError
from gpubeton.format.dataset import expand_braces

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._bytes.byte_source import SourceIdentity
    from gpubeton._bytes.store_client import RemoteOptions

LABEL = "label"


@dataclass(frozen=True)
class Places:
    """Where the image of each sample lies.

    Made by `Source.places`.

    Attributes
    ----------
    containers : tuple of (str, SourceIdentity)
        Path or URL of each container, and its state when the samples were listed. Loose files are one container.
    container : NDArray
        Number of the container of each sample: int32, (N,).
    offset : NDArray
        First byte of each image in its container: uint64, (N,).
    size : NDArray
        Bytes of each image, 0 of one that is missing: uint64, (N,).

    Examples
    --------
    >>> from gpubeton.dataset import open_source
    >>> places = open_source("train").places()
    >>> len(places.containers), places.size.shape
    (1, (300,))
    """

    containers: tuple[tuple[str, SourceIdentity], ...]
    container: NDArray[np.int32]
    offset: NDArray[np.uint64]
    size: NDArray[np.uint64]


def places_of_rows(containers: Sequence[tuple[str, SourceIdentity]], rows: NDArray[np.int64]) -> Places:
    """Make places of rows, (N, 3): number of the container, offset and size."""
    container, offset, size = rows.T
    return Places(tuple(containers), container.astype(np.int32), offset.astype(np.uint64), size.astype(np.uint64))


class Source(ABC):
    """The samples of a new file. Derive from it to convert another kind of dataset.

    Attributes
    ----------
    kind : str
        The kind of source, for the notes of the file.
    fields : mapping of str to str
        The fields of a sample after its image: "int" or "float".
    class_names : tuple of str or None
        Names of the classes, whose position is the label.
    passed_over : mapping of str to int
        How many files are not samples, by their ending.
    unused : sequence of str
        Columns of a table, or endings of files in tar files, that are not stored.
    notes : mapping of str to object
        Further notes of the file.

    Examples
    --------
    >>> import numpy as np
    >>> class Grays(Source):
    ...     fields = {"level": "int"}
    ...     class_names = None
    ...     def __len__(self):
    ...         return 256
    ...     def __getitem__(self, index):
    ...         return np.full((16, 16, 3), index, np.uint8), index
    ...     def name(self, index):
    ...         return f"gray {index}"
    >>> Grays().identity(7)
    'gray 7'
    """

    kind: str = "custom"
    fields: Mapping[str, str]
    class_names: tuple[str, ...] | None = None
    passed_over: Mapping[str, int] = MappingProxyType({})
    unused: Sequence[str] = ()
    notes: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Give a sample.

        Parameters
        ----------
        index : int
            Its position.

        Returns
        -------
        tuple
            The image, as the field of `Settings.image_field` takes it (best as the file's bytes or its path), and a
            value for each field.
        """

    @abstractmethod
    def name(self, index: int) -> str:
        """Name a sample, so that a person can find it.

        Parameters
        ----------
        index : int
            Its position.

        Returns
        -------
        str
            A path, or another description.
        """

    def identity(self, index: int) -> str:
        """Give a text that changes with the sample, so that an interrupted conversion notices.

        Parameters
        ----------
        index : int
            Its position.

        Returns
        -------
        str
            By default, its name.
        """
        return self.name(index)

    def input_files(self) -> Iterable[str | os.PathLike[str]]:
        """Name the files that samples are read from: none of them may be replaced by the new file.

        Returns
        -------
        iterable of str or path
            By default none.
        """
        return ()

    def places(self) -> Places:
        """Find where the image of each sample lies, so that a loader can read it there.

        Returns
        -------
        Places
            Container, offset and size of each image.

        Raises
        ------
        OptionError
            If images of this source do not lie in one piece, as they are.
        FormatError
            If a file is damaged.
        """
        raise OptionError(
            f"{self.name(0)}: images of the kind {self.kind} do not lie in files as they are, and so cannot be read "
            "in place. Convert them: gpubeton convert SOURCE NAME.beton"
        )


class Labels:
    """Labels of a table or a dataset, converted to numbers."""

    # Whole numbers stay as they are. If all labels are numbers, and some of them not whole, they are floats. Anything
    # else is the name of a class, and becomes its position among all names, sorted. So is text, if all of it is among
    # the names that are given, although it looks like numbers.

    def __init__(self, values: Sequence[Any], names: Sequence[str] | None = None, *, where: str) -> None:
        """Convert labels; `names` are those of the classes in the order of their numbers, `where` is for errors."""
        self.kind = "int"
        self.class_names = None if names is None else tuple(names)
        self.numbers: list[int] | list[float]
        classes = set(self.class_names or ())
        self.are_names = bool(classes) and all(isinstance(value, str) and value in classes for value in values)
        if not self.are_names and all(_is_whole(value) for value in values):
            self.numbers = [int(value) for value in values]
        elif not self.are_names and self.class_names is None and all(_is_number(value) for value in values):
            self.kind, self.numbers = "float", [float(value) for value in values]
        else:
            self.are_names = True
            self.class_names = self.class_names or tuple(sorted({str(value) for value in values}))
            numbers = {name: number for number, name in enumerate(self.class_names)}
            missing = next((str(value) for value in values if str(value) not in numbers), None)
            if missing is not None:
                raise OptionError(
                    f"{where}: the class {missing!r} is not among the {len(numbers)} names of classes given"
                )
            self.numbers = [numbers[str(value)] for value in values]


class LabelledSource(Source):
    """A source whose samples have one label or none."""

    fields: Mapping[str, str] = MappingProxyType({})
    _labels: Sequence[int] | Sequence[float] = ()  # empty without labels
    labels_are_names: bool | None = None  # of classes; None without labels
    loose_files: tuple[str, Sequence[str]] | None = None  # a folder, and a path from there on of each image

    @property
    def columns(self) -> Mapping[str, Sequence[int] | Sequence[float]]:
        """The numbers of each sample, by the names of their fields."""
        return {LABEL: self._labels} if self._labels else {}

    def set_labels(self, labels: Labels) -> None:
        self._labels, self.fields, self.class_names = labels.numbers, {LABEL: labels.kind}, labels.class_names
        self.labels_are_names = labels.are_names

    def _with_label(self, image: Any, index: int) -> tuple[Any, ...]:
        return (image, *(values[index] for values in self.columns.values()))

    def _label_text(self, index: int) -> str:
        """Give the label as a part of the sample's identity."""
        return str(self._labels[index]) if self._labels else ""


#: Endings of compressed files.
PACKED = frozenset({".gz", ".tgz", ".bz2", ".xz", ".zst", ".lz4"})


def find_files(pattern: str, ending: str, remote: RemoteOptions | None = None) -> list[str]:
    """Find the files that a pattern with braces, ``*`` or ``?`` names, and those of an ending in folders among them."""
    files = [path for name in expand_braces(pattern) for path in _find(name, ending, remote)]
    missing = [path for path in files if "://" not in path and not os.path.isfile(path)]  # noqa: PTH113  a text
    if missing or not files:
        which = missing[0] if missing else pattern
        raise OptionError(
            f"{which}: no such file ({len(missing)} of {len(files)} are missing); expected files, or a folder with "
            f"names that end in {ending}"
        )
    return files


def _find(name: str, ending: str, remote: RemoteOptions | None) -> list[str]:
    if "://" in name:
        folder, _, pattern = name.rpartition("/")
        if pattern and "*" not in pattern:
            return [name]
        urls = [url for url, *_ in list_objects(f"{folder}/", remote)]
        if not pattern:
            _warn_of_packed(urls, ending)
        pattern = pattern or f"*{ending}"
        return [url for url in urls if fnmatchcase(url.rpartition("/")[2], pattern)]
    # Absolute patterns, too, which Path.glob refuses.
    paths = sorted(glob(name)) or [name]  # noqa: PTH207
    files = list[str]()
    for path in paths:
        names = sorted(glob(f"{escape(path)}/*")) if Path(path).is_dir() else None  # noqa: PTH207
        _warn_of_packed(names or (), ending)
        files += [path] if names is None else [name for name in names if name.endswith(ending)]
    return files


def _warn_of_packed(names: Iterable[str], ending: str) -> None:
    """Warn of compressed files beside those of an ending."""
    endings = ".tgz", *(f"{ending}{packed}" for packed in PACKED)
    packed = [name for name in names if name.endswith(endings)]
    if packed:
        warnings.warn(
            f"{packed[0]}: left out with {len(packed) - 1} more: of compressed files nothing is read. Decompress them",
            stacklevel=2,
        )


def choose_column(
    path: str | os.PathLike[str], columns: Collection[str], name: str | None, usual: Iterable[str], option: str
) -> str | None:
    """Choose the column of that name, by default the first of the usual ones; OptionError if it is not there."""
    if name is not None and name not in columns:
        raise OptionError(
            f"{os.fspath(path)}: no column {name!r}; there are {', '.join(map(repr, columns))}. Choose one of them: "
            f"{option} COLUMN"
        )
    return name or next((column for column in usual if column in columns), None)


def choose_image_column(
    path: str | os.PathLike[str], columns: Collection[str], name: str | None, usual: Iterable[str]
) -> str:
    """Choose the column of the images; OptionError if there is none."""
    column = choose_column(path, columns, name, usual, "--image")
    if column is None:
        raise OptionError(
            f"{os.fspath(path)}: no column of images; the columns are {', '.join(map(repr, columns))}. "
            "Name it: --image COLUMN"
        )
    return column


def stat_identity(path: str | os.PathLike[str]) -> str:
    """Give a text that changes when a file does: its size and the time of its last change."""
    try:
        state = Path(path).stat()
    except OSError:
        return "missing"
    return f"{state.st_size} {state.st_mtime_ns}"


def class_names_of(dataset: Any) -> list[str] | None:
    """Read the names of the classes; ImageNet has several names for each."""
    while hasattr(dataset, "dataset") and hasattr(dataset, "indices"):  # torch's Subset
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    if not isinstance(names, list | tuple):
        return None
    return [name if isinstance(name, str) else ", ".join(map(str, name)) for name in names]


def _is_whole(value: Any) -> bool:
    if isinstance(value, str):
        text = value.strip()
        return text.isascii() and text.removeprefix("-").isdecimal()
    return not isinstance(value, float) and hasattr(value, "__index__")


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
