"""The process of a contender: for each line on stdin, run a lap and print its figures as a line of JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.contenders.work import Work
from benchmarks.harness.timing import time_lap

__all__ = ["Ready", "serve"]


class Ready(NamedTuple):
    """A contender that is ready to run."""

    lap: Callable[[], int]  # run a lap, return its number of images
    versions: dict[str, str]  # of its packages


def serve(prepare: Callable[[Work], Ready]) -> None:
    """Prepare a contender from the first line of stdin, then run a lap for each further line."""
    # stdout is for the answers: libraries that print get stderr instead.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    work = Work.from_json(sys.stdin.readline())
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: work.cores])
    ready = prepare(work)
    answers.write(json.dumps({"python": sys.version.split()[0], **ready.versions}) + "\n")
    while sys.stdin.readline():
        lap = time_lap(ready.lap)
        answers.write(json.dumps([lap.images, lap.wall_seconds, lap.cpu_seconds]) + "\n")
