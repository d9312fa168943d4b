"""The process of a contender: for each line on stdin, run a lap and print its figures as a line of JSON.

A line of JSON in place of "lap" lets simulated accelerators take the batches.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple

from benchmarks.contenders.work import Work
from benchmarks.harness.accelerators import run_accelerators
from benchmarks.harness.timing import time_lap

__all__ = ["Ready", "count_images", "serve"]


class Ready(NamedTuple):
    """A contender that is ready to run."""

    lap: Callable[[], Iterable[int]]  # run a lap: for each batch as it comes, its number of images
    versions: dict[str, str]  # of its packages


def count_images(loader: Any) -> Generator[int, None, None]:
    """Run an epoch of FFCV's loader or ours: for each batch, its number of images."""
    epoch = iter(loader)
    try:
        for images, _ in epoch:
            yield len(images)
    finally:
        # An epoch of FFCV that is left early does not end by itself: its thread and its buffers would stay.
        epoch.close()


def serve(prepare: Callable[[Work], Ready]) -> None:
    """Prepare a contender from the first line of stdin, then do what each further line says."""
    # stdout is for the answers: libraries that print get stderr instead.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    work = Work.from_json(sys.stdin.readline())
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: work.cores])
    ready = prepare(work)
    answers.write(json.dumps({"python": sys.version.split()[0], **ready.versions}) + "\n")
    while line := sys.stdin.readline():
        is_lap = not line.startswith("{")
        answers.write(json.dumps(_time(ready.lap) if is_lap else _feed(ready.lap, json.loads(line))) + "\n")


def _time(run: Callable[[], Iterable[int]]) -> tuple[object, ...]:
    """Time a lap; return the values of a Lap."""
    first: list[float] = []

    def images() -> Iterator[int]:
        start = time.perf_counter()
        for count in run():
            if not first:
                first.append(time.perf_counter() - start)
            yield count

    lap = time_lap(lambda: sum(images()))
    return lap.images, lap.wall_seconds, lap.cpu_seconds, *first


def _feed(run: Callable[[], Iterable[int]], task: dict[str, Any]) -> float:
    """Let accelerators take the batches of laps, without end."""
    return run_accelerators(itertools.chain.from_iterable(run() for _ in itertools.count()), **task)
