"""ShardPlan: how a source becomes the shards of a dataset, fixed before the first one is made."""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpubeton.conversion.division import divide
from gpubeton.conversion.file_settings import Settings
from gpubeton.conversion.parts import Layout, Part
from gpubeton.errors import OptionError
from gpubeton.format.data_files import MAX_FILES
from gpubeton.writing.encoder import check_on_error
from gpubeton.writing.target_folder import PLAN_NAME, TargetFolder, is_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpubeton.files.remote_options import RemoteOptions

PARTS_NAME = "conversion.parts"
_VERSION = 1


@dataclass(frozen=True)
class ShardPlan:
    """How a source becomes the shards of a dataset.

    Made by `plan_shards`, which writes it into the target, and read by `load_plan`. It is small, whatever the
    size of the source, so that it can be sent to any number of tasks.

    Attributes
    ----------
    target : str
        The folder, or the prefix of an object store, of the shards.
    settings : Settings
        How samples are stored.
    on_error : str
        Whether a bad sample raises an error or is left out.
    remote : RemoteOptions or None
        How object stores are reached.
    """

    target: str
    layout: Layout = field(repr=False)
    settings: Settings
    on_error: str
    # Where the part of each shard is in `conversion.parts`, and its CRC-32.
    places: tuple[tuple[int, int, int], ...] = field(repr=False)
    remote: RemoteOptions | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def folder(self) -> TargetFolder:
        """The target."""
        return TargetFolder(self.target, self.remote)

    @property
    def names(self) -> list[str]:
        """The names of the shards in the target, which are sorted."""
        digits = max(5, len(str(len(self) - 1)))
        return [f"{number:0{digits}}.beton" for number in range(len(self))]

    @property
    def empty_names(self) -> list[str]:
        """The names of the files that stand for shards of which all samples were left out."""
        return [name.replace(".beton", ".empty") for name in self.names]

    def missing(self) -> list[int]:
        """Find the shards that are not there yet, by one listing.

        Returns
        -------
        list of int
            Their numbers.
        """
        found = self.folder.names()
        names = zip(self.names, self.empty_names, strict=True)
        return [number for number, each in enumerate(names) if found.isdisjoint(each)]


def read_part(plan: ShardPlan, number: int) -> Part:
    """Read what a shard is made of."""
    start, size, checksum = plan.places[number]
    content = plan.folder.read(PARTS_NAME, start, size)
    if zlib.crc32(content) != checksum:
        raise OptionError(
            f"{plan.folder.place(PARTS_NAME)}: the part of shard {number} is not that of {PLAN_NAME}. Both were "
            "written together: delete both and the shards, and start again"
        )
    part: Part = json.loads(content)
    return part


def choose_settings(plan: ShardPlan, number: int, part: Part) -> Settings:
    """Choose the settings for the file of a shard: the plan has shuffled and limited images and rows already."""
    is_shuffled = plan.settings.shuffle and "files" in part
    return replace(plan.settings, shuffle=is_shuffled, limit=None, seed=plan.settings.seed + number)


def load_plan(target: str | os.PathLike[str], remote: RemoteOptions | None = None) -> ShardPlan:
    """Read the plan that `plan_shards` has written into a target.

    Parameters
    ----------
    target : str or path
        The folder, or the prefix of an object store.
    remote : RemoteOptions, optional
        How object stores are reached.

    Returns
    -------
    ShardPlan
        The plan.

    Raises
    ------
    FileNotFoundError
        If there is none.
    OptionError
        If it cannot be read.

    Examples
    --------
    >>> plan = plan_shards("train", "shards", 3)
    >>> load_plan("shards") == plan
    True
    """
    folder = TargetFolder(os.fspath(target), remote)
    content = folder.read(PLAN_NAME)
    try:
        values = json.loads(content)
        if values["version"] != _VERSION:
            raise ValueError(f"version {values['version']}")
        return ShardPlan(
            folder.name,
            Layout.from_dict(values["source"]),
            Settings(**values["settings"]),
            values["on_error"],
            tuple(map(tuple, values["shards"])),
            remote,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise OptionError(
            f"{folder.place(PLAN_NAME)}: not a plan that this version of gpubeton can read ({error}). Use the version "
            "that wrote it, or another target"
        ) from error


def plan_shards(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    shards: int,
    settings: Settings | None = None,
    *,
    kind: str | None = None,
    on_error: str = "raise",
    remote: RemoteOptions | None = None,
    **options: Any,
) -> ShardPlan:
    """Plan how a source becomes the shards of a dataset, and write the plan into the target.

    The plan fixes the parts of the source that each shard is made of, the numbers of the classes and the order of the
    samples. Tar files, several Parquet files, and the files of a Hugging Face dataset in an object store are parts as
    they are; with ``shuffle`` these files are shuffled, and then the samples of each shard. All other sources are
    divided, and shuffled, by samples. A plan that is there already is used again, without a look at the source.

    Parameters
    ----------
    source : str or path
        As for `open_source`; also the URL of a file, or of a prefix that ends in "/". Names with braces are several
        files: ``"s3://bucket/train-{000..146}.tar"``.
    target : str or path
        The folder, or the prefix of an object store, for the shards.
    shards : int
        Their number. 1 to 4 GB each are easy to handle.
    settings : Settings, optional
        How samples are stored.
    kind : str, optional
        The kind of the source, as for `open_source`.
    on_error : {"raise", "skip"}
        Whether a sample that cannot be read or encoded raises an error or is left out.
    remote : RemoteOptions, optional
        How object stores are reached.
    **options
        As for `open_source`.

    Returns
    -------
    ShardPlan
        The plan.

    Raises
    ------
    OptionError
        If the target has the plan of another conversion, or the source has too few parts.
    StorageError
        If the source cannot be listed, or the target not be written.

    Examples
    --------
    >>> plan = plan_shards("train", "shards", 3)
    >>> len(plan), plan.missing()
    (3, [0, 1, 2])
    """
    settings = settings or Settings()
    check_on_error(on_error)
    if shards > MAX_FILES:
        raise OptionError(f"{shards} shards; a dataset has at most {MAX_FILES}. Make fewer, larger ones")
    folder = TargetFolder(os.fspath(target), remote)
    name = _absolute(os.fspath(source))
    given = {key: _plain(key, value) for key, value in options.items() if value is not None and value is not False}
    wanted = {"source": name, "options": given, "settings": settings, "on_error": on_error, "shards": shards}
    plan = _find_plan(folder, remote)
    if plan is None:
        layout, parts = divide(name, kind, given, settings, shards, remote)
        places: list[tuple[int, int, int]] = []
        folder.write(PARTS_NAME, _contents(parts, places))
        plan = ShardPlan(folder.name, layout, settings, on_error, tuple(places), remote)
        values = {
            "version": _VERSION,
            "source": asdict(layout),
            "settings": asdict(settings),
            "on_error": on_error,
            "shards": places,
        }
        folder.write(PLAN_NAME, json.dumps(values, indent=1).encode() + b"\n")
        return plan
    found = {
        "source": plan.layout.source,
        "options": dict(plan.layout.options),
        "settings": plan.settings,
        "on_error": plan.on_error,
        "shards": len(plan),
    }
    if kind is not None:
        wanted["kind"], found["kind"] = kind, plan.layout.kind
    for key, value in wanted.items():
        if found[key] != value:
            raise OptionError(
                f"{folder.place(PLAN_NAME)}: its {key} is {found[key]!r}, and not {value!r}. Choose an empty target, "
                "or the same source and settings, to make the shards that are missing"
            )
    return plan


def _contents(parts: Iterable[Part], places: list[tuple[int, int, int]]) -> Iterator[bytes]:
    """Give the content of `conversion.parts`, one part after the other, and list their places."""
    start = 0
    for part in parts:
        content = json.dumps(part).encode() + b"\n"
        places.append((start, len(content), zlib.crc32(content)))
        start += len(content)
        yield content


def _find_plan(folder: TargetFolder, remote: RemoteOptions | None) -> ShardPlan | None:
    """Read the plan of a target, None for a target without plan and shards."""
    with suppress(FileNotFoundError):
        return load_plan(folder.name, remote)
    made = sorted(name for name in folder.names() if name.endswith((".beton", ".empty")))
    if not made:
        return None
    try:
        return load_plan(folder.name, remote)  # another process may have written it in the meantime
    except FileNotFoundError:
        raise OptionError(
            f"{folder.place(made[0])}: the target has files of another conversion, without its {PLAN_NAME}. Choose an "
            "empty target"
        ) from None


def _absolute(source: str) -> str:
    if is_url(source) or source.startswith("torchvision:"):
        return source
    return os.path.abspath(source)  # noqa: PTH100  a text


def _plain(key: str, value: Any) -> Any:
    """Convert an option to a value that JSON can hold, with which any machine finds the same."""
    if isinstance(value, os.PathLike):
        return _absolute(os.fspath(value)) if key == "root" else os.fspath(value)
    return list(value) if isinstance(value, tuple) else value
