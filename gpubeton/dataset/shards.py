"""Shards: the files of a dataset, each made of a part of the source, by any process of any machine."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
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
from gpubeton._writing import TargetFolder, check_on_error
from gpubeton.dataset.conversion import SkippedSample, convert
from gpubeton.dataset.file_settings import Settings
from gpubeton.dataset.indexing import write_manifest
from gpubeton.dataset.source_parts import SourcePart, split_parts
from gpubeton.errors import GpubetonError, NoSamplesError, OptionError, StorageError, WorkerDiedError, WriteError
from gpubeton.format.data_files import MAX_FILES
from gpubeton.format.dataset import open_dataset
from gpubeton.format.file_notes import notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpubeton._bytes import Progress, RemoteOptions

_T = TypeVar("_T")

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
    # Twice as many tasks at a time as the cluster has room for. A task whose process was killed is started again; an
    # error in one ends all.
    try:
        import ray
    except ModuleNotFoundError as error:
        raise OptionError(f"{error}. Install it: {install('ray')}") from error

    def run(argument: Any) -> _T:  # Ray takes functions only, no partial
        return call(argument)

    def next_result() -> Any:
        finished = ray.wait(running)[0][0]
        running.remove(finished)
        try:
            return ray.get(finished)
        except ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, GpubetonError) else error) from None
        except ray.exceptions.RayError as error:
            raise WorkerDiedError(
                f"a task of Ray ended {1 + _RETRIES} times without a result: {error}", None
            ) from error

    remote_run: Any = ray.remote(num_cpus=num_cpus, max_retries=_RETRIES)(run)
    resources: Any = ray.cluster_resources  # it has no types
    running: list[Any] = []
    try:
        for argument in arguments:
            running.append(remote_run.remote(argument))
            while len(running) >= 2 * max(1, int(resources().get("CPU", 1)) // num_cpus):
                yield next_result()
        while running:
            yield next_result()
    finally:
        for task in running:
            ray.cancel(task)


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
