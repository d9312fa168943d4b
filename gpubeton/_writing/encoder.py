"""Encode the samples of a task as a chunk, and write it when its place is known; in this process, or in several."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import traceback
import warnings
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton._bytes.local_file import open_descriptor
from gpubeton._sources.source import Source
from gpubeton._writing.chunks import ChunkPlace, RegionSizes, SkippedRow
from gpubeton._writing.file_builder import MovedRegions
from gpubeton._writing.targets import write_at
from gpubeton.errors import GpubetonError, OptionError, RegionTooLargeError, SampleError, WorkerDiedError, WriteError
from gpubeton.fields.registry import type_id_of
from gpubeton.format.layout import PAGE_SIZE_MAX, metadata_dtype

if TYPE_CHECKING:
    from collections.abc import MutableSequence
    from multiprocessing.process import BaseProcess

    from numpy.typing import NDArray
    from typing_extensions import Self

    from gpubeton.fields.base import Field

#: Samples of a chunk at most, so that two messages about chunks always fit in a pipe: the calling process never waits
#: for a writing process to read, while that one waits for it.
MAX_CHUNKSIZE = 256
#: First of the pointers that fields get before samples are placed: far from every offset in a file, and also small
#: enough for a signed column.
_FIRST_POINTER = 0x7BE7 << 48
#: Characters of the reason for leaving a sample out, which goes through a pipe.
_LONGEST_REASON = 1000
#: Chunks that a process may have in hand: one that it encodes and one that waits for its place.
_CHUNKS_AT_ONCE = 2
_SECONDS_BETWEEN_CHECKS = 1.0
#: Row of a process that encodes nothing at the moment.
_IDLE = -1
_BLOCKED = {signal.SIGINT, signal.SIGTERM}

Task = range
"""The rows of one chunk: from `start` up to `stop`, exclusive."""


class TaskQueue:
    """Sequences of tasks; one worker carries out all tasks of a sequence, in their order."""

    def __init__(self, sequences: Iterable[Iterable[Task]]) -> None:
        self._waiting = iter(sequences)
        self._sequences: dict[int, Iterator[Task]] = {}

    def take(self, worker: int) -> Task | None:
        """Take the next task of a worker: of its sequence, or the first one of the next; None if none is left."""
        while True:
            for task in self._sequences.get(worker, ()):
                return task
            sequence = next(self._waiting, None)
            if sequence is None:
                return None
            self._sequences[worker] = iter(sequence)


def split_rows(start: int, stop: int, chunksize: int) -> Iterator[Task]:
    """Split rows into tasks of at most `chunksize` rows, one after the other: a dataset may have millions."""
    return (Task(row, min(row + chunksize, stop)) for row in range(start, stop, chunksize))


@dataclass(frozen=True)
class Job:
    """Everything that encoders need to know of a file."""

    dataset: Any  # gives a sample for an index
    indices: Sequence[Any]  # the samples, in the order of the file's rows
    fields: Mapping[str, Field]
    page_size: int  # bytes
    metadata_offset: int  # first byte of the metadata
    file: str  # path of an existing file
    skip: bool = False  # leave out samples that cannot be read or encoded
    checksums: bool = False  # compute the checksum of each region
    list_changes: bool = False  # ask the dataset what its images have lost, by its method `take_changes`


def check_on_error(on_error: str) -> bool:
    """Whether bad samples are left out."""
    if on_error not in ("raise", "skip"):
        raise OptionError(f"on_error is {on_error!r}, expected 'raise' or 'skip'")
    return on_error == "skip"


Place = Callable[[int, RegionSizes], ChunkPlace]
"""Finds the place of a chunk; called with its first row, in the order of the rows."""


class Encoder:
    """Encodes chunks and keeps them until their place is known; a ``with`` block holds the file open."""

    def __init__(self, job: Job, on_sample: Callable[[int], None] | None = None) -> None:
        self._job = job
        self._fields = tuple(job.fields.values())
        self._row_size = metadata_dtype([field.metadata_type for field in self._fields]).itemsize
        self._on_sample = on_sample
        self._chunks: dict[int, _Chunk] = {}
        self._descriptor = open_descriptor(job.file, os.O_WRONLY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._descriptor)

    def count(self, shards: int) -> list[int]:
        """Count the samples of each shard of the dataset."""
        return [self._job.dataset.count(shard) for shard in range(shards)]

    def run(self, queue: TaskQueue, place: Place, on_written: Callable[[Task], object]) -> None:
        """Carry out all tasks in this process."""
        while (task := queue.take(0)) is not None:
            self.write(task, place(task.start, self.encode(task)))
            on_written(task)

    def encode(self, task: Task) -> RegionSizes:
        """Encode a chunk and keep it; return the sizes of its regions."""
        job = self._job
        chunk = self._chunks[task.start] = _encode_chunk(job, task, self._on_sample)
        if not job.list_changes:
            return chunk.regions
        rows = {job.indices[row]: row for row in task}
        return replace(
            chunk.regions, changes=job.dataset.take_changes(rows, {sample.row for sample in chunk.regions.skipped})
        )

    def write(self, task: Task, place: ChunkPlace) -> None:
        """Write an encoded chunk at its place and forget it."""
        chunk = self._chunks.pop(task.start)
        regions, final = chunk.regions, chunk.regions.pointers(place.offset)
        moved = MovedRegions(regions.counts, chunk.pointers, regions.sizes.astype(np.uint64), final)
        for number, field in enumerate(self._fields):
            moved.update_pointers(chunk.metadata[f"f{number}"], type_id_of(field))
        for offset, content in zip(final.tolist(), chunk.contents, strict=True):
            write_at(self._descriptor, offset, content.data, self._job.file)
        rows = self._job.metadata_offset + place.first_row * self._row_size
        write_at(self._descriptor, rows, chunk.metadata.tobytes(), self._job.file)


class _Chunk(NamedTuple):
    """Some encoded samples, whose place in the file is not known yet."""

    metadata: NDArray[np.void]  # (N,) rows with provisional pointers
    contents: list[NDArray[np.uint8]]  # of each region
    regions: RegionSizes
    pointers: NDArray[np.uint64]  # (R,) provisional pointer of each region


class _Allocator:
    """The `Malloc` that fields get: keeps the regions in memory."""

    def __init__(self) -> None:
        self.sample = 0  # row of the file that is encoded now
        self.contents: list[NDArray[np.uint8]] = []
        self.pointers: list[int] = []
        self._next = _FIRST_POINTER

    def __call__(self, size: int) -> tuple[int, NDArray[np.uint8]]:
        content = np.zeros(int(size), np.uint8)
        pointer = self._next
        self.contents.append(content)
        self.pointers.append(pointer)
        # One more than the size: the end of a region is not the start of the next.
        self._next += content.size + 1
        return pointer, content


def _encode_chunk(job: Job, task: Task, on_sample: Callable[[int], None] | None = None) -> _Chunk:
    """Take the samples of a task from the dataset and encode them; `on_sample` is called with the row of each."""
    # A sample that is larger than a page always raises an error, because another page size would hold it.
    dataset, fields, indices = job.dataset, job.fields, job.indices[task.start : task.stop]
    metadata = np.zeros(len(indices), metadata_dtype([field.metadata_type for field in fields.values()]))
    allocator = _Allocator()
    counts: list[int] = []
    skipped: list[SkippedRow] = []
    for number, index in enumerate(indices, task.start):
        allocator.sample = number
        if on_sample is not None:
            on_sample(number)
        place = f"sample {index} (row {number} of the file)"
        first, row = len(allocator.contents), len(counts)
        try:
            _encode(dataset, index, fields, metadata[row : row + 1], allocator, place)
        except SampleError as error:
            if not job.skip or type(error.__cause__) is WriteError:  # the dataset cannot go on after this sample
                file = file_of(dataset, index)
                if file is None or file in str(error):
                    raise
                raise type(error)(f"{file}: {error}", error.sample) from error
            skipped.append(SkippedRow(number, str(error)[:_LONGEST_REASON]))
            metadata[row] = np.zeros((), metadata.dtype)
            del allocator.contents[first:], allocator.pointers[first:]
            continue
        counts.append(len(allocator.contents) - first)
        check_size(sum(max(1, content.size) for content in allocator.contents[first:]), job.page_size, place, index)
    sizes = np.fromiter((content.size for content in allocator.contents), np.int64, len(allocator.contents))
    checksums = np.array([zlib.crc32(content.data) for content in allocator.contents if job.checksums], np.uint32)
    regions = RegionSizes(np.array(counts, np.int64), sizes, checksums if job.checksums else None, tuple(skipped))
    return _Chunk(metadata[: len(counts)], allocator.contents, regions, np.array(allocator.pointers, np.uint64))


def _encode(
    dataset: Any, index: Any, fields: Mapping[str, Field], row: NDArray[np.void], allocator: _Allocator, place: str
) -> None:
    with _naming(f"{place}: the dataset raised", index):
        sample = dataset[index]
    for column, (name, value) in enumerate(_values(sample, fields, place, index)):
        file = f", {value}" if isinstance(value, os.PathLike) else ""
        with _naming(f"{place}, field {name!r}{file}", index):
            fields[name].encode(row[f"f{column}"], value, allocator)


@contextmanager
def _naming(place: str, index: Any) -> Iterator[None]:
    """Name the sample in an exception."""
    try:
        yield
    except Exception as error:
        raise SampleError(f"{place}: {type(error).__name__}: {error}", index) from error


def _values(sample: Any, fields: Mapping[str, Field], place: str, index: Any) -> list[tuple[str, Any]]:
    """Pair the values of a sample with the names of the fields."""
    if isinstance(sample, Mapping):
        missing = [name for name in fields if name not in sample]
        if missing:
            raise SampleError(f"{place}: a mapping without {', '.join(map(repr, missing))}", index)
        return [(name, sample[name]) for name in fields]
    names = ", ".join(map(repr, fields))
    # FFCV ignores values beyond the fields, but reads an array or a string as if it were a tuple.
    if not isinstance(sample, tuple | list) and (not hasattr(sample, "__len__") or len(sample) != len(fields)):
        raise SampleError(
            f"{place}: a {type(sample).__name__}, expected a tuple of {len(fields)} values for {names}, or a mapping",
            index,
        )
    if len(sample) < len(fields):
        raise SampleError(
            f"{place}: {len(sample)} values for {len(fields)} fields; expected one each for {names}", index
        )
    return list(zip(fields, sample, strict=False))


def check_size(size: int, page_size: int, place: str, index: Any) -> None:
    """Refuse a sample that needs more bytes than a page has."""
    if size <= page_size:
        return
    needed = 1 << (size - 1).bit_length()
    advice = (
        f"Use page_size={needed}."
        if needed < PAGE_SIZE_MAX
        else f"No page can be as large as {PAGE_SIZE_MAX}: split the sample, or store it smaller."
    )
    raise RegionTooLargeError(f"{place}: {size} bytes, but a page has {page_size}. {advice}", index)


def file_of(dataset: Any, index: Any) -> str | None:
    """Find the file of a sample, for errors; None if the dataset does not list its files."""
    with suppress(IndexError, KeyError, TypeError, ValueError):  # an attribute may mean something else
        while hasattr(dataset, "dataset") and hasattr(dataset, "indices"):  # torch's Subset
            dataset, index = dataset.dataset, dataset.indices[index]
        if isinstance(dataset, Source):
            return dataset.name(index)
        for attribute in ("samples", "imgs", "files"):
            listed = getattr(dataset, attribute, None)
            if listed is None:
                continue
            entry = listed[index][0] if isinstance(listed[index], tuple | list) else listed[index]
            if isinstance(entry, str | os.PathLike) and os.path.isfile(entry):  # noqa: PTH113  a text
                return os.fspath(entry)
    return None


def without_place(reason: str) -> str:
    """Leave out the sample's number from a reason: its name is more useful."""
    return reason.partition("the file)")[2].lstrip(":, ") or reason


#: A message between the processes. Requests: "encode", task; "write", task, place; "count", shard. Answers: "encoded",
#: task, regions; "written", task; "counted", shard, count; and "failed", error, traceback, before the process ends.
_Message = tuple[Any, ...]


def default_start_method() -> str | None:
    """Return "fork" on Linux, None for Python's own choice elsewhere."""
    # As in FFCV and in torch's DataLoader on Linux: any dataset works (one in memory, one that holds a lambda or an
    # open file), it is not copied, and scripts need no `if __name__ == "__main__"`. The processes use neither threads
    # nor CUDA of the parent.
    return "fork" if sys.platform == "linux" else None


def open_encoders(job: Job, workers: int, start_method: str | None) -> Encoder | EncoderPool:
    """Open an encoder in this process, or several in processes."""
    return Encoder(job) if workers <= 1 else EncoderPool(job, workers, start_method)


class EncoderPool:
    """Several encoders, each in its own process; they end with the ``with`` block."""

    def __init__(self, job: Job, count: int, start_method: str | None, *, seconds_to_end: float = 5.0) -> None:
        # Any: the type of a context that was chosen by a variable has no Process.
        context: Any = multiprocessing.get_context(start_method)
        self._job = job
        self._seconds_to_end = seconds_to_end  # for a process that is asked to end; then it is killed
        self._current_rows: Any = context.RawArray("q", [_IDLE] * count)
        self._running: list[BaseProcess] = []
        pipes = [context.Pipe() for _ in range(count)]
        self._connections = [ours for ours, _ in pipes]
        try:
            for number, (_, theirs) in enumerate(pipes):
                is_forked = context.get_start_method() == "fork"
                inherited = [end for pipe in pipes for end in pipe if is_forked and end is not theirs]
                arguments = (job, number, theirs, inherited, self._current_rows, dict(os.environ))
                # Not daemons: a dataset may have processes itself.
                process = context.Process(target=work, args=arguments, name=f"beton-writer-{number}")
                _start(process, context.get_start_method())
                self._running.append(process)
        except BaseException:
            self._end()
            raise
        finally:
            for _, theirs in pipes:
                theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def count(self, shards: int) -> list[int]:
        """Count the samples of each shard of the dataset, several shards at once."""
        counts: dict[int, int] = {}
        waiting = iter(range(shards))
        for number, shard in zip(range(len(self._connections)), waiting, strict=False):
            self._send(number, ("count", shard))
        while len(counts) < shards:
            for number in self._ready():
                match self._receive(number):
                    case ("counted", shard, count):
                        counts[shard] = count
                following = next(waiting, None)
                if following is not None:
                    self._send(number, ("count", following))
        return [counts[shard] for shard in range(shards)]

    def run(self, queue: TaskQueue, place: Place, on_written: Callable[[Task], object]) -> None:
        """Carry out all tasks; `place` is called in the order in which tasks were handed out."""
        in_hand = [0] * len(self._connections)
        unplaced: deque[tuple[Task, int]] = deque()
        encoded: dict[Task, RegionSizes] = {}
        self._hand_out(queue, in_hand, unplaced)
        while any(in_hand):
            for number in self._ready():
                match self._receive(number):
                    case ("encoded", task, regions):
                        encoded[task] = regions
                    case ("written", task):
                        in_hand[number] -= 1
                        on_written(task)
            while unplaced and unplaced[0][0] in encoded:
                task, number = unplaced.popleft()
                self._send(number, ("write", task, place(task.start, encoded.pop(task))))
            self._hand_out(queue, in_hand, unplaced)

    def _end(self) -> None:
        """End all processes, even in the middle of a chunk."""
        for connection in self._connections:
            connection.close()
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.join(self._seconds_to_end)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        self._running.clear()

    def _hand_out(self, queue: TaskQueue, in_hand: list[int], unplaced: deque[tuple[Task, int]]) -> None:
        # In turns, so that the first chunks go to different processes.
        for level in range(_CHUNKS_AT_ONCE):
            for number, count in enumerate(in_hand):
                if count <= level and (task := queue.take(number)) is not None:
                    self._send(number, ("encode", task))
                    unplaced.append((task, number))
                    in_hand[number] += 1

    def _ready(self) -> list[int]:
        """Wait for processes that have sent a message or have died."""
        ready: list[Any] = []
        dead: list[int] = []
        while not ready and not dead:
            # Death shows at once by the end of the pipe, unless a process that the dataset started holds it open.
            ready = wait(self._connections, _SECONDS_BETWEEN_CHECKS)
            dead = [number for number, process in enumerate(self._running) if not process.is_alive()]
        return [number for number, pipe in enumerate(self._connections) if pipe in ready or number in dead]

    def _send(self, number: int, message: _Message) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connections[number].send(message)
            return
        # It has ended. If it had time to send the reason, that is still in the pipe, perhaps after other messages.
        while True:
            self._receive(number)

    def _receive(self, number: int) -> _Message:
        connection, process = self._connections[number], self._running[number]
        message: _Message | None = None
        with suppress(EOFError, ConnectionResetError):
            if process.is_alive() or connection.poll():
                message = connection.recv()
        if message is None:
            raise self._death_of(number)
        if message[0] == "failed":
            raise message[1] from _RemoteTraceback(f"\n{message[2]}")
        return message

    def _death_of(self, number: int) -> WorkerDiedError:
        process = self._running[number]
        process.join(self._seconds_to_end)
        code, row = process.exitcode, self._current_rows[number]
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        index = None if row == _IDLE else self._job.indices[row]
        where = "between two samples" if row == _IDLE else f"at sample {index} (row {row} of the file)"
        return WorkerDiedError(
            f"writing process {number} ended {where} without a message: {how}. SIGKILL usually means that memory ran "
            "out: use fewer processes or a smaller chunksize. Otherwise read this sample with num_workers=1.",
            index,
        )


class _RemoteTraceback(Exception):  # noqa: N818  (it is shown as the cause of an error, and is none itself)
    """Shows the traceback of another process, as the cause of the error that came from there."""


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block requests to end, also in a process forked now, until that one has removed the handlers of the program."""
    # In the first moments the inherited handlers could otherwise swallow SIGTERM, or print a traceback at Ctrl-C.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(process: BaseProcess, method: str) -> None:
    with warnings.catch_warnings():
        # Python 3.12 and later warn of forking a process with threads, because a lock that a thread holds stays
        # locked in the child. Ours takes no lock of the parent's threads; start_method is there for datasets that do.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            with _signals_blocked() if method == "fork" else nullcontext():
                process.start()
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise OptionError(
                f"the dataset or a field cannot be sent to a process that is started by {method!r}: {error}. "
                "Use start_method='fork' or num_workers=1."
            ) from error


def work(
    job: Job,
    number: int,
    connection: Connection,
    inherited: Sequence[Connection],
    current_rows: MutableSequence[int],
    environment: Mapping[str, str],  # a process of a server of forks has that of the server's beginning
) -> None:
    """Run a writing process until `connection` is closed."""
    # `inherited` are ends of pipes that only a forked process has: open, they would keep this process waiting after the
    # calling one was killed. `current_rows`, shared, names the row in hand of each process, in case it dies.
    # Ctrl-C reaches the whole group; the calling process decides its meaning. It ends this one by SIGTERM, for which
    # the user's program may have a handler that is not meant for here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        # A forked process starts with them blocked: a SIGTERM that came before the handler was removed acts now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
    for other in inherited:
        other.close()
    os.environ.update(environment)

    def set_current_row(row: int) -> None:
        current_rows[number] = row

    try:
        with Encoder(job, set_current_row) as encoder:
            while True:
                match connection.recv():
                    case ("encode", task):
                        regions = encoder.encode(task)
                        set_current_row(_IDLE)
                        connection.send(("encoded", task, regions))
                    case ("write", task, place):
                        encoder.write(task, place)
                        connection.send(("written", task))
                    case ("count", shard):
                        connection.send(("counted", shard, job.dataset.count(shard)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the calling process has ended
    except Exception as error:  # noqa: BLE001  (it is raised in the calling process)
        connection.send(("failed", _sendable(error), traceback.format_exc()))


def _sendable(error: Exception) -> Exception:
    """Return the error if it can go through a pipe; otherwise its type and text."""
    with suppress(Exception):
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    return GpubetonError(f"{type(error).__name__}: {error}")
