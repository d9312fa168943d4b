"""Sharded conversion: one shard at a time, on any machine, and all of them from here or on a cluster."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import shutil
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton.conversion.conversion import BadSource, NothingLeftError, convert
from gpubeton.conversion.parts import open_part
from gpubeton.conversion.shard_plan import choose_settings, read_part
from gpubeton.errors import GpubetonError, OptionError, StorageError, WriteError
from gpubeton.fields.registry import open_index
from gpubeton.files.byte_locks import lock_file
from gpubeton.files.local_file import temporary_folder
from gpubeton.format.file_notes import read_notes
from gpubeton.format.manifest import write_manifest
from gpubeton.machine import count_cores
from gpubeton.writing.resumable_file import remove_unfinished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpubeton.conversion.conversion import Progress
    from gpubeton.conversion.shard_plan import ShardPlan

RESULT_NAME = "converted.json"
_ATTEMPTS = 4
#: Shards that a process serves: what it does not free ends with it.
_SHARDS_PER_PROCESS = 16
#: Shards whose notes are read at once.
_READERS = 16


@dataclass(frozen=True)
class ShardedConversion:
    """The result of a conversion to shards.

    Made by `convert_shards` and `finish`.

    Attributes
    ----------
    target : str
        The folder, or the prefix of an object store.
    shards : int
        Files in it.
    samples : int
        Samples of all of them.
    bytes : int
        Size of all of them.
    class_names : tuple of str or None
        Names of the classes, whose position is the label.
    skipped : list of BadSource
        Samples that were left out.
    passed_over : dict of str to int
        How many files of the source are not images by their names, by their ending.
    changed : dict of str to int
        How many images have lost something, as in `Conversion`.
    unused : tuple of str
        Columns, or endings of files in tar files, that were not stored.
    has_labels : bool
        Whether samples have labels.
    value_bytes : int
        Bytes of their images and other values; 0 if they were made before this was counted.
    """

    target: str
    shards: int
    samples: int
    bytes: int
    class_names: tuple[str, ...] | None
    skipped: list[BadSource] = field(default_factory=list)
    passed_over: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    has_labels: bool = True
    value_bytes: int = 0


def convert_shard(
    plan: ShardPlan, number: int, scratch: str | os.PathLike[str] | None = None, *, num_workers: int = 1
) -> bool:
    """Make one shard, unless it is there, or another process makes it: then wait for that one.

    Any machine can do so, in any order. The shard is the same, byte for byte, and appears under its name when it is
    complete; shards that fail or are killed do not concern others. Only the shard's part of the source is read. For an
    object store the file is made in `scratch` and then uploaded.

    Parameters
    ----------
    plan : ShardPlan
        The plan.
    number : int
        The number of the shard, from 0 on.
    scratch : str or path, optional
        A folder on a disk of this machine for one shard, and for the part of the source that it is made of, if that is
        in an object store. By default the system's folder for temporary files.
    num_workers : int
        Number of processes; less than 1 means one for each core. With more than one, a script needs
        ``if __name__ == "__main__"``.

    Returns
    -------
    bool
        Whether it was made by this call.

    Raises
    ------
    WriteError
        If it cannot be made. The message names the shard, the file and the sample.

    Examples
    --------
    >>> from gpubeton.conversion import plan_shards
    >>> plan = plan_shards("train", "shards", 3)
    >>> convert_shard(plan, 1), convert_shard(plan, 1)
    (True, False)
    """
    if not 0 <= number < len(plan):
        raise OptionError(f"shard {number} of {plan.target}: expected 0 to {len(plan) - 1}")
    folder, name = plan.folder, plan.names[number]
    try:
        if _is_made(plan, number):
            return False
        with _work_folder(plan, number, scratch) as work:
            while not _is_made(plan, number):
                try:
                    return _make(plan, number, work, num_workers)
                except StorageError as error:  # noqa: PERF203
                    if error.errno != errno.EWOULDBLOCK:  # another machine makes it: it may be killed
                        raise
    except (GpubetonError, OSError) as error:
        raise WriteError(f"shard {number} of {len(plan)}, {folder.place(name)}: {error}") from error
    return False


def _is_made(plan: ShardPlan, number: int) -> bool:
    folder = plan.folder
    return folder.holds(plan.names[number]) or (plan.on_error == "skip" and folder.holds(plan.empty_names[number]))


def _make(plan: ShardPlan, number: int, work: Path, num_workers: int) -> bool:
    """Make a shard, or a list of its bad samples if there are no others."""
    folder, name = plan.folder, plan.names[number]
    if folder.holds(RESULT_NAME):
        folder.write(RESULT_NAME, b"null\n")  # it does not describe the new shard, until `finish`
    part = read_part(plan, number)
    source = open_part(plan.layout, part, work, plan.remote)
    path = (folder.path or work) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        convert(
            source,
            path,
            choose_settings(plan, number, part),
            on_error=plan.on_error,
            num_workers=num_workers,
            overwrite=True,  # another machine may have made it meanwhile: its file is the same
            start_method="forkserver",  # this process may have used an object store, or be Ray's
        )
    except NothingLeftError as error:
        folder.write(plan.empty_names[number], json.dumps([asdict(bad) for bad in error.skipped]).encode() + b"\n")
        remove_unfinished(path)
        return True
    if folder.path is None:
        folder.upload(name, path)  # another worker may have been faster: its file is the same
    return True


def convert_shards(
    plan: ShardPlan,
    scratch: str | os.PathLike[str] | None = None,
    *,
    on: str = "here",
    num_workers: int = -1,
    on_progress: Progress | None = None,
) -> ShardedConversion:
    """Make all shards that are missing, here or on a Ray cluster, and finish the dataset.

    Parameters
    ----------
    plan : ShardPlan
        The plan.
    scratch : str or path, optional
        As for `convert_shard`; there is a shard of each process at a time.
    on : {"here", "ray"}
        Where: in processes of this machine, or as tasks of the Ray cluster that ``ray.init()`` finds; needs
        ``gpubeton[ray]`` there.
    num_workers : int
        Processes of this machine, less than 1 means one for each core; as for `convert_shard`. On Ray, the cores of a
        task, by default one.
    on_progress : callable, optional
        Called with the number of finished shards and of all shards.

    Returns
    -------
    ShardedConversion
        The result.

    Raises
    ------
    WriteError
        If a shard cannot be made. Others are kept: the same call makes those that are missing.

    Examples
    --------
    >>> from gpubeton.conversion import plan_shards
    >>> done = convert_shards(plan_shards("train", "shards", 3), num_workers=1)
    >>> done.shards, done.samples, done.class_names
    (3, 300, ('class_0', 'class_1', 'class_2'))
    """
    if on not in ("here", "ray"):
        raise OptionError(f"on is {on!r}, expected 'here' or 'ray'")
    on_progress = on_progress or (lambda *_: None)
    missing = plan.missing()
    on_progress(len(plan) - len(missing), len(plan))
    finished = None if missing else read_result(plan)
    if finished is not None:
        return finished
    call = partial(convert_shard, plan, scratch=scratch)
    if on == "ray" and missing:
        try:
            from gpubeton.integrations.ray import run_tasks
        except ModuleNotFoundError as error:
            raise OptionError(str(error)) from error

        done: Iterator[object] = run_tasks(
            partial(call, num_workers=max(1, num_workers)), missing, num_cpus=max(1, num_workers)
        )
    else:
        done = _run_here(call, missing, num_workers if num_workers >= 1 else count_cores())
    for count, _ in enumerate(done, 1):
        on_progress(len(plan) - len(missing) + count, len(plan))
    return finish(plan)


def finish(plan: ShardPlan) -> ShardedConversion:
    """Check all shards, and write two files beside them.

    ``index.json`` lets loaders open the whole folder at once, and ``converted.json`` lists samples that were left out.

    Parameters
    ----------
    plan : ShardPlan
        The plan.

    Returns
    -------
    ShardedConversion
        The result.

    Raises
    ------
    WriteError
        If shards are missing.

    Examples
    --------
    >>> from gpubeton.conversion import plan_shards
    >>> finish(plan_shards("train", "shards", 3))                                                # doctest: +SKIP
    ShardedConversion(target='/data/shards', shards=3, samples=300, ...)
    """
    missing = plan.missing()
    if missing:
        some = ", ".join(map(str, missing[:10])) + ", ..." * (len(missing) > 10)
        raise WriteError(
            f"{plan.target}: {len(missing)} of {len(plan)} shards are missing: {some}. Convert again: only these are "
            "made"
        )
    folder = plan.folder
    found = folder.names()
    names = [name for name in plan.names if name in found]
    if not names:
        raise WriteError(
            f"{plan.target}: all samples of the source were left out; {plan.empty_names[0]} lists the first"
        )
    index, _ = open_index([folder.place(name) for name in names], remote=plan.remote)
    write_manifest(folder.name, index, plan.remote)
    with ThreadPoolExecutor(_READERS) as threads:
        notes = dict(
            zip(names, threads.map(lambda file: read_notes(file.path, file.identity), index.files), strict=True)
        )
    skipped: list[Any] = []
    changed: Counter[str] = Counter()
    for name, empty in zip(plan.names, plan.empty_names, strict=True):
        own = notes.get(name)
        if name not in found:
            skipped += json.loads(folder.read(empty))
        elif own is not None:
            skipped += own.content.get("skipped", ())
            changed.update(own.content.get("changed", {}))
    done = ShardedConversion(
        plan.target,
        len(names),
        index.num_samples,
        index.file_size,
        plan.layout.class_names,
        [BadSource(**bad) for bad in skipped],
        dict(plan.layout.passed_over),
        dict(sorted(changed.items())),
        plan.layout.unused,
        bool(plan.layout.fields),
        sum(int(index.regions(name).size.sum()) for name in index.names if index.has_regions(name)),
    )
    values = asdict(done)
    del values["target"]  # the folder may be renamed
    folder.write(RESULT_NAME, json.dumps(values, indent=1).encode() + b"\n")
    return done


def read_result(plan: ShardPlan) -> ShardedConversion | None:
    """Read what `finish` has written, None if there is nothing, or shards were made since."""
    try:
        values = json.loads(plan.folder.read(RESULT_NAME))
    except FileNotFoundError:
        return None
    if values is None:
        return None
    skipped = [BadSource(**each) for each in values["skipped"]]
    return ShardedConversion(
        **{
            **values,
            "target": plan.target,
            "skipped": skipped,
            "class_names": plan.layout.class_names,
            "unused": plan.layout.unused,
        }
    )


def _run_here(call: Callable[..., bool], numbers: Sequence[int], num_workers: int) -> Iterator[object]:
    """Call a function for each number, in processes of this machine."""
    at_once = min(num_workers, len(numbers))
    call = partial(call, num_workers=num_workers // max(1, at_once))
    if at_once <= 1:
        yield from map(call, numbers)
        return
    temporary_folder()  # the server of processes has its socket there
    # Where each process starts from: otherwise all of them import everything.
    multiprocessing.get_context("forkserver").set_forkserver_preload(["__main__", __name__])
    idle: list[tuple[ProcessPoolExecutor, int]] = []
    try:
        with ThreadPoolExecutor(at_once) as threads:
            try:
                for future in as_completed([threads.submit(_run_alone, call, number, idle) for number in numbers]):
                    yield future.result()
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)  # those that have begun go on
                raise
    finally:
        for process, _ in idle:
            process.shutdown()


def _set_environment(values: dict[str, str]) -> None:
    os.environ.update(values)


def _start_process() -> ProcessPoolExecutor:
    """Start a process that has the environment of this one."""
    # A fork of this process, which has threads and may have used an object store, is no good; and the server that is
    # forked may be older than this process's credentials.
    context = multiprocessing.get_context("forkserver")
    try:
        return ProcessPoolExecutor(1, context, _set_environment, (dict(os.environ),))
    except OSError as error:
        raise StorageError(
            error.errno,
            f"/dev/shm: Python's processes need locks there, and they cannot be made: {error.strerror}. In a "
            "container, mount a tmpfs at /dev/shm, or use one process: --workers 1.",
        ) from error


def _run_alone(call: Callable[[int], bool], number: int, idle: list[tuple[ProcessPoolExecutor, int]]) -> bool:
    """Call a function in one of the idle processes, each with its number of shards; again if that one is killed."""
    # Executors of one process each: if one is killed, the shards of the others go on.
    last: BrokenProcessPool | None = None
    for _ in range(_ATTEMPTS):
        process, shards = idle.pop() if idle else (_start_process(), 0)
        try:
            return process.submit(call, number).result()
        except BrokenProcessPool as error:
            last, shards = error, _SHARDS_PER_PROCESS
        finally:
            if shards + 1 < _SHARDS_PER_PROCESS:
                idle.append((process, shards + 1))
            else:
                process.shutdown()
    raise WriteError(
        f"shard {number}: its process was killed or could not start {_ATTEMPTS} times. Was memory short? Use fewer "
        'processes. Does the script begin its work below `if __name__ == "__main__":`? An error in the process is above'
    ) from last


def _open_locked(folder: Path) -> int:
    """Make a folder and lock it, when no other process of this machine has it."""
    while True:
        try:
            with suppress(FileExistsError):  # whatever it is; `exist_ok` would look again, when it may be gone
                folder.mkdir(mode=0o700, parents=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # the process before has just removed it
            continue
        try:
            if os.fstat(descriptor).st_uid != os.getuid():
                raise StorageError(f"{folder}: the folder belongs to another user. Choose another scratch folder")
            try:
                lock_file(descriptor, waits=True)
            except OSError as error:
                raise StorageError(
                    error.errno, f"{folder}: it cannot be locked: {error}. Choose a scratch folder on a local disk"
                ) from error
            with suppress(FileNotFoundError):  # the process before may have removed it
                if os.path.samestat(os.fstat(descriptor), folder.stat()):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def _work_folder(plan: ShardPlan, number: int, scratch: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Give a folder for one shard that stays if the block fails, so that the next attempt continues."""
    if not hasattr(os, "getuid"):
        raise StorageError(errno.ENOSYS, "shards cannot be written on Windows: write one file, or use WSL")
    digest = hashlib.sha256(f"{plan.target} {plan.places}".encode()).hexdigest()[:16]
    folder = Path(temporary_folder() if scratch is None else scratch) / f"gpubeton-{os.getuid()}-{digest}-{number}"
    descriptor = _open_locked(folder)
    try:
        yield folder
        shutil.rmtree(folder)
    finally:
        with suppress(OSError):
            folder.rmdir()  # if it is empty
        os.close(descriptor)
