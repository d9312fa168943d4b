"""Simulated accelerators that share the batches of a loader. Needs only Python's own library."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

__all__ = ["run_accelerators"]


def run_accelerators(batches: Iterator[object], accelerators: int, step_seconds: float, steps: int) -> float:
    """Let accelerators take a batch each, sleep for a step, and so on; return the seconds of their steps, on average.

    As in MLPerf Storage, the first step of each is not counted: it waits for the first batch.
    """
    lock = threading.Lock()

    def accelerate(_number: int) -> float:
        start = 0.0
        for _ in range(steps + 1):
            with lock:
                next(batches)
            time.sleep(step_seconds)
            start = start or time.perf_counter()
        return time.perf_counter() - start

    with ThreadPoolExecutor(accelerators) as pool:
        return sum(pool.map(accelerate, range(accelerators))) / accelerators
