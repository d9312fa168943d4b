"""The contender's end of the line: reads a word from stdin, runs a lap, answers with a line of JSON.

A lap is a stretch of steady work: it begins when the contender's line is full, and ends while it still is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

from benchmarks.gpu.contenders.work import GpuWork
from benchmarks.gpu.engines import EngineWatch
from benchmarks.gpu.simulation import is_simulated
from benchmarks.harness.timing import cpu_seconds

__all__ = ["Ready", "run_lap", "serve", "wait_for_current_stream"]


class Ready(NamedTuple):
    """A contender that can run.

    Parameters
    ----------
    batches : callable
        Begins a lap: gives a generator of numbers of images, one for each batch, that ends its work when it is closed.
        It may end by itself, and is begun again then.
    settle : callable
        Waits until what was handed out is really there.
    warm_up : int
        Batches until its line is full.
    versions : dict of str to str
        The versions of what it consists of.
    """

    batches: Callable[[], Generator[int, None, None]]
    settle: Callable[[], object]
    warm_up: int
    versions: dict[str, str]


def serve(prepare: Callable[[GpuWork, ExitStack], Ready]) -> None:
    """Prepare a contender from the first line of stdin, then run a lap for each further line.

    Parameters
    ----------
    prepare : callable
        Makes the contender; what it puts on the stack is undone at the end.
    """
    # Libraries print to stdout, which is the line to the other side: give them stderr instead.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    work = GpuWork.from_json(sys.stdin.readline())
    if work.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: work.cores])
    with ExitStack() as stack:
        ready = prepare(work, stack)
        answers.write(json.dumps({"python": sys.version.split()[0], **ready.versions}) + "\n")
        while line := sys.stdin.readline():
            seconds = float(line) if line.strip() else work.seconds
            answers.write(json.dumps(run_lap(ready, seconds)) + "\n")


def wait_for_current_stream() -> None:
    """Wait for what torch has in its current stream, not for what a loader prepares elsewhere."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.current_stream().synchronize()


def run_lap(ready: Ready, seconds: float) -> dict[str, Any]:
    """Run a lap.

    Parameters
    ----------
    ready : Ready
        The contender.
    seconds : float
        How long it goes on, once the line is full.

    Returns
    -------
    dict
        Images, seconds, processor seconds of all threads and processes, and how busy the GPU was.
    """
    with ExitStack() as stack:
        batches = _begin(ready, stack)
        for _ in range(ready.warm_up):
            next(batches)
        ready.settle()
        watch = stack.enter_context(EngineWatch()) if not is_simulated() else None
        images, cpu, start = 0, cpu_seconds(), time.perf_counter()
        while time.perf_counter() - start < seconds or images == 0:
            number = next(batches, None)
            if number is None:
                batches = _begin(ready, stack)
                continue
            images += number
        ready.settle()
        wall, cpu = time.perf_counter() - start, cpu_seconds() - cpu
    lap = {"images": images, "wall_seconds": wall, "cpu_seconds": cpu}
    return lap if watch is None else {**lap, "engines": watch.found}


def _begin(ready: Ready, stack: ExitStack) -> Generator[int, None, None]:
    return stack.enter_context(closing(ready.batches()))
