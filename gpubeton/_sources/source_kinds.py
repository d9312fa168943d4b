"""Kinds of sources: recognize and open them."""

from __future__ import annotations

import os
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton._bytes.object_store import list_objects
from gpubeton._bytes.open_files import is_folder, list_shards
from gpubeton._sources.archive_sources import TarSource, ZipSource
from gpubeton._sources.arrow_sources import HuggingFaceSource
from gpubeton._sources.file_sources import FolderSource, open_table
from gpubeton._sources.library_sources import TorchvisionSource
from gpubeton.errors import OptionError
from gpubeton.format.data_files import DESCRIPTION, INDEX_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpubeton._bytes.store_client import RemoteOptions
    from gpubeton._sources.source import LabelledSource

_TORCHVISION = "torchvision:"

_KINDS: Mapping[str, Callable[..., LabelledSource]] = {
    "folder": FolderSource,
    "webdataset": TarSource,
    "huggingface": HuggingFaceSource,
    "torchvision": TorchvisionSource,
    "table": open_table,
    "zip": ZipSource,
}
_ENDINGS = {
    "table": (".csv", ".tsv", ".tab", ".parquet"),
    "webdataset": (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2"),
    "huggingface": (".arrow",),
    "zip": (".zip",),
}

SOURCE_KINDS = tuple(_KINDS)
"""Kinds of sources that `open_source` knows."""


def recognise(source: str | os.PathLike[str], remote: RemoteOptions | None = None) -> str:
    """Recognize the kind of a source, by its name and by the files there.

    Parameters
    ----------
    source : str or path
        A folder, a table, tar files, a zip file, a dataset of Hugging Face on disk, or ``torchvision:NAME``. All but
        the last may be URLs; that of a folder ends in "/".
    remote : RemoteOptions, optional
        How the store of a URL is reached.

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
    if kind := _kind_by_name(name):
        return kind
    if not is_folder(name):
        reason = "no known kind of source" if "://" in name or Path(name).exists() else "no such file or directory"
        if name.endswith(INDEX_SUFFIX):
            reason = f"an index, which a loader reads, Loader({name!r}, ...), and no source"
        raise OptionError(
            f"{name}: {reason}; expected a folder of images, a .csv or .parquet table, .tar files, a .zip file, .arrow "
            "files or a folder that Hugging Face's save_to_disk has written, or torchvision:NAME. The URL of a folder "
            "ends in a slash. Name the kind: --from KIND"
        )
    if "://" in name:
        names = [url.removeprefix(name) for url, _, _ in list_objects(name, remote)]
    else:
        names = [f"{entry.name}{'/' * entry.is_dir()}" for entry in os.scandir(name)]
    if not {"dataset_dict.json", "dataset_info.json"}.isdisjoint(names):
        return "huggingface"
    endings = {name[name.rfind(".") :] for name in names}  # of a folder with a slash
    kinds = [kind for kind in ("webdataset", "huggingface") if _ENDINGS[kind][0] in endings]
    has_folders = any(name.endswith("/") for name in names)
    return kinds[0] if kinds and not has_folders else "folder"


def _kind_by_name(name: str) -> str | None:
    text = (name.partition("?")[0] if "://" in name else name).lower()
    return next((kind for kind, endings in _ENDINGS.items() if text.endswith(endings)), None)


def is_container(name: str) -> bool:
    """Whether a name means samples in files of another kind than ``.beton``; of URLs it sees no folders."""
    if _kind_by_name(name):
        return True
    if "://" in name or not is_folder(name):
        return False
    return not list_shards(name) and not Path(name, DESCRIPTION).exists() and any(Path(name).iterdir())


def open_source(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], kind: str | None = None, **options: Any
) -> LabelledSource:
    """Open the source of a new file, or of an index.

    Parameters
    ----------
    source : str, path, or sequence of them
        A folder, a table, tar files, a zip file, a dataset of Hugging Face on disk, or ``torchvision:NAME``. All but
        the last may be URLs; that of a folder ends in "/". Several are tar files.
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
    kind = kind or recognise(names[0], options.get("remote"))
    if len(names) > 1 and kind != "webdataset":
        raise OptionError(f"{names[0]} and {len(names) - 1} more: several sources are tar files, these of kind {kind}")
    if kind not in _KINDS:
        raise OptionError(f"kind is {kind!r}, expected one of {', '.join(SOURCE_KINDS)}")
    chosen = {name: value for name, value in options.items() if value is not None and value is not False}
    _, *possible = signature(_KINDS[kind]).parameters
    wrong = [name for name in chosen if name not in possible]
    if wrong:
        raise OptionError(
            f"{', '.join(wrong)}: not for a source of the kind {kind}, which takes {', '.join(possible) or 'none'}"
        )
    if kind == "webdataset":
        return TarSource(names, **chosen)
    return _KINDS[kind](names[0].removeprefix(_TORCHVISION), **chosen)
