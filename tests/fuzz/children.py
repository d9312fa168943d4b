"""Processes that try cases, and a parent that outlives them: a crash or a hang costs one case.

Each process takes every n-th case and writes the number of its present one into shared memory.
"""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any

from tests.fuzz.campaign import attempt, load
from tests.fuzz.report import Record

_SPAWN = multiprocessing.get_context("spawn")
#: Compiling comes before the first case.
_SECONDS_TO_START = 900


@dataclass(frozen=True)
class Task:
    """What the processes of a campaign do."""

    name: str
    seed: int
    processes: int
    cases: int | None  # None: until the time is over
    patience: float


def run_here(name: str, seed: int, numbers: range, folder: Path) -> Record:
    """Try cases in this process."""
    record, start = Record(name, seed), time.monotonic()
    campaign = load(name, seed, folder)
    for number in numbers:
        record.add(number, attempt(campaign, number))
        record.cases += 1
    record.add(-1, campaign.close())
    record.seconds = time.monotonic() - start
    return record


def _work(task: Task, first: int, skipped: set[int], present: Any, deadline: Any, pipe: Any) -> None:
    """Try cases in a separate process; send their outcomes twice a second, and the number of the next one."""
    # Ctrl-C is the parent's, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with tempfile.TemporaryDirectory() as folder:
        campaign = load(task.name, task.seed, Path(folder))
        record, sent, number = Record(task.name, task.seed), time.monotonic(), first
        while task.cases is None or number < task.cases:
            if number not in skipped:
                present.value = number
                record.add(number, attempt(campaign, number))
                record.cases += 1
            if number == first:
                present.value = -1
                pipe.send(None)  # compiling for the first case is done
                while deadline.value == 0:
                    time.sleep(0.01)
            number += task.processes
            if time.monotonic() > deadline.value:
                break
            if time.monotonic() - sent > 0.5:
                pipe.send((record, number))
                record, sent = Record(task.name, task.seed), time.monotonic()
        present.value = -1
        record.add(number, campaign.close())
        pipe.send((record, number))
    pipe.send("done")


@dataclass
class _Child:
    """A process and its state."""

    task: Task
    first: int  # the first case of which it has sent nothing yet
    deadline: Any
    skipped: set[int] = field(default_factory=set)  # those that ended or stopped a process
    present: Any = field(default_factory=lambda: _SPAWN.Value("q", -1, lock=False))
    seen: int = -1
    since: float = field(default_factory=time.monotonic)
    is_ready: bool = False

    def __post_init__(self) -> None:
        self.pipe, other = _SPAWN.Pipe(duplex=False)
        self.process = _SPAWN.Process(
            target=_work, args=(self.task, self.first, self.skipped, self.present, self.deadline, other)
        )
        self.process.start()
        other.close()

    def hangs(self) -> bool:
        """Whether its present case takes too long."""
        if self.present.value != self.seen or (self.is_ready and self.seen < 0):
            self.seen, self.since = self.present.value, time.monotonic()
        return time.monotonic() - self.since > (self.task.patience if self.is_ready else _SECONDS_TO_START)


def run(task: Task, seconds: float, show: Callable[[str], object] = lambda _: None) -> Record:
    """Run a campaign in several processes.

    The first of them compiles for all, and the time begins when all are ready.
    """
    record = Record(task.name, task.seed)
    deadline = _SPAWN.Value("d", 0.0, lock=False)
    children, waiting = [_Child(task, 0, deadline)], range(1, task.processes)
    start = shown = time.monotonic()
    try:
        while children:
            connection.wait([child.pipe for child in children], timeout=0.2)
            children = [left for child in children for left in _follow(child, record)]
            if deadline.value == 0 and all(child.is_ready for child in children):
                children += [_Child(task, number, deadline) for number in waiting]
                start = time.monotonic()
                deadline.value = 0 if waiting else start + seconds
                waiting = range(0)
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                show(f"{task.name}: {record.cases} cases, {record.faults.total()} findings")
    finally:
        for child in children:
            child.process.kill()
            child.process.join()
    record.seconds = time.monotonic() - start
    return record


def _follow(child: _Child, record: Record) -> list[_Child]:
    """Take what a process sends; give it, or the one that goes on in its place, or nothing if it is done."""
    try:
        while child.pipe.poll():
            message = child.pipe.recv()
            if message == "done":
                child.process.join()
                return []
            if message is None:
                child.is_ready, child.since = True, time.monotonic()
            else:
                record.merge(message[0])
                child.first = message[1]
    except (EOFError, OSError):
        child.process.join()
    is_alive = child.process.is_alive()
    if is_alive and not child.hangs():
        return [child]
    child.process.kill()
    child.process.join()
    case = child.present.value
    if case < 0:
        record.fault(case, "crash", f"{_death(child.process.exitcode or 0)}, not in a case")
        return []
    if is_alive:
        record.fault(case, "hang", f"no end after {child.task.patience:.0f} s")
    else:
        record.fault(case, "crash", _death(child.process.exitcode or 0))
    record.cases += 1
    # The cases since its last message are tried again.
    return [_Child(child.task, child.first, child.deadline, child.skipped | {case})]


def _death(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"
