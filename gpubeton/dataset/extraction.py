"""Extraction: write the samples of a file as files in a folder."""

from __future__ import annotations

import csv
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._machine import worker_count
from gpubeton.dataset.contents import Contents, checked_samples, class_name, place_of
from gpubeton.dataset.verification import Finding
from gpubeton.errors import GpubetonError, OptionError

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._bytes import Progress
    from gpubeton.fields.registry import CustomFields

TABLE = "samples.csv"
CLASSES = "classes.txt"
#: Samples that are given to the threads at a time.
_BLOCK = 256


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
