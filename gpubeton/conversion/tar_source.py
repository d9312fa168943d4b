"""TarSource: images and labels in tar files, named as webdataset wants it."""

from __future__ import annotations

import itertools
import os
import re
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from gpubeton.conversion.source import LABEL, Labels, Source, stat_identity
from gpubeton.errors import OptionError
from gpubeton.fields.json import parse_json
from gpubeton.writing.image_folder import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["TarSource", "expand_braces"]

_LABEL_MEMBERS = ("cls", "label", "target", "cls.txt", "label.txt")
_IMAGE_MEMBERS = tuple(suffix.removeprefix(".") for suffix in IMAGE_SUFFIXES)


@dataclass(frozen=True)
class _Sample:
    """Files of a tar file with one name before the first dot: where the content of each is."""

    key: str
    members: dict[str, tuple[int, int]] = field(default_factory=dict)


class TarSource(Source):
    """Images and labels in tar files, named as webdataset wants it: ``KEY.jpg``, ``KEY.cls``.

    Only the heads of the tar files are read beforehand. Each sample is then read from its place, so that all
    processes can work on one tar file, and webdataset need not be installed.

    Parameters
    ----------
    shards : str or path, or sequence of them
        Tar files, uncompressed. Braces stand for several: ``train-{000..146}.tar``, ``{train,val}.tar``; a folder
        stands for all tar files in it.
    image, label : str, optional
        Endings of the files that hold them, without the dot; ``json:KEY`` is a value of a JSON file. By default any
        image, and ``cls``; without a label there are none.
    class_names : sequence of str, optional
        Names of the classes in the order of their numbers.

    Raises
    ------
    OptionError
        If there is no tar file, one is compressed, or no image is found.
    """

    kind = "webdataset"

    def __init__(
        self,
        shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        image: str | None = None,
        label: str | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        given = [shards] if isinstance(shards, str | os.PathLike) else shards
        self._shards = [path for shard in given for path in _files(os.fspath(shard))]
        self._image_names = (image,) if image is not None else _IMAGE_MEMBERS
        self._label = label
        # A few numbers for each sample, not its members: there may be millions.
        self._names: list[str] = []
        places: list[tuple[int, int, int]] = []
        values: list[Any] = []
        for number, path in enumerate(self._shards):
            with path.open("rb") as file:
                for sample in _samples(path):
                    found = next((name for name in self._image_names if name in sample.members), None)
                    if found is not None:
                        places.append((number, *sample.members[found]))
                        self._names.append(f"{sample.key}.{found}")
                        values += self._labels_of(sample, file, path, is_first=len(places) == 1)
        if not places:
            raise OptionError(
                f"{', '.join(map(str, given))}: no samples with an image, expected files such as 000001.jpg and "
                f"000001.cls ({', '.join(self._image_names)}). Name the ending of images: --image ENDING"
            )
        self._places = np.array(places, np.int64)
        self.fields = {}
        self._labels: list[int] | list[float] = []
        if self._label is not None:
            labels = Labels(values, class_names, where=os.fspath(self._shards[0]))
            self._labels, self.fields, self.class_names = labels.numbers, {LABEL: labels.kind}, labels.class_names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        shard, offset, size = self._places[index].tolist()
        with self._shards[shard].open("rb") as file:
            content = _read(file, (offset, size), self.name(index))
        return (content, self._labels[index]) if self._labels else (content,)

    def name(self, index: int) -> str:
        return f"{self._shards[self._places[index, 0]]}: {self._names[index]}"

    def identity(self, index: int) -> str:
        label = self._labels[index] if self._labels else ""
        return f"{self.name(index)} {label} {stat_identity(self._shards[self._places[index, 0]])}"

    def _labels_of(self, sample: _Sample, file: BinaryIO, path: Path, *, is_first: bool) -> list[Any]:
        """Read the label of a sample; the first sample decides whether there are any."""
        if is_first and self._label is None:
            self._label = next((name for name in _LABEL_MEMBERS if name in sample.members), None)
        if self._label is None:
            return []
        member, _, key = self._label.partition(":")
        if member not in sample.members:
            raise OptionError(
                f"{path}: {sample.key} has no {member!r} for its label, it has "
                f"{', '.join(map(repr, sample.members))}. Name the ending of labels: --label ENDING, or json:KEY"
            )
        content = _read(file, sample.members[member], f"{path}: {sample.key}.{member}")
        if member != "json" and not key:
            return [content.decode("utf-8", "replace").strip()]
        try:
            return [parse_json(content)[key or LABEL]]
        except (KeyError, TypeError, ValueError) as error:
            raise OptionError(f"{path}: {sample.key}.{member} has no {key or LABEL!r}; --label json:KEY") from error


def _samples(path: Path) -> Iterator[_Sample]:
    """List the samples of a tar file: consecutive files with one name before the first dot."""
    try:
        with tarfile.open(path, "r:") as tar:
            sample = _Sample("")
            for member in tar:
                # Otherwise it remembers all of them.
                tar.members = []  # type: ignore[attr-defined]  # the stubs leave it out
                # webdataset's rule: the key reaches to the first dot of the file's own name.
                folder, _, own = member.name.rpartition("/")
                stem, dot, ending = own.partition(".")
                if not member.isfile() or not dot:
                    continue
                key = f"{folder}/{stem}" if folder else stem
                if key != sample.key:
                    if sample.members:
                        yield sample
                    sample = _Sample(key)
                sample.members[ending.lower()] = (member.offset_data, member.size)
            if sample.members:
                yield sample
    except tarfile.ReadError as error:
        raise OptionError(
            f"{path}: not a tar file that can be read at any place ({error}). Decompress .tar.gz and the like "
            "before, or use DatasetWriter.from_webdataset."
        ) from error


def _read(file: BinaryIO, place: tuple[int, int], name: str) -> bytes:
    offset, size = place
    file.seek(offset)
    content = file.read(size)
    if len(content) < size:
        raise EOFError(f"{name}: {len(content)} bytes, expected {size}")
    return content


def expand_braces(pattern: str) -> list[str]:
    """Write out the braces of a pattern, as shells and webdataset do.

    Parameters
    ----------
    pattern : str
        With ``{a,b}`` for alternatives and ``{000..146}`` for numbers, of as many digits as are written.

    Returns
    -------
    list of str
        What it stands for, in order.

    Examples
    --------
    >>> expand_braces("{train,val}-{08..10}.tar")
    ['train-08.tar', 'train-09.tar', 'train-10.tar', 'val-08.tar', 'val-09.tar', 'val-10.tar']
    """
    parts = re.split(r"\{([^{}]*)\}", pattern)
    choices = [_alternatives(part) if number % 2 else [part] for number, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _alternatives(text: str) -> list[str]:
    numbers = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if numbers is None:
        return text.split(",")
    first, last = numbers.groups()
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def _files(pattern: str) -> list[Path]:
    found = [Path(name) for name in expand_braces(pattern)]
    found = [path for each in found for path in (sorted(each.glob("*.tar")) if each.is_dir() else [each])]
    missing = [path for path in found if not path.is_file()]
    if missing or not found:
        which = missing[0] if missing else pattern
        raise OptionError(f"{which}: no such tar file ({len(missing)} of {len(found)} are missing)")
    return found
