"""Shards: the files of a dataset, each made of a part of the source, by any process of any machine.

A part is whole files of the source, or some of its images or rows.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import multiprocessing
import os
import re
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from gpubeton._bytes import open_bytes, temporary_folder
from gpubeton._machine import install, worker_count
from gpubeton._sources import LABEL, FileSource, LabelledSource, Source, find_files, open_source, recognise
from gpubeton._writing import TargetFolder, check_on_error
from gpubeton.dataset.conversion import SkippedSample, convert
from gpubeton.dataset.file_settings import Settings, choose_samples
from gpubeton.dataset.indexing import write_manifest
from gpubeton.errors import GpubetonError, NoSamplesError, OptionError, StorageError, WorkerDiedError, WriteError
from gpubeton.format.data_files import MAX_FILES
from gpubeton.format.dataset import expand_braces, open_dataset
from gpubeton.format.file_notes import notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpubeton._bytes import Progress, RemoteOptions

_T = TypeVar("_T")

_SPLITS = re.compile(r"(?:^|[/_.-])(train|validation|valid|val|dev|test)(?=[/_.-])", re.IGNORECASE)

#: How often a task of Ray is started again whose process was killed, or whose machine was lost.
_RETRIES = 3
#: Shards whose notes are read at once.
_READERS = 16
# The path of a socket has 107 bytes at most; Python adds "/pymp-12345678/listener-12345678".
_LONGEST_TEMPORARY_FOLDER = 107 - 32


@dataclass(frozen=True)
class ShardedConversion:
    """The result of a conversion to shards. Made by `convert_shards`."""

    target: str  #: the folder, or the prefix of an object store
    shards: int  #: files in it
    samples: int  #: samples of all of them
    bytes: int  #: size of all of them
    class_names: tuple[str, ...] | None  #: this and the next ones as in `Conversion`
    skipped: list[SkippedSample]
    passed_over: dict[str, int]
    changed: dict[str, int]
    unused: tuple[str, ...]
    has_labels: bool
    value_bytes: int  #: bytes of their images and other values


def convert_shards(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    shards: int,
    settings: Settings | None = None,
    *,
    share: tuple[int, int] = (0, 1),
    kind: str | None = None,
    on_error: str = "raise",
    on: str = "here",
    num_workers: int = -1,
    remote: RemoteOptions | None = None,
    on_progress: Progress | None = None,
    **options: Any,
) -> ShardedConversion | None:
    """Make the files of a dataset, or a share of them, unless they are there.

    The same source and arguments give the same files, byte for byte, on any machine and in any order. The call that
    completes the dataset checks all files, and writes their common index, ``index.json``. Tar files and several Parquet
    files are parts of the source as they are; with ``shuffle`` these are shuffled, and then the samples of each shard.
    All other sources are split, and shuffled, by samples.

    Parameters
    ----------
    source : str or path
        As for `open_source`; also a folder of Parquet files, or a name with braces for several.
    target : str or path
        The folder, or the prefix of an object store, for the shards. Shards that are uploaded are made in the folder
        for temporary files, which the environment variable TMPDIR names.
    shards : int
        Their number. 1 to 4 GB each are easy to handle.
    settings
        As for `convert`.
    share : tuple of int
        N and M: make only every M-th shard from the N-th on, counted from 0.
    kind : str, optional
        The kind of the source, as for `open_source`.
    on_error
        As for `convert`.
    on : {"here", "ray"}
        Where: in processes of this machine, or as tasks of the Ray cluster that ``ray.init()`` finds; needs
        ``gpubeton[ray]`` there.
    num_workers : int
        Processes of this machine, less than 1 means one for each core. On Ray, the cores of a task, by default one.
        With more than one, a script needs ``if __name__ == "__main__"``.
    remote : RemoteOptions, optional
        How an object store is reached.
    on_progress : callable, optional
        Called with the number of shards of the share that are there, and of all of it.
    **options
        As for `open_source`.

    Returns
    -------
    ShardedConversion or None
        The result; None if other shards are missing.

    Raises
    ------
    OptionError
        If the source has too few parts, or the target has files of another conversion.
    WriteError
        If a shard cannot be made. Others are kept: the same call makes those that are missing.

    Examples
    --------
    >>> convert_shards("train", "shards", 3, share=(1, 3), num_workers=1)
    >>> done = convert_shards("train", "shards", 3, num_workers=1)
    >>> done.shards, done.samples, done.class_names
    (3, 300, ('class_0', 'class_1', 'class_2'))
    """
    every = split_source(source, target, shards, settings or Settings(), kind, on_error, remote, options)
    make_shards(every, share, on, num_workers, on_progress or (lambda *_: None))
    return None if find_missing(every) else finish(every)


@dataclass(frozen=True)
class SourcePart:
    """What a shard is made of, without the other parts: small enough to be sent to a task."""

    kind: str
    options: Mapping[str, Any]  # of `open_source`
    fields: Mapping[str, str]  # this and the next ones are of the whole source
    class_names: tuple[str, ...] | None
    unused: tuple[str, ...]
    passed_over: Mapping[str, int]
    labels_are_names: bool | None
    files: tuple[str, ...] = ()  # that are opened
    rows: tuple[int, ...] | None = None  # of the only file; None: all of all files
    root: str = ""
    images: tuple[str, ...] = ()  # paths from the root on, in place of files
    labels: tuple[Any, ...] = ()  # of the images

    def open(self) -> Source:
        """Open the part."""
        remote = self.options.get("remote")
        source: Source = FileSource(self.root, self.images, self.labels, remote) if self.images else JoinedFiles(self)
        source.kind, source.fields, source.class_names = self.kind, self.fields, self.class_names
        return source


@dataclass(frozen=True)
class Shard:
    """A file of the dataset, with its part of the source."""

    number: int
    count: int  # of the dataset
    folder: TargetFolder
    settings: Settings
    on_error: str
    part: SourcePart

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.number:05}.beton"

    @property
    def mark(self) -> dict[str, Any]:
        """What the notes of the file hold of its part, so that a file of another conversion is noticed."""
        text = repr((self.part, self.settings, self.on_error)).encode("utf-8", "surrogateescape")
        return {"number": self.number, "count": self.count, "part": hashlib.sha256(text).hexdigest()[:32]}

    def read_notes(self) -> dict[str, Any]:
        """Read the notes of the file; `OptionError` if it is of another conversion."""
        place = self.folder.address(self.name)
        with open_bytes(place, remote=self.folder.remote) as file:
            notes = notes_of(file)
        if notes is None or notes.content.get("shard") != self.mark:
            raise OptionError(
                f"{place}: a file of another conversion: its source, settings or number of shards were others. Choose "
                "an empty target, or delete the file"
            )
        return dict(notes.content)


def split_source(
    source: str | os.PathLike[str], target: str | os.PathLike[str], count: int, settings: Settings, kind: str | None,
    on_error: str, remote: RemoteOptions | None, options: Mapping[str, Any],
) -> list[Shard]:  # fmt: skip
    """Split a source into the shards of a dataset."""
    check_on_error(on_error)
    if count > MAX_FILES:
        raise OptionError(f"{count} shards; a dataset has at most {MAX_FILES}. Make fewer, larger ones")
    name = os.fspath(source)
    if "://" not in name and not name.startswith("torchvision:"):
        name = os.path.abspath(name)  # noqa: PTH100  a text
    options = {key: value for key, value in options.items() if value is not None and value is not False}
    if "://" in name and remote is not None:
        options["remote"] = remote
    if "root" in options and "://" not in os.fspath(options["root"]):
        options["root"] = os.path.abspath(options["root"])  # noqa: PTH100
    parts = split_parts(name, kind, options, settings, count)
    folder = TargetFolder(os.fspath(target), remote)
    # Images and rows are shuffled and limited already.
    is_shuffled = settings.shuffle and bool(parts[0].files) and parts[0].rows is None
    settings_of = [replace(settings, shuffle=is_shuffled, limit=None, seed=settings.seed + n) for n in range(count)]
    return [Shard(number, count, folder, settings_of[number], on_error, part) for number, part in enumerate(parts)]


def find_missing(shards: Sequence[Shard]) -> list[int]:
    """Find the shards that are not there yet, by one listing; `OptionError` if there are other ``.beton`` files."""
    folder = shards[0].folder
    names = {name for name in folder.names() if name.endswith(".beton")}
    others = sorted(names.difference(shard.name for shard in shards))
    if others:
        raise OptionError(f"{folder.address(others[0])}: a file of another conversion. Choose an empty target")
    return [shard.number for shard in shards if shard.name not in names]


def make_shards(
    shards: Sequence[Shard], share: tuple[int, int], on: str, num_workers: int, on_progress: Progress
) -> list[int]:
    """Make every M-th shard from the N-th on, and check those that are there; return the numbers of those made."""
    if on not in ("here", "ray"):
        raise OptionError(f"on is {on!r}, expected 'here' or 'ray'")
    start, step = share
    if not 0 <= start < step:
        raise OptionError(f"share is {share}; expected N and M, with N from 0 to M - 1")
    absent = set(find_missing(shards))
    shards = shards[start::step]
    missing = [shard for shard in shards if shard.number in absent]
    present = [shard for shard in shards if shard.number not in absent]
    _read_notes(present)
    on_progress(len(present), len(shards))
    if on == "ray" and missing:
        cores = max(1, num_workers)
        done: Iterator[object] = run_tasks(partial(_make, cores), missing, num_cpus=cores)
    else:
        done = _run_here(_make, missing, worker_count(num_workers))
    for count, _ in enumerate(done, len(present) + 1):
        on_progress(count, len(shards))
    return [shard.number for shard in missing]


def _make(num_workers: int, shard: Shard) -> None:
    """Make a shard, unless it is there, or another process of this machine makes it: then wait for that one."""
    folder = shard.folder
    try:
        if os.name == "nt":
            raise StorageError(errno.ENOSYS, "shards cannot be written on Windows: write one file, or use WSL")
        while not folder.holds(shard.name):
            source = shard.part.open()
            source.notes = {"shard": shard.mark}
            with TemporaryDirectory(prefix="gpubeton-", dir=temporary_folder()) as work:
                path = (folder.path or Path(work)) / shard.name
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    # Not by a fork: this process may have used an object store, or be Ray's.
                    convert(
                        source, path, shard.settings, on_error=shard.on_error, num_workers=num_workers,
                        start_method="forkserver",
                    )  # fmt: skip
                except (OptionError, StorageError) as error:
                    # Another process writes it, or has completed it since.
                    if not path.exists() and getattr(error, "errno", None) != errno.EWOULDBLOCK:
                        raise
                if folder.path is None:
                    folder.upload(shard.name, path)  # another machine may have been faster: its file is the same
    except (GpubetonError, OSError) as error:
        hint = ". Make fewer shards, or mend it" if isinstance(error, NoSamplesError) else ""
        place = folder.address(shard.name)
        raise WriteError(f"shard {shard.number} of {shard.count}, {place}: {error}{hint}") from error


def _read_notes(shards: Sequence[Shard]) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(_READERS) as threads:
        return list(threads.map(Shard.read_notes, shards))


def finish(shards: Sequence[Shard]) -> ShardedConversion:
    """Check all shards, and write their index."""
    folder, part, notes = shards[0].folder, shards[0].part, _read_notes(shards)
    index = open_dataset([folder.address(shard.name) for shard in shards], remote=folder.remote)
    write_manifest(folder.name, index, folder.remote)
    changed = sum((Counter(content.get("changed", {})) for content in notes), Counter[str]())
    skipped = [SkippedSample(**bad) for content in notes for bad in content["skipped"]]
    value_bytes = sum(int(index.regions(name).size.sum()) for name in index.names if index.has_regions(name))
    return ShardedConversion(
        folder.name, len(shards), index.num_samples, index.file_size, part.class_names, skipped, dict(part.passed_over),
        dict(sorted(changed.items())), part.unused, bool(part.fields), value_bytes,
    )  # fmt: skip


def run_tasks(call: Callable[[Any], _T], arguments: Iterable[Any], *, num_cpus: int = 1) -> Iterator[_T]:
    """Call a function that can be pickled for each argument, in tasks of the Ray cluster that ``ray.init()`` finds."""
    # A task whose process was killed is started again; an error in one ends all.
    try:
        import ray
    except ModuleNotFoundError as error:
        raise OptionError(f"{error}. Install it: {install('ray')}") from error

    def run(argument: Any) -> _T:  # Ray takes functions only, no partial
        return call(argument)

    task: Any = ray.remote(num_cpus=num_cpus, max_retries=_RETRIES)(run)
    running = [task.remote(argument) for argument in arguments]
    try:
        while running:
            (finished, *_), running = ray.wait(running)
            yield ray.get(finished)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, GpubetonError) else error) from None
    except ray.exceptions.RayError as error:
        raise WorkerDiedError(f"a task of Ray ended {1 + _RETRIES} times without a result: {error}", None) from error
    finally:
        for unfinished in running:
            ray.cancel(unfinished)


def _run_here(make: Callable[[int, Shard], object], shards: Sequence[Shard], num_workers: int) -> Iterator[object]:
    """Make shards in processes of this machine."""
    at_once = min(num_workers, len(shards))
    make_shard = partial(make, num_workers // max(1, at_once))
    if at_once <= 1:
        yield from map(make_shard, shards)
        return
    folder = temporary_folder()
    if len(os.fsencode(folder)) > _LONGEST_TEMPORARY_FOLDER:
        raise StorageError(
            errno.ENAMETOOLONG,
            f"{folder}: Python's processes need a socket in the folder for temporary files, and its path may have "
            f"{_LONGEST_TEMPORARY_FOLDER} bytes at most. Set TMPDIR to a shorter one, or use one process: --workers 1",
        )
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__])  # otherwise each process imports everything
    try:
        # The server may be older than this process's credentials.
        pool = ProcessPoolExecutor(at_once, context, _set_environment, (dict(os.environ),))
    except OSError as error:
        raise StorageError(
            error.errno,
            f"/dev/shm: Python's processes need locks there, and they cannot be made: {error.strerror}. In a "
            "container, mount a tmpfs at /dev/shm, or use one process: --workers 1.",
        ) from error
    with pool:
        try:
            for future in as_completed([pool.submit(make_shard, shard) for shard in shards]):
                yield future.result()
        except BrokenProcessPool as error:
            raise WriteError(
                "a process was killed or could not start. Finished shards are kept: start again. Was memory short? Use "
                'fewer processes. Does the script begin its work below `if __name__ == "__main__":`? An error in the '
                "process is above"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # those that have begun go on
            raise


def _set_environment(values: dict[str, str]) -> None:
    os.environ.update(values)


# --- the parts of a source


def split_parts(
    source: str, kind: str | None, options: Mapping[str, Any], settings: Settings, count: int
) -> list[SourcePart]:
    """Split a source into parts of equal size: of whole files if it has several, otherwise of images or rows."""
    kind = kind or _recognise(source, options.get("remote"))
    files = _list_files(source, kind, options.get("remote"))
    is_whole = len(files) > 1 or kind == "webdataset"
    opened = _open_first(files, kind, options, is_whole=is_whole)
    loose, labels = opened.loose_files, opened.columns.get(LABEL, ())
    if is_whole and loose is not None:
        raise OptionError(f"{source}: {len(files)} tables of paths; expected one, or tables that hold the images")
    if is_whole and settings.limit is not None:
        raise OptionError(f"{source}: limit is {settings.limit}, but shards of it are made of whole files")
    passed_over = {} if is_whole else dict(opened.passed_over)  # otherwise those of the first file
    part = SourcePart(
        kind, options, dict(opened.fields), opened.class_names, tuple(opened.unused), passed_over,
        opened.labels_are_names,
    )  # fmt: skip
    chosen = choose_samples(len(files) if is_whole else len(opened), settings).tolist()
    if not 1 <= count <= len(chosen):
        unit = "files" if is_whole else "samples"
        raise OptionError(f"{source}: {count} shards of {len(chosen)} {unit}; expected 1 to {len(chosen)} shards")
    bounds = [number * len(chosen) // count for number in range(count + 1)]
    shares = [tuple(chosen[start:stop]) for start, stop in itertools.pairwise(bounds)]
    if is_whole:
        return [replace(part, files=tuple(files[number] for number in share)) for share in shares]
    if loose is None:
        return [replace(part, files=(source,), rows=share) for share in shares]
    root, images = loose
    return [
        replace(
            part, root=root, images=tuple(images[row] for row in share),
            labels=tuple(labels[row] for row in share if labels),
        )
        for share in shares
    ]  # fmt: skip


def _open_first(files: list[str], kind: str, options: Mapping[str, Any], *, is_whole: bool) -> LabelledSource:
    """Open the first file, which shows the fields and the classes; all tar files if these name the classes."""
    opened = open_source(files[0], kind, **options)
    if not is_whole or opened.class_names is None or "class_names" in options:
        return opened
    if kind != "webdataset":
        raise OptionError(
            f"{files[0]}: its labels are names of classes, and each of the {len(files)} files may have others. "
            "Give the names of all: --classes FILE"
        )
    return open_source(files, kind, **options)


def _recognise(source: str, remote: RemoteOptions | None) -> str:
    kind = recognise(source, remote)
    is_here = kind == "folder" and "://" not in source
    return "table" if is_here and _tables(source) and not any(map(os.DirEntry.is_dir, os.scandir(source))) else kind


def _tables(folder: str) -> list[str]:
    return sorted(entry.path for entry in os.scandir(folder) if entry.name.lower().endswith(".parquet"))


def _list_files(source: str, kind: str, remote: RemoteOptions | None) -> list[str]:
    """List the files that a source consists of; itself if it is not divided by files."""
    if kind == "webdataset":
        return find_files(source, ".tar", remote)
    if kind != "table":
        return [source]
    is_folder = Path(source).is_dir()
    files = _tables(source) if is_folder else expand_braces(source)
    splits = {match.lower() for name in files for match in _SPLITS.findall(name.removeprefix(source))}
    if is_folder and len(splits) > 1:
        raise OptionError(
            f"{source}: files of several splits by their names: {', '.join(sorted(splits))}. Choose one, such as "
            f"{Path(files[0]).name!r}, with braces for several files: 'train-{{00000..00013}}.parquet'"
        )
    return files or [source]


class JoinedFiles(Source):
    """Whole files, or rows of one."""

    def __init__(self, part: SourcePart) -> None:
        rows = part.rows
        options = dict(part.options)
        if part.class_names is not None and part.kind != "zip":
            options["class_names"] = part.class_names
        if rows is not None and part.files[0].lower().endswith(".parquet"):
            options["rows"], rows = rows, None  # the others are not read
        sources = [_open(part, name, options) for name in part.files]
        self._samples = [(source, row) for source in sources for row in rows or range(len(source))]

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        source, row = self._samples[index]
        return source[row][: 1 + len(self.fields)]

    def name(self, index: int) -> str:
        source, row = self._samples[index]
        return source.name(row)

    def identity(self, index: int) -> str:
        source, row = self._samples[index]
        return f"{source.name(row)} {source.identity(row)}"  # files may have equal rows


def _open(part: SourcePart, name: str, options: Mapping[str, Any]) -> Source:
    """Open one of the files of a part; OptionError if its labels are not those of the whole source."""
    opened = open_source(name, part.kind, **options)
    label, expected = opened.fields.get(LABEL), part.fields.get(LABEL)
    is_alike = label == expected or (label, expected) == ("int", "float")
    are_same = opened.labels_are_names == part.labels_are_names and opened.class_names == part.class_names
    if part.fields and not (is_alike and are_same):
        kinds = {None: "missing", "int": "whole numbers or names of classes", "float": "numbers"}
        raise OptionError(
            f"{name}: its labels are {kinds[label]}, its classes {opened.class_names}; expected {kinds[expected]}, "
            f"{part.class_names}, as in the first file. Make them alike, choose the column or the ending (--label), or "
            "give the names of all classes (--classes FILE)"
        )
    return opened
