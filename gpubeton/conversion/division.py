"""Division: the parts that a source is divided into, found once for all shards."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gpubeton.conversion.file_settings import choose_samples
from gpubeton.conversion.file_sources import TarSource, expand_braces, find_tar_files
from gpubeton.conversion.parts import Layout, Part, copy_object
from gpubeton.conversion.source import LABEL, LabelledSource, Source
from gpubeton.conversion.source_kinds import open_source, recognise
from gpubeton.errors import OptionError
from gpubeton.files.local_file import temporary_folder
from gpubeton.files.object_store import list_objects, read_object
from gpubeton.writing.image_folder import IMAGE_SUFFIXES
from gpubeton.writing.target_folder import is_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.conversion.file_settings import Settings
    from gpubeton.files.remote_options import RemoteOptions

#: Endings of the files that parts are made of, for each kind of source that has such files.
_ENDINGS = {"webdataset": ".tar", "table": ".parquet", "huggingface": ".arrow"}
_HIDDEN = re.compile(r"(?:[^/]*/)*?\.[^/]*")
_SPLITS = re.compile(r"(?:^|[/_.-])(train|validation|valid|val|dev|test)(?=[/_.-])", re.IGNORECASE)


@dataclass(frozen=True)
class _Samples:
    """The samples of a source that is not divided by its files."""

    count: int
    fields: Mapping[str, str]
    class_names: tuple[str, ...] | None
    images: Sequence[str] | None = None  # their paths or URLs, if each is a file
    labels: Sequence[Any] = ()  # of the images
    passed_over: Mapping[str, int] = field(default_factory=dict)
    labels_are_names: bool | None = None
    unused: tuple[str, ...] = ()

    def part(self, share: NDArray[np.int64]) -> Part:
        """Make the part with some samples, (N,)."""
        chosen = share.tolist()
        if self.images is None:
            return {"rows": chosen}
        part: Part = {"images": [self.images[index] for index in chosen]}
        if self.labels:
            part["labels"] = [self.labels[index] for index in chosen]
        return part


def divide(
    source: str, kind: str | None, options: Mapping[str, Any], settings: Settings, count: int,
    remote: RemoteOptions | None,
) -> tuple[Layout, Iterator[Part]]:  # fmt: skip
    """Divide a source into `count` parts: of whole files if it has many, otherwise of images or rows."""
    # The parts are made one after the other: all of them are as large as the list of the samples.
    names = _list_names(source, remote)
    kind = kind or _recognise(source, names)
    files = _choose_files(source, kind, names, options, remote)
    if files and (len(files) > 1 or is_url(source) or kind == "webdataset"):
        opened = _open_first(files, kind, options, remote)
        if not (isinstance(opened, LabelledSource) and opened.image_files()):
            if settings.limit is not None:
                raise OptionError(f"{source}: limit is {settings.limit}, but shards of it are made of whole files")
            shares = _share(source, "files", choose_samples(len(files), settings), count)
            are_names = opened.labels_are_names if isinstance(opened, LabelledSource) else None
            layout = Layout(
                source, kind, options, dict(opened.fields), opened.class_names, {}, are_names, tuple(opened.unused)
            )
            return layout, ({"files": [files[number] for number in share.tolist()]} for share in shares)
        if len(files) > 1:
            raise OptionError(f"{source}: {len(files)} tables of paths; expected one, or tables that hold the images")
    if kind == "folder" and is_url(source):
        samples = _list_folder(source, names)
    else:
        samples = _list_samples(source, _open_first([source], kind, options, remote), options)
    shares = _share(source, "samples", choose_samples(samples.count, settings), count)
    layout = Layout(
        source, kind, options, samples.fields, samples.class_names, samples.passed_over, samples.labels_are_names,
        samples.unused,
    )  # fmt: skip
    return layout, map(samples.part, shares)


def _list_names(source: str, remote: RemoteOptions | None) -> list[str]:
    """List the files that a source consists of; those of a local folder only where they are directly in it."""
    if is_url(source):
        found: list[str] = []
        for name in expand_braces(source):
            listed = list_objects(name, remote, is_deep=True) if name.endswith("/") else [(name, 0, None)]
            found += sorted(url for url, *_ in listed)
        return found
    if Path(source).is_dir():
        return sorted(entry.path for entry in os.scandir(source) if entry.is_file())
    return expand_braces(source)


def _recognise(source: str, names: Sequence[str]) -> str:
    endings = Counter(PurePosixPath(name).suffix.lower() for name in names)
    if not is_url(source):
        kind = recognise(source)
        return "table" if kind == "folder" and endings[".parquet"] and not _has_folders(source) else kind
    for kind, ending in (*_ENDINGS.items(), ("table", ".csv")):
        if endings[ending]:
            return kind
    if any(endings[each] for each in ("", *IMAGE_SUFFIXES)):
        return "folder"
    raise OptionError(
        f"{source}: {len(names)} objects, none of a known kind; expected .tar, .parquet, .csv or .arrow files, or "
        'images. The name of a folder ends in "/". Name the kind: --from KIND'
    )


def _has_folders(path: str) -> bool:
    return any(entry.is_dir() for entry in os.scandir(path))


def _choose_files(
    source: str, kind: str, names: Sequence[str], options: Mapping[str, Any], remote: RemoteOptions | None
) -> list[str]:
    """Choose the files that parts are made of."""
    if kind == "webdataset" and not is_url(source):
        return [os.fspath(path.absolute()) for path in find_tar_files(source)]
    if kind not in _ENDINGS or (kind == "huggingface" and not is_url(source)):
        return []
    files = [name for name in names if name.lower().endswith(_ENDINGS[kind])]
    if kind == "huggingface":
        split = options.get("split")
        files = [name for name in files if split is None or f"/{split}/" in name]
        if len({name.rpartition("/")[0] for name in files}) > 1:
            raise OptionError(f"{source}: several splits, choose one: --split NAME")
        files = _data_files(files, names, remote)
    elif kind == "table" and "{" not in source:
        own = [name.removeprefix(source) for name in files]
        splits = {found.lower() for name in own for found in _SPLITS.findall(name)}
        if len(splits) > 1:
            raise OptionError(
                f"{source}: files of several splits by their names: {', '.join(sorted(splits))}. Choose one, such as "
                f"{own[0]!r}, with braces for several files: 'train-{{00000..00013}}.parquet'"
            )
    return files if is_url(source) else [os.path.abspath(name) for name in files]  # noqa: PTH100  a text


def _data_files(files: Sequence[str], names: Sequence[str], remote: RemoteOptions | None) -> list[str]:
    """Leave out files in the folder of a Hugging Face dataset that are none of its own: it caches results there."""
    state = files[0].rpartition("/")[0] + "/state.json" if files else ""
    if state not in names:
        return [name for name in files if not name.rpartition("/")[2].startswith("cache-")]
    own = {each["filename"] for each in json.loads(read_object(state, remote))["_data_files"]}
    return [name for name in files if name.rpartition("/")[2] in own]


def _open_first(files: Sequence[str], kind: str, options: Mapping[str, Any], remote: RemoteOptions | None) -> Source:
    """Open the first file, which shows what all of them have in common."""
    with TemporaryDirectory(dir=temporary_folder()) as folder:
        path = os.fspath(copy_object(files[0], Path(folder), remote)) if is_url(files[0]) else files[0]
        opened = open_source(path, kind, **options)
    if len(files) == 1 or opened.class_names is None or "class_names" in options or kind == "huggingface":
        return opened
    # Names of classes that are labels: other files may have others.
    if kind != "webdataset" or is_url(files[0]):
        raise OptionError(
            f"{files[0]}: its labels are names of classes, and each of the {len(files)} files may have others. "
            "Give the names of all: --classes FILE"
        )
    return TarSource(files, **options)


def _list_samples(source: str, opened: Source, options: Mapping[str, Any]) -> _Samples:
    common = len(opened), dict(opened.fields), opened.class_names
    unused = tuple(opened.unused)
    if not isinstance(opened, LabelledSource) or (found := opened.image_files()) is None:
        are_names = opened.labels_are_names if isinstance(opened, LabelledSource) else None
        return _Samples(*common, passed_over=dict(opened.passed_over), labels_are_names=are_names, unused=unused)
    root = options.get("root") or (source.rpartition("/")[0] if is_url(source) else os.path.dirname(source))  # noqa: PTH120
    images = [name if is_url(name) else os.path.join(root, name) for name in found]  # noqa: PTH118  also of URLs
    return _Samples(*common, images, opened.labels, dict(opened.passed_over), unused=unused)


def _list_folder(source: str, names: Sequence[str]) -> _Samples:
    """List the images below a prefix, with the classes, the labels and the order of a folder."""
    by_class: dict[str, list[tuple[str, str]]] = {}
    passed_over: Counter[str] = Counter()
    hidden = set()  # files and folders
    for name in names:
        own = name.removeprefix(source)
        folder, _, file = own.rpartition("/")
        if is_hidden := _HIDDEN.match(own):
            hidden.add(is_hidden[0])
        elif file.lower().endswith(IMAGE_SUFFIXES):
            by_class.setdefault(folder.partition("/")[0], []).append((folder, file))
        elif file:
            passed_over[PurePosixPath(file).suffix.lower()] += 1
    if hidden:
        passed_over["hidden"] = len(hidden)
    classes = sorted(name for name in by_class if name)
    if classes:  # images beside the folders of the classes have no class
        passed_over.update(PurePosixPath(file).suffix.lower() for _, file in by_class.pop("", []))
    images, labels = [], []
    for label, name in enumerate(classes or [""]):
        found = sorted(by_class.get(name, []))
        images += [f"{source}{folder}/{file}" if folder else source + file for folder, file in found]
        labels += [label] * len(found) if classes else []
    fields = {LABEL: "int"} if classes else {}
    return _Samples(len(images), fields, tuple(classes) or None, images, labels, dict(sorted(passed_over.items())))


def _share(source: str, what: str, chosen: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    """Divide numbers into shares of equal size, or nearly so."""
    if not 1 <= count <= len(chosen):
        raise OptionError(f"{source}: {count} shards of {len(chosen)} {what}; expected 1 to {len(chosen)} shards")
    bounds = [number * len(chosen) // count for number in range(count + 1)]
    return [chosen[start:stop] for start, stop in itertools.pairwise(bounds)]
