"""What a writing process does: encode and write what it is told to, until it is told to end."""

from __future__ import annotations

import pickle
import signal
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubeton.errors import GpubetonError
from gpubeton.writing.encoder import Encoder

if TYPE_CHECKING:
    from collections.abc import MutableSequence, Sequence
    from multiprocessing.connection import Connection

    from gpubeton.writing.extent import Extent
    from gpubeton.writing.tasks import Job, Placed, Task

__all__ = ["IDLE", "Count", "Counted", "Encode", "Encoded", "Failed", "Write", "Written", "work"]

#: What stands in a process's place of the current rows while it encodes nothing.
IDLE = -1


@dataclass(frozen=True)
class Encode:
    """Encode a chunk and answer with `Encoded`."""

    task: Task


@dataclass(frozen=True)
class Encoded:
    """A chunk was encoded; its regions are this large."""

    task: Task
    extent: Extent


@dataclass(frozen=True)
class Write:
    """Write a chunk where it was placed, and answer with `Written`."""

    task: Task
    placed: Placed


@dataclass(frozen=True)
class Count:
    """Count the samples of a shard and answer with `Counted`."""

    shard: int


@dataclass(frozen=True)
class Counted:
    """A shard has so many samples."""

    shard: int
    count: int


@dataclass(frozen=True)
class Written:
    """A chunk was written."""

    task: Task


@dataclass(frozen=True)
class Failed:
    """The process ends because of an error.

    Parameters
    ----------
    error : Exception
        The error, whose cause may have been left behind in the process.
    report : str
        The whole traceback as text.
    """

    error: Exception
    report: str


def work(
    job: Job,
    number: int,
    connection: Connection,
    inherited: Sequence[Connection],
    current_rows: MutableSequence[int],
) -> None:
    """Be a writing process.

    Parameters
    ----------
    job : Job
        What is written.
    number : int
        Which of the processes this is.
    connection : Connection
        Where tasks come from and answers go. The process ends when it is closed.
    inherited : sequence of Connection
        Ends of pipes that a forked process has only by accident; open, they
        would keep this process waiting after the calling one was killed.
    current_rows : shared array of int
        The row at hand of each process, for the case that it dies without a word.
    """
    # Ctrl-C reaches the whole group; the calling process decides what it means. It ends this one by SIGTERM, for which
    # the user's program may have a handler that is not meant for here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        # A forked process starts with it blocked: one that came before that handler was gone is heard now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    for other in inherited:
        other.close()

    def note(row: int) -> None:
        current_rows[number] = row

    try:
        with Encoder(job, note) as encoder:
            while True:
                match connection.recv():
                    case Encode(task):
                        extent = encoder.encode(task)
                        note(IDLE)
                        connection.send(Encoded(task, extent))
                    case Write(task, placed):
                        encoder.write(task, placed)
                        connection.send(Written(task))
                    case Count(shard):
                        connection.send(Counted(shard, job.dataset.count(shard)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the calling process is gone
    except Exception as error:  # noqa: BLE001  (it is raised in the calling process)
        connection.send(Failed(_sendable(error), traceback.format_exc()))


def _sendable(error: Exception) -> Exception:
    """Give the error itself if it survives the way through a pipe; its type and text if not."""
    with suppress(Exception):
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    return GpubetonError(f"{type(error).__name__}: {error}")
