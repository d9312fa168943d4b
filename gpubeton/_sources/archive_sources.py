"""Sources that are archives: tar files of webdataset, and zip files of folders, on this machine or in object stores."""

from __future__ import annotations

import os
import struct
import threading
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.local_file import FileIdentity
from gpubeton._bytes.open_files import open_bytes
from gpubeton._bytes.store_client import RemoteOptions
from gpubeton._machine import count_cores
from gpubeton._sources.file_sources import IMAGE_SUFFIXES, ImageFolder
from gpubeton._sources.small_reads import SmallReads
from gpubeton._sources.source import LABEL, LabelledSource, Labels, Places, find_files, places_of_rows
from gpubeton._sources.tar_files import list_samples
from gpubeton.errors import FormatError, OptionError
from gpubeton.fields.json import parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubeton._bytes.byte_source import SourceIdentity
    from gpubeton._sources.tar_files import TarSample

_LABEL_MEMBERS = ("cls", "label", "target", "cls.txt", "label.txt")
_ZIP_HEADER = struct.Struct("<26x2H")  # of a file; the lengths of its name and of more, which follow
_IMAGE_MEMBERS = tuple(suffix.removeprefix(".") for suffix in IMAGE_SUFFIXES)


class ArchiveSource(LabelledSource):
    """Images that lie in one piece in larger files, of which only headers are read beforehand."""

    # Each sample is then read from its place, so that all processes can read one file.

    _containers: Sequence[tuple[str, SourceIdentity]]
    _places: np.ndarray[Any, np.dtype[np.int64]]  # (N, 3): number of the container, offset, size
    _names: Sequence[object]  # in the container

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        _, offset, size = self._places[index].tolist()
        with open_bytes(*self._container(index)) as source:
            return self._with_label(source.read_exactly(offset, size), index)

    def name(self, index: int) -> str:
        return f"{self._container(index)[0]}: {self._names[index]}"

    def identity(self, index: int) -> str:
        _, state = self._container(index)
        time = state.mtime_ns if isinstance(state, FileIdentity) else getattr(state, "version", "")
        return f"{self.name(index)} {self._label_text(index)} {state.size} {time}"

    def input_files(self) -> Sequence[str]:
        return [path for path, _ in self._containers]

    def places(self) -> Places:
        return places_of_rows(self._containers, self._places)

    def _container(self, index: int) -> tuple[str, SourceIdentity]:
        return self._containers[int(self._places[index, 0])]


@dataclass
class _TarIndex:
    """The samples of one tar file."""

    container: tuple[str, SourceIdentity]
    names: list[str] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)  # offset, size
    labels: list[Any] = field(default_factory=list)
    endings: dict[str, None] = field(default_factory=dict)  # an ordered set
    hidden: Counter[str] = field(default_factory=Counter)


class TarSource(ArchiveSource):
    """Images and labels in uncompressed tar files of webdataset: ``KEY.jpg``, ``KEY.cls``."""

    # webdataset need not be installed. `image` and `label` are the endings of the files, or ``json:KEY`` for a value of
    # a JSON file; by default any image, and ``cls``.

    kind = "webdataset"

    def __init__(
        self,
        shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        image: str | None = None,
        label: str | None = None,
        class_names: Sequence[str] | None = None,
        remote: RemoteOptions | None = None,
    ) -> None:
        patterns = [os.fspath(name) for name in ([shards] if isinstance(shards, str | os.PathLike) else shards)]
        paths = [path for pattern in patterns for path in find_files(pattern, ".tar", remote)]
        self._remote = remote
        self._image_names = (image,) if image is not None else _IMAGE_MEMBERS
        self._member, colon, key = (label or self._find_label(paths)).partition(":")
        self._key = (key or LABEL) if colon or self._member == "json" else None
        listed = self._list(paths)
        self._containers = [tar.container for tar in listed]
        # A few numbers for each sample, not its members: there may be millions.
        self._names = [name for tar in listed for name in tar.names]
        if not self._names:
            raise OptionError(
                f"{', '.join(patterns)}: no samples with an image, expected files such as 000001.jpg and 000001.cls "
                f"({', '.join(self._image_names)}). Name the ending of images: --image ENDING"
            )
        used = (*self._image_names, self._member)
        self.unused = [
            name for name in dict.fromkeys(name for tar in listed for name in tar.endings) if name not in used
        ]
        self.passed_over = sum((tar.hidden for tar in listed), Counter())
        places = np.array([place for tar in listed for place in tar.places], np.int64)
        numbers = np.repeat(np.arange(len(listed)), [len(tar.places) for tar in listed])
        self._places = np.column_stack([numbers, places])
        if self._member:
            values = [value for tar in listed for value in tar.labels]
            self.set_labels(Labels(values, class_names, where=paths[0]))

    def _ending(self, sample: TarSample) -> str | None:
        return next((name for name in self._image_names if name in sample.members), None)

    def _find_label(self, paths: Sequence[str]) -> str:
        """Find the ending of labels; "" if the first sample has none."""
        for path in paths:
            with open_bytes(path, remote=self._remote) as source:
                samples = list_samples(source, Counter())
                first = next((sample for sample in samples if self._ending(sample) is not None), None)
            if first is not None:
                return next((name for name in _LABEL_MEMBERS if name in first.members), "")
        return ""

    def _list(self, paths: Sequence[str]) -> list[_TarIndex]:
        """List the samples of all tar files, of several at the same time."""
        is_remote = any("://" in path for path in paths)
        at_once = (self._remote or RemoteOptions()).requests if is_remote else count_cores()
        is_stopped = threading.Event()
        with ThreadPoolExecutor(at_once, "gpubeton-tar") as threads:
            try:
                return list(threads.map(partial(self._list_tar, is_stopped), paths))
            except BaseException:
                is_stopped.set()
                threads.shutdown(cancel_futures=True)
                raise

    def _list_tar(self, is_stopped: threading.Event, path: str) -> _TarIndex:
        with open_bytes(path, remote=self._remote) as source:
            tar = _TarIndex((path, source.identity()))
            for sample in list_samples(source, tar.hidden, self._member):
                if is_stopped.is_set():
                    break
                tar.endings.update(dict.fromkeys(sample.members))
                ending = self._ending(sample)
                if ending is None:
                    continue
                tar.names.append(f"{sample.key}.{ending}")
                tar.places.append(sample.members[ending])
                if self._member:
                    tar.labels.append(_label(path, sample, self._member, self._key))
        return tar


def _label(path: str, sample: TarSample, member: str, key: str | None) -> Any:
    """Read the label of a sample: a text, or with a key a value of a JSON file."""
    if sample.label is None:
        raise OptionError(
            f"{path}: {sample.key} has no {member!r} for its label, it has {', '.join(map(repr, sample.members))}. "
            "Name the ending of labels: --label ENDING, or json:KEY"
        )
    if key is None:
        return sample.label.decode("utf-8", "replace").strip()
    values: Any = None
    try:
        values = parse_json(sample.label)
        return values[key]
    except (KeyError, TypeError, ValueError) as error:
        keys = f"it has {', '.join(map(repr, values))}" if isinstance(error, KeyError) else "it has no keys"
        raise OptionError(
            f"{path}: {sample.key}.{member} has no {key!r}, {keys}. Choose one: --label json:KEY"
        ) from error


class ZipSource(ArchiveSource):
    """Images in a zip file that stores them without compression; folders in it are classes, as in a `FolderSource`."""

    kind = "zip"

    def __init__(self, path: str | os.PathLike[str], *, remote: RemoteOptions | None = None) -> None:
        name = os.fspath(path)
        with open_bytes(name, remote=remote) as source:
            self._containers = [(name, source.identity())]
            reads = SmallReads(source)
            entries = _list_entries(reads)
            images = ImageFolder(name, entries)
            self._names, self.passed_over = images.files, images.passed_over
            chosen = [entries[file] for file in images.files]
            self._places = np.zeros((len(chosen), 3), np.int64)
            # In the order of the file: of an object in a store, fewer blocks are read.
            for number in sorted(range(len(chosen)), key=lambda number: chosen[number].header_offset):
                self._places[number, 1:] = _find_content(reads, chosen[number])
        self._labels = images.labels
        if images.classes:
            self.fields, self.class_names = {LABEL: "int"}, images.classes


def _list_entries(reads: SmallReads) -> Mapping[str, zipfile.ZipInfo]:
    """List the files and folders in a zip file by their names; of several of one name the last counts."""
    try:
        with zipfile.ZipFile(reads) as file:
            return {entry.filename.removeprefix("./").lstrip("/"): entry for entry in file.infolist()}
    except (zipfile.BadZipFile, NotImplementedError, OverflowError, EOFError, ValueError, struct.error) as error:
        raise FormatError(f"{reads.name}: no zip file that can be read ({error}). Is it complete?") from error


def _find_content(reads: SmallReads, entry: zipfile.ZipInfo) -> tuple[int, int]:
    """Find the offset and the size of a file in a zip file, after a look at its header there."""
    where = f"{reads.name}: {entry.filename!r}"
    if entry.flag_bits & 1:
        raise OptionError(f"{where} is encrypted. Unpack the zip file")
    if entry.compress_type != zipfile.ZIP_STORED:
        raise OptionError(
            f"{where} is compressed, and cannot be read in place. Store images, which zip makes no smaller: "
            "unpack the zip file, and pack it again by zip -0 -r NEW.zip FOLDER"
        )
    header = reads.at(entry.header_offset, _ZIP_HEADER.size) if 0 <= entry.header_offset < reads.size else b""
    if len(header) == _ZIP_HEADER.size and header.startswith(b"PK\3\4"):
        offset = entry.header_offset + len(header) + sum(_ZIP_HEADER.unpack(header))
        if entry.file_size == entry.compress_size and offset + entry.file_size <= reads.size:
            return offset, entry.file_size
    raise FormatError(
        f"{where} should have {entry.file_size} bytes after its header at {entry.header_offset} of {reads.size} bytes, "
        "but has none there. The zip file is damaged or cut: compare it with the original."
    )
