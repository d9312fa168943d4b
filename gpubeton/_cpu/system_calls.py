"""Functions of the system that machine code calls by name; where one is missing, Python's takes its place.

macOS and Windows have no semaphores that lie in memory, and Windows has no ``clock_gettime``.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import time
import weakref
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from llvmlite import binding

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

WALL_CLOCK = getattr(time, "CLOCK_MONOTONIC", 1)
CPU_CLOCK = getattr(time, "CLOCK_THREAD_CPUTIME_ID", 3)  # of this thread

_HAS_SEMAPHORES = sys.platform == "linux"
_C: Any = ctypes.CDLL(None) if _HAS_SEMAPHORES else None
_queues: dict[int, SimpleQueue[None]] = {}
_numbers: Iterator[int] = itertools.count(1)
# The interrupt that ended a wait in the main thread: it cannot pass through machine code.
_interrupts: list[BaseException] = []


def begin_semaphore(words: NDArray[np.int64]) -> None:
    """Make a semaphore without tokens in a few words of memory; it lives as long as the array."""
    if _HAS_SEMAPHORES:
        _C.sem_init(ctypes.c_void_p(words.ctypes.data), 0, 0)
        return
    words[0] = number = next(_numbers)
    _queues[number] = SimpleQueue()
    owner: Any = words if words.base is None else words.base
    weakref.finalize(owner, _queues.pop, number).atexit = False


def raise_interrupt() -> None:
    """Raise what interrupted a wait of machine code."""
    if _interrupts:
        raise _interrupts.pop()


def _queue(semaphore: int) -> SimpleQueue[None]:
    return _queues[ctypes.c_int64.from_address(semaphore).value]


def _wait(semaphore: int) -> int:
    try:
        _queue(semaphore).get()
    except BaseException as error:  # noqa: BLE001  a signal handler's, which `raise_interrupt` raises again
        _interrupts.append(error)
    return 0


def _post(semaphore: int) -> int:
    _queue(semaphore).put(None)
    return 0


def _tokens(semaphore: int, count: int) -> int:
    ctypes.c_int.from_address(count).value = _queue(semaphore).qsize()
    return 0


def _clock(clock: int, seconds: int) -> int:
    now = time.thread_time_ns() if clock == CPU_CLOCK else time.monotonic_ns()
    (ctypes.c_int64 * 2).from_address(seconds)[:] = list(divmod(now, 10**9))
    return 0


# Kept for good: machine code calls them by their addresses.
_replacements: dict[str, Any] = {}
if not _HAS_SEMAPHORES:
    _replacements["sem_wait"] = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_wait)
    _replacements["sem_post"] = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_post)
    _replacements["sem_getvalue"] = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_tokens)
if not hasattr(time, "clock_gettime"):
    _replacements["clock_gettime"] = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(_clock)
for _name, _function in _replacements.items():
    binding.add_symbol(_name, ctypes.cast(_function, ctypes.c_void_p).value)
