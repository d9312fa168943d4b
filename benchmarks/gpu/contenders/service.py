"""The process of a contender: for each line on stdin, run a lap and print its figures as a line of JSON.

A lap measures steady work: it begins when the contender's pipeline is full, and ends while it is still full.
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
    """A contender that is ready to run."""

    # Begins a lap: yields the number of images of each batch, and stops when it is closed. If it ends before the lap
    # does, it is called again.
    batches: Callable[[], Generator[int, None, None]]
    settle: Callable[[], object]  # waits until the returned batches are complete
    warm_up: int  # batches until its pipeline is full
    versions: dict[str, str]  # of its packages


def serve(prepare: Callable[[GpuWork, ExitStack], Ready]) -> None:
    """Prepare a contender from the first line of stdin, then run a lap for each further line."""
    # stdout is for the answers: libraries that print get stderr instead.
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
    """Wait for torch's current stream, but not for batches that a loader prepares in other streams."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.current_stream().synchronize()


def run_lap(ready: Ready, seconds: float) -> dict[str, Any]:
    """Run a lap: images, seconds, processor seconds, and how busy the GPU was."""
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
