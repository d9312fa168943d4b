"""Kinds of sources: recognize and open them."""

from __future__ import annotations

import os
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton._sources.archive_sources import TarSource, ZipSource
from gpubeton._sources.arrow_sources import HuggingFaceSource
from gpubeton._sources.file_sources import FolderSource, TableSource
from gpubeton._sources.library_sources import TorchvisionSource
from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpubeton._sources.source import LabelledSource

_TORCHVISION = "torchvision:"

_CLASSES: Mapping[str, Callable[..., LabelledSource]] = {
    "folder": FolderSource,
    "webdataset": TarSource,
    "huggingface": HuggingFaceSource,
    "torchvision": TorchvisionSource,
    "table": TableSource,
    "zip": ZipSource,
}
_ENDINGS = {
    "table": (".csv", ".tsv", ".tab", ".parquet"),
    "webdataset": (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2"),
    "huggingface": (".arrow",),
    "zip": (".zip",),
}

SOURCE_KINDS = tuple(_CLASSES)
"""Kinds of sources that `open_source` knows."""


def recognise(source: str | os.PathLike[str]) -> str:
    """Recognize the kind of a source, by its name and by the files there.

    Parameters
    ----------
    source : str or path
        A folder, a table, tar files, a zip file, a dataset of Hugging Face on disk, or ``torchvision:NAME``. Tar and
        zip files may be URLs; one that ends in "/" means the tar files there.

    Returns
    -------
    str
        One of `SOURCE_KINDS`.

    Raises
    ------
    OptionError
        If it is none of them.

    Examples
    --------
    >>> recognise("torchvision:CIFAR10"), recognise("train-{000..146}.tar")
    ('torchvision', 'webdataset')
    """
    name = os.fspath(source)
    if name.startswith(_TORCHVISION):
        return "torchvision"
    is_url, path = "://" in name, Path(name)
    text = (name.partition("?")[0] if is_url else name).lower()
    if kind := next((kind for kind, endings in _ENDINGS.items() if text.endswith(endings)), None):
        return kind
    if is_url and name.endswith("/"):
        return "webdataset"
    if not path.is_dir():
        reason = "no known kind of source" if is_url or path.exists() else "no such file or directory"
        raise OptionError(
            f"{name}: {reason}; expected a folder of images, a .csv or .parquet table, .tar files, a .zip file, .arrow "
            "files or a folder that Hugging Face's save_to_disk has written, or torchvision:NAME. Name the kind: "
            "--from KIND"
        )
    if (path / "dataset_dict.json").is_file() or (path / "dataset_info.json").is_file():
        return "huggingface"
    has_folders = any(entry.is_dir() for entry in path.iterdir())
    kinds = [kind for kind in ("webdataset", "huggingface") if any(path.glob(f"*{_ENDINGS[kind][0]}"))]
    return "folder" if has_folders or not kinds else kinds[0]


def open_source(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], kind: str | None = None, **options: Any
) -> LabelledSource:
    """Open the source of a new file, or of an index.

    Parameters
    ----------
    source : str, path, or sequence of them
        A folder, a table, tar files, a zip file, a dataset of Hugging Face on disk, or ``torchvision:NAME``. Tar and
        zip files may be URLs; one that ends in "/" means the tar files there. Several are tar files.
    kind : str, optional
        One of `SOURCE_KINDS`; by default, the one that `recognise` finds.
    **options
        ``image``, ``label``, ``class_names``, ``split``, ``root``, ``download``, ``remote`` (`RemoteOptions`),
        ``suffixes`` (of images in a folder), ``rows`` (of a Parquet file), if the kind has them. None is the same as
        leaving one out.

    Returns
    -------
    Source
        Its samples.

    Raises
    ------
    OptionError
        If its kind is unknown, or does not have an option.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> source = open_source("train")
    >>> source.kind, len(source), source.class_names
    ('folder', 300, ('class_0', 'class_1', 'class_2'))
    """
    names = [os.fspath(name) for name in ([source] if isinstance(source, str | os.PathLike) else source)]
    kind = kind or recognise(names[0])
    if len(names) > 1 and kind != "webdataset":
        raise OptionError(f"{names[0]} and {len(names) - 1} more: several sources are tar files, these of kind {kind}")
    if kind not in _CLASSES:
        raise OptionError(f"kind is {kind!r}, expected one of {', '.join(SOURCE_KINDS)}")
    chosen = {name: value for name, value in options.items() if value is not None and value is not False}
    _, *possible = signature(_CLASSES[kind]).parameters
    if "://" in names[0] and "remote" not in possible:
        raise OptionError(
            f"{names[0]}: a source of kind {kind} is read from this machine only. Mount or copy it; tar and zip files "
            "may be in a store"
        )
    wrong = [name for name in chosen if name not in possible]
    if wrong:
        raise OptionError(
            f"{', '.join(wrong)}: not for a source of the kind {kind}, which takes {', '.join(possible) or 'none'}"
        )
    if kind == "webdataset":
        return TarSource(names, **chosen)
    return _CLASSES[kind](names[0].removeprefix(_TORCHVISION), **chosen)
