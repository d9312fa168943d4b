"""Contents: the samples of a file, as the values that were written; and `extract`, which writes them as files."""

from __future__ import annotations

import csv
import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._machine import worker_count
from gpubeton.dataset.verification import Finding
from gpubeton.errors import BadImageError, FormatError, GpubetonError, NotesError, OptionError
from gpubeton.fields.codecs import CODECS, PNG
from gpubeton.fields.registry import CustomFields, open_single
from gpubeton.format import ImageMode, read_notes
from gpubeton.format.data_files import split_offsets

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from gpubeton._bytes import Progress
    from gpubeton.fields.base import ImageColumn
    from gpubeton.format import Index

#: Elements of a raw pixel, and the type of each, by the pixel's bytes.
_PIXELS = {1: (1, "<u1"), 2: (1, "<u2"), 3: (3, "<u1"), 4: (4, "<u1"), 6: (3, "<u2"), 8: (4, "<u2")}
TABLE = "samples.csv"
CLASSES = "classes.txt"
#: Samples that are given to the threads at a time.
_BLOCK = 256


@dataclass(frozen=True)
class StoredImage:
    """An image as it is stored. Made by `Contents.value`."""

    kind: str  #: the kind of the content: "jpg" or "png" for a file, "raw" for pixels
    height: int  #: in pixels, by the file's metadata
    width: int  #: in pixels, by the file's metadata
    content: bytes  #: the file, or the pixels, row by row

    def pixels(self) -> NDArray[Any]:
        """Decode the image.

        Returns
        -------
        ndarray of uint8 or uint16, shape (height, width, C)
            Its pixels: a JPEG file's as RGB, raw ones as they are.

        Raises
        ------
        BadImageError
            If it cannot be decoded.
        """
        if self.kind == "raw":
            size = len(self.content) // (self.height * self.width)
            if size not in _PIXELS or len(self.content) != size * self.height * self.width:
                raise BadImageError(f"{len(self.content)} bytes are no {self.height} x {self.width} pixels")
            channels, element = _PIXELS[size]
            return np.frombuffer(self.content, element).reshape(self.height, self.width, channels)
        try:
            return CODECS[ImageMode[self.kind.upper()]].decode(self.content, None, None)
        except BadImageError as error:
            raise BadImageError(f"a {self.kind} file that cannot be decoded: {error}") from error

    def to_file(self) -> tuple[str, bytes]:
        """Give the image as a file: a JPEG or PNG file as it is, pixels as PNG, without any loss.

        Returns
        -------
        tuple of str and bytes
            The ending of its name, and its content.
        """
        if self.kind != "raw":
            return f".{self.kind}", self.content
        return f".{PNG.suffix}", PNG.encode(self.pixels(), 100)


class Contents:
    """The samples of a file, as the values that were written.

    Parameters
    ----------
    path : str or path
        The file.
    custom_fields : mapping of str to Field class, optional
        The class of each custom field.

    Examples
    --------
    >>> contents = Contents("train.beton")
    >>> contents.value(299, "label"), contents.to_file(299, "image")[0]
    (2, '.jpg')
    """

    def __init__(self, path: str | os.PathLike[str], custom_fields: CustomFields | None = None) -> None:
        self.index: Index  #: header and metadata of the file
        self.index, self._fields = open_single(path, custom_fields)
        self.class_names = self.index.class_names or None  #: names of the classes; None if there are none
        if not self.index.files[0].is_container:
            with suppress(NotesError):  # the samples may be sound
                notes = read_notes(self.index.files[0].path, self.index.files[0].identity)
                self.class_names = None if notes is None else notes.class_names

    @property
    def image_fields(self) -> list[str]:
        """Names of the fields of images."""
        return [name for name in self.index.names if self._images(name) is not None]

    def labels(self, name: str = "label") -> NDArray[np.int64] | None:
        """Give the label of each sample.

        Parameters
        ----------
        name : str
            The field.

        Returns
        -------
        ndarray of int64, shape (N,), or None
            None if the field does not exist, or does not hold whole numbers.
        """
        if name not in self.index.names:
            return None
        numbers = self._fields[name].numbers(self.index.column(name))
        return None if numbers is None or numbers.dtype.kind != "i" else numbers.astype(np.int64, copy=False)

    def stored(self, sample: int, name: str) -> bytes:
        """Read the bytes of a value: its region, or its metadata if it has none.

        Parameters
        ----------
        sample, name
            The sample and the field.

        Returns
        -------
        bytes
            As they are in the file.

        Raises
        ------
        OptionError, NoSuchFieldError
            If there is no such sample or field.
        StorageError
            If the bytes cannot be read.
        """
        checked_samples([sample], self.index.num_samples, f"{self.index.path}: ")
        if not self.index.has_regions(name):
            return bytes(self.index.column(name)[sample].tobytes())
        regions = self.index.regions(name)
        file, offset = split_offsets(regions.offset[sample : sample + 1])
        with self.index.files[int(file[0])].open() as source:
            size = int(regions.size[sample])
            return source.read_exactly(int(offset[0]), size) if size else b""

    def value(self, sample: int, name: str) -> Any:
        """Read a value; errors as for `stored`.

        Parameters
        ----------
        sample, name
            The sample and the field.

        Returns
        -------
        int, float, bytes, StoredImage, ndarray or object
            The value, see `Field.read_value`. JSON gives Python objects.

        Raises
        ------
        FormatError
            If the value is damaged, such as JSON that cannot be parsed.
        """
        content = self.stored(sample, name)
        images = self._images(name, sample)
        if images is not None:
            codec = CODECS.get(images.mode[0])
            kind = "raw" if codec is None else codec.suffix
            return StoredImage(kind, int(images.height[0]), int(images.width[0]), content)
        with self._reading(sample, name, content):
            return self._fields[name].read_value(self.index.column(name)[sample], content)

    def to_file(self, sample: int, name: str) -> tuple[str, bytes]:
        """Convert a value to a file; errors as for `value`.

        Parameters
        ----------
        sample, name
            The sample and the field.

        Returns
        -------
        tuple of str and bytes
            The ending of its name, and its content: JPEG files as they are, pixels as PNG, arrays as ``.npy``, numbers
            as text, JSON and bytes as they are, also damaged JSON.
        """
        if self._images(name) is not None:
            image: StoredImage = self.value(sample, name)
            return image.to_file()
        content = self.stored(sample, name)
        with self._reading(sample, name, content):
            return self._fields[name].to_file(self.index.column(name)[sample], content)

    def _images(self, name: str, sample: int = 0) -> ImageColumn | None:
        column = self.index.column(name)[sample : sample + 1]  # raises `NoSuchFieldError`
        return self._fields[name].images(column)

    @contextmanager
    def _reading(self, sample: int, name: str, content: bytes) -> Iterator[None]:
        """Name the sample and the field in an error of the field."""
        try:
            yield
        except ValueError as error:
            raise FormatError(
                f"{place_of(self, sample, name)}: {len(content)} bytes that cannot be read: {error}. "
                f"`gpubeton cat FILE {sample} --only FIELD` writes the bytes as they are"
            ) from error


def place_of(contents: Contents, sample: int, name: str) -> str:
    """Name the place of a value in a message."""
    return f"{contents.index.path}: sample {sample}, field {name!r}"


def class_name(label: int, names: Sequence[str] | None) -> str:
    """Name the class of a label; give the number if it has no name."""
    return names[label] if names is not None and 0 <= label < len(names) else str(label)


def checked_samples(samples: Sequence[int] | NDArray[Any] | None, count: int, place: str = "") -> NDArray[np.int64]:
    """List samples, (N,), of `count`, by default all; OptionError if one does not exist."""
    chosen: NDArray[Any] = np.arange(count) if samples is None else np.asarray(samples)  # numbers of any size
    wrong = chosen[(chosen < 0) | (chosen >= count)]
    if len(wrong):
        raise OptionError(f"{place}no sample {wrong[0]}; there are {count}: 0 to {count - 1}")
    return chosen.astype(np.int64, copy=False)


# --- extraction


@dataclass(frozen=True)
class Extraction:
    """The result of an extraction. Made by `extract`."""

    folder: Path  #: the folder with all files
    table: Path  #: the list of all samples
    samples: int  #: number of extracted samples
    images: Path | None  #: the folder of the images, one folder per class
    bad: list[Finding] = field(default_factory=list)  #: values that could not be extracted


def extract(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    samples: Sequence[int] | NDArray[Any] | None = None,
    custom_fields: CustomFields | None = None,
    *,
    label: str = "label",
    num_workers: int = -1,
    on_progress: Progress | None = None,
) -> Extraction:
    """Write samples as files.

    ``FOLDER/FIELD/CLASS/NUMBER.jpg`` holds the image of a sample, JPEG files as they are, pixels as PNG; other fields
    with files have a folder each. ``FOLDER/samples.csv`` lists all samples in order, with their numbers and the names
    of their files. Its conversion gives the same samples in the same order; that of the folder of images gives the same
    images with the same labels, class by class. ``FOLDER/classes.txt`` has the names of the classes, if there are any.

    Parameters
    ----------
    path
        The file.
    folder : str or path
        The folder to write to; it has to be empty or new.
    samples : sequence of int, optional
        The samples. By default all.
    custom_fields
        As for `verify`.
    label : str
        The field of labels, if there is one.
    num_workers, on_progress
        As for `verify`, but for samples.

    Returns
    -------
    Extraction
        The written files, and the values that could not be extracted.

    Raises
    ------
    OptionError
        If the folder is not empty, or a sample does not exist.

    Examples
    --------
    >>> done = extract("train.beton", "some", range(3), num_workers=1)
    >>> done.samples, done.table.name, done.images.name
    (3, 'samples.csv', 'image')
    """
    contents = Contents(path, custom_fields)
    target = Path(folder)
    if target.exists() and (not target.is_dir() or next(target.iterdir(), None) is not None):
        raise OptionError(f"{target}: exists and is not empty; expected a new folder")
    chosen = checked_samples(samples, contents.index.num_samples, f"{path}: ")
    output = _OutputFolder(contents, target, chosen, label)
    bad: list[Finding] = []
    target.mkdir(parents=True, exist_ok=True)
    if contents.class_names is not None:
        lines = [" ".join(name.splitlines()) + "\n" for name in contents.class_names]
        (target / CLASSES).write_text("".join(lines), encoding="utf-8")
    threads = worker_count(num_workers)
    with (
        # JSON can hold lone surrogates; their replacement is the escape that JSON has for them.
        (target / TABLE).open("w", newline="", encoding="utf-8", errors="backslashreplace") as file,
        ThreadPoolExecutor(threads) as pool,
    ):
        table = csv.writer(file)
        table.writerow(output.header)
        for start in range(0, len(chosen), _BLOCK):
            block = chosen[start : start + _BLOCK].tolist()
            for row, faults in pool.map(output.write, block):
                table.writerow(row)
                bad += faults
            if on_progress is not None:
                on_progress(start + len(block), len(chosen))
    return Extraction(target, target / TABLE, len(chosen), output.images, bad)


class _OutputFolder:
    """Chooses the names of all files, and writes them."""

    def __init__(self, contents: Contents, folder: Path, chosen: NDArray[np.int64], label: str) -> None:
        self._contents = contents
        self._folder = folder
        names = contents.index.names
        self._folders = dict(zip(names, _unique([_safe(name) for name in names]), strict=True))
        self._width = len(str(max(0, contents.index.num_samples - 1)))
        self._labels = contents.labels(label)
        images = contents.image_fields
        self._first_image = images[0] if images else None
        self.images = folder / self._folders[images[0]] if images else None
        self._classes = {} if self._labels is None else _class_folders(contents, self._labels[chosen])
        self._named = self._labels is not None and contents.class_names is not None
        self.header = [*names, *(["class_name"] if self._named else [])]

    def write(self, sample: int) -> tuple[list[Any], list[Finding]]:
        """Write the files of a sample; return its row of the table, and the values that could not be written."""
        row, faults = zip(*(self._try(sample, name) for name in self._contents.index.names), strict=True)
        title: list[Any] = []
        if self._named and self._labels is not None:
            title = [class_name(int(self._labels[sample]), self._contents.class_names)]
        return [*row, *title], list(filter(None, faults))

    def _try(self, sample: int, name: str) -> tuple[Any, Finding | None]:
        try:
            return self._write_value(sample, name), None
        except (GpubetonError, ValueError) as error:
            fault = str(error).removeprefix(f"{place_of(self._contents, sample, name)}: ")
            return "", Finding(sample, name, fault)

    def _write_value(self, sample: int, name: str) -> Any:
        value = self._contents.value(sample, name)
        if isinstance(value, int | float):
            return repr(value)
        if isinstance(value, str | list | dict) or value is None:
            return json.dumps(value, ensure_ascii=False)
        ending, content = self._contents.to_file(sample, name)
        place = Path(self._folders[name])
        if name == self._first_image and self._labels is not None:
            place /= self._classes[int(self._labels[sample])]
        place /= f"{sample:0{self._width}}{ending}"
        (self._folder / place).parent.mkdir(parents=True, exist_ok=True)
        (self._folder / place).write_bytes(content)
        return place.as_posix()


def _class_folders(contents: Contents, labels: NDArray[np.int64]) -> dict[int, str]:
    """Choose a folder for each label, in the alphabetical order of the labels."""
    names = {label: class_name(label, contents.class_names) for label in np.unique(labels).tolist()}
    folders = list(names.values())
    is_safe = all(_safe(name) == name for name in folders) and _unique(folders) == folders
    if contents.class_names and is_safe and folders == sorted(folders):
        return names
    width = len(str(max(names)))
    numbers = {label: f"{label:0{width}}" for label in names}
    if not contents.class_names:
        return numbers
    return {label: f"{numbers[label]}_{_safe(name)}" for label, name in names.items()}


def _safe(name: str) -> str:
    """Change a name so that it cannot point outside of its folder."""
    cleaned = re.sub(r"[/\\\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", "_", name)
    cleaned = cleaned.encode()[:200].decode(errors="ignore")
    is_free = cleaned and not cleaned.startswith(".") and cleaned.casefold() not in (TABLE, CLASSES)
    return cleaned if is_free else f"_{cleaned}"


def _unique(names: list[str]) -> list[str]:
    """Number equal names, also for file systems that do not distinguish "A" and "a"."""
    unique: dict[str, str] = {}
    for name in names:
        numbered, number = name, 1
        while numbered.casefold() in unique:
            number += 1
            numbered = f"{name}_{number}"
        unique[numbered.casefold()] = numbered
    return list(unique.values())
