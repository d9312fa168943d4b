"""Memory of Python's objects that one call takes, measured in a process that does nothing else.

tracemalloc counts all threads of a process. In a process of tests, loaders of earlier tests may still be compiling.
"""

from __future__ import annotations

import gc
import multiprocessing
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Memory:
    """Bytes of a call: the most at any time, and those of its result."""

    peak: int
    kept: int


def _traced(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Memory:
    function(*arguments)  # imports and compiles
    gc.collect()
    tracemalloc.start()
    try:
        result = function(*arguments)
        kept, peak = tracemalloc.get_traced_memory()
        del result
    finally:
        tracemalloc.stop()
    return Memory(peak, kept)


class MemoryMeter:
    """Measures calls of functions at module level, whose arguments can be pickled."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Memory:
        return self._pool.submit(_traced, function, arguments).result()


@contextmanager
def running_meter() -> Iterator[MemoryMeter]:
    """Start a process on the first call, and end it."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield MemoryMeter(pool)
