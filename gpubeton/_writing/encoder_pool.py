"""EncoderPool: several encoders, each in its own process."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections import deque
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from gpubeton._writing.encoder import Encoder, Place
from gpubeton.errors import GpubetonError, OptionError, WorkerDiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
    from multiprocessing.process import BaseProcess

    from typing_extensions import Self

    from gpubeton._writing.encoder import Job, Task, TaskQueue
    from gpubeton._writing.file_builder import RegionSizes

#: Chunks that a process may have in hand: one that it encodes and one that waits for its place.
_CHUNKS_AT_ONCE = 2
_SECONDS_BETWEEN_CHECKS = 1.0
#: Row of a process that encodes nothing at the moment.
_IDLE = -1
_BLOCKED = {signal.SIGINT, signal.SIGTERM}


# A message between the processes. Requests: "encode", task; "write", task, place; "count", shard. Answers: "encoded",
# task, regions; "written", task; "counted", shard, count; and "failed", error, traceback, before the process ends.
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
                inherited: list[Connection] = []
                if context.get_start_method() == "fork":
                    inherited = [end for pipe in pipes for end in pipe if end is not theirs]
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
        code = process.exitcode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = f"signal {signal.Signals(-code).name}"
        row = self._current_rows[number]
        where, index = "between two samples", None
        if row != _IDLE:
            index = self._job.indices[row]
            where = f"at sample {index} (row {row} of the file)"
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
