"""Processes: several encoders, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import warnings
from collections import deque
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from gpubeton.errors import OptionError, WorkerDiedError
from gpubeton.writing.worker import IDLE, Count, Counted, Encode, Encoded, Failed, Write, Written, work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.process import BaseProcess
    from types import TracebackType

    from typing_extensions import Self

    from gpubeton.writing.extent import Extent
    from gpubeton.writing.tasks import Job, Place, Task, TaskQueue

__all__ = ["Processes", "default_start_method"]

#: Chunks that a process may have in hand: one that it encodes and one that waits for its place.
_CHUNKS_AT_ONCE = 2
_SECONDS_TO_END = 5.0
_SECONDS_BETWEEN_LOOKS = 1.0


def default_start_method() -> str | None:
    """Give how processes are started unless the user says otherwise.

    Returns
    -------
    str or None
        "fork" on Linux: as in FFCV and in torch's DataLoader there, any dataset
        will do (one in memory, one that holds a lambda or an open file), it is
        not copied, and scripts need no ``if __name__ == "__main__"``. The
        processes use neither threads nor CUDA of the parent. None, Python's own
        choice, elsewhere.
    """
    return "fork" if sys.platform == "linux" else None


class Processes:
    """Several encoders, each in a process of its own.

    To be used in a ``with`` block, at the end of which the processes end.

    Parameters
    ----------
    job : Job
        What is to be written.
    count : int
        Number of processes.
    start_method : str or None
        "fork", "forkserver" or "spawn"; None for Python's default.

    Raises
    ------
    OptionError
        If the dataset or a field cannot be sent to a process that is not forked.
    """

    def __init__(self, job: Job, count: int, start_method: str | None) -> None:
        # Any: the type of a context that was chosen by a variable has no Process.
        context: Any = multiprocessing.get_context(start_method)
        self._job = job
        self._current_rows: Any = context.RawArray("q", [IDLE] * count)
        self._running: list[BaseProcess] = []
        pipes = [context.Pipe() for _ in range(count)]
        self._connections = [ours for ours, _ in pipes]
        try:
            for number, (_, theirs) in enumerate(pipes):
                inherited: list[Connection] = []
                if context.get_start_method() == "fork":
                    inherited = [end for pipe in pipes for end in pipe if end is not theirs]
                arguments = (job, number, theirs, inherited, self._current_rows)
                # Not daemons: a dataset may have processes of its own.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def count(self, shards: int) -> list[int]:
        """Count the samples of a dataset in shards, several at once.

        Parameters
        ----------
        shards : int
            Number of shards.

        Returns
        -------
        list of int
            Samples of each.

        Raises
        ------
        WriteError
            If the dataset raised an exception.
        WorkerDiedError
            If a process ended by itself.
        """
        counts: dict[int, int] = {}
        waiting = iter(range(shards))
        for number, shard in zip(range(len(self._connections)), waiting, strict=False):
            self._send(number, Count(shard))
        while len(counts) < shards:
            for number in self._ready():
                match self._receive(number):
                    case Counted(shard, count):
                        counts[shard] = count
                following = next(waiting, None)
                if following is not None:
                    self._send(number, Count(following))
        return [counts[shard] for shard in range(shards)]

    def run(self, lines: TaskQueue, place: Place, on_written: Callable[[Task], object]) -> None:
        """Carry out tasks, several at once.

        Parameters
        ----------
        lines : TaskQueue
            The tasks.
        place : callable
            Says where the samples of a chunk go; called in the order in which tasks were handed out.
        on_written : callable
            Called when a chunk is in the file.

        Raises
        ------
        SampleError
            If a sample could not be taken or encoded.
        StorageError
            If the file could not be written.
        WorkerDiedError
            If a process ended by itself.
        """
        in_hand = [0] * len(self._connections)
        unplaced: deque[tuple[Task, int]] = deque()
        encoded: dict[Task, Extent] = {}
        self._hand_out(lines, in_hand, unplaced)
        while any(in_hand):
            for number in self._ready():
                match self._receive(number):
                    case Encoded(task, extent):
                        encoded[task] = extent
                    case Written(task):
                        in_hand[number] -= 1
                        on_written(task)
            while unplaced and unplaced[0][0] in encoded:
                task, number = unplaced.popleft()
                self._send(number, Write(task, place(task, encoded.pop(task))))
            self._hand_out(lines, in_hand, unplaced)

    def _end(self) -> None:
        """End all processes, whatever they are doing."""
        for connection in self._connections:
            connection.close()
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.join(_SECONDS_TO_END)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        self._running.clear()

    def _hand_out(self, lines: TaskQueue, in_hand: list[int], unplaced: deque[tuple[Task, int]]) -> None:
        # In turns, so that the first chunks go to different processes.
        for level in range(_CHUNKS_AT_ONCE):
            for number, count in enumerate(in_hand):
                if count <= level and (task := lines.take(number)) is not None:
                    self._send(number, Encode(task))
                    unplaced.append((task, number))
                    in_hand[number] += 1

    def _ready(self) -> list[int]:
        """Wait for processes that have something to say or have died."""
        ready: list[Any] = []
        dead: list[int] = []
        while not ready and not dead:
            # Death shows at once by the end of the pipe, unless a process that the dataset started holds it open.
            ready = wait(self._connections, _SECONDS_BETWEEN_LOOKS)
            dead = [number for number, process in enumerate(self._running) if not process.is_alive()]
        return [number for number, pipe in enumerate(self._connections) if pipe in ready or number in dead]

    def _send(self, number: int, message: Encode | Write | Count) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connections[number].send(message)
            return
        # It has ended; if it had time to say why, that is still in the pipe, perhaps behind other messages.
        while True:
            self._receive(number)

    def _receive(self, number: int) -> Encoded | Written | Counted:
        connection, process = self._connections[number], self._running[number]
        message: Encoded | Written | Counted | Failed | None = None
        with suppress(EOFError, ConnectionResetError):
            if process.is_alive() or connection.poll():
                message = connection.recv()
        if message is None:
            raise self._death_of(number)
        if isinstance(message, Failed):
            raise message.error from _RemoteTraceback(message.report)
        return message

    def _death_of(self, number: int) -> WorkerDiedError:
        process = self._running[number]
        process.join(_SECONDS_TO_END)
        code = process.exitcode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = f"signal {signal.Signals(-code).name}"
        row = self._current_rows[number]
        where, index = "between two samples", None
        if row != IDLE:
            index = self._job.indices[row]
            where = f"at sample {index} (row {row} of the file)"
        return WorkerDiedError(
            f"writing process {number} ended {where} without a message: {how}. SIGKILL usually means that memory ran "
            "out: use fewer processes or a smaller chunksize. Otherwise read this sample with num_workers=1.",
            index,
        )


class _RemoteTraceback(Exception):  # noqa: N818  (it is shown as the cause of an error, and is none itself)
    """Shows what happened in another process, as the cause of the error that came from there."""

    def __init__(self, report: str) -> None:
        super().__init__(report)

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@contextmanager
def _terminations_held_back() -> Iterator[None]:
    """Block SIGTERM, as a process forked meanwhile does too, until it has taken off a handler of the user's program.

    That handler, inherited, could otherwise swallow the request to end that comes in the first moments.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
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
            with _terminations_held_back() if method == "fork" else nullcontext():
                process.start()
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise OptionError(
                f"the dataset or a field cannot be sent to a process that is started by {method!r}: {error}. "
                "Use start_method='fork' or num_workers=1."
            ) from error
