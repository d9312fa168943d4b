"""A GPU whose calls do nothing, to measure gpubeton's own Python: not even the simulator's is part of it.

Kernels and copies leave all memory as it is, zeros: as if every image had been made.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

__all__ = ["IdleDevice"]


class IdleDevice:
    """What `gpubeton._gpu.cuda.Device` describes."""

    name = "Idle GPU"
    architecture = "sm_90"
    current_stream = None

    def __init__(self, number: int = 0, handle: int = 0) -> None:
        self.number = number
        self._handle = handle  # the stream that nvJPEG is given

    def active(self) -> Any:
        """Make nothing current."""
        return nullcontext()

    def using(self, stream: Any) -> Any:
        """Let torch work where it does anyway."""
        return nullcontext()

    def make_stream(self, name: str = "") -> Any:
        """Make a stream without a queue."""
        return _Idle(self._handle)

    def make_event(self) -> Any:
        """Make an event that is always done."""
        return _Idle(0)

    def allocate(self, nbytes: int) -> Any:
        """Allocate memory of the host."""
        return _Memory(nbytes)

    allocate_pinned = allocate

    def empty(self, shape: tuple[int, ...], dtype: str, stream: Any) -> Any:
        """Make a tensor of the host."""
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype))

    def memory_left(self) -> int:
        """Pretend that there is enough."""
        return 1 << 36

    def _do_nothing(self, *_: Any) -> None:
        """Return at once."""

    copy = launch = hand_over = recycle = empty_cache = _do_nothing


class _Idle:
    """A stream, and an event of it."""

    is_idle = is_done = True

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def do_nothing(self, *_: Any) -> None:
        """Return at once."""

    wait = record = synchronize = do_nothing


class _Memory:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.array = np.zeros(nbytes, np.uint8)
        self.address = self.array.ctypes.data

    def free(self) -> None:
        """Leave it to the garbage collector."""
