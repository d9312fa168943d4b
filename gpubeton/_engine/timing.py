"""Timers of the stages of an epoch, with labels for profilers."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from typing import Any

from gpubeton._bytes.load_pool import Transfer
from gpubeton._plan.image_job import Usage


class ProfilerLabel:
    """Marks a span of time for torch's profiler and for NVIDIA's, if one of them runs."""

    # Without a profiler this costs a look at a variable. NVTX is used if Nsight has put its library into the process,
    # as NVTX_INJECTION64_PATH shows, or if GPUBETON_NVTX is 1.

    def __init__(self, name: str) -> None:
        self.name = name  # shown by the profiler, e.g. "gpubeton: tail"
        self._nvtx = _nvtx()
        self._profiler: Any = sys.modules.get("torch.autograd.profiler")  # not imported: not running

    def begin(self) -> ExitStack | None:
        """Begin a span in the calling thread, which closes the result; None if no profiler runs."""
        is_profiled = getattr(self._profiler, "_is_profiler_enabled", False)
        if not is_profiled and self._nvtx is None:
            return None
        span = ExitStack()
        if self._nvtx is not None:
            self._nvtx.range_push(self.name)
            span.callback(self._nvtx.range_pop)
        if is_profiled:
            span.enter_context(self._profiler.record_function(self.name))
        return span


def _nvtx() -> Any:
    """Give torch's NVTX, if a profiler listens and torch has it; None otherwise."""
    asked = os.environ.get("GPUBETON_NVTX", "")
    if asked == "0" or not (asked or os.environ.get("NVTX_INJECTION64_PATH")):
        return None
    import torch

    return torch.cuda.nvtx if torch.cuda.is_available() else None


class StageTimer:
    """Sums up the time spent inside of ``with timer:``, by one thread at a time; any thread may read `seconds`."""

    def __init__(self, name: str) -> None:
        self.seconds = 0.0  # wall time until now
        self._label = ProfilerLabel(f"gpubeton: {name}")
        self._marked: ExitStack | None = None
        self._begun = 0.0

    def __enter__(self) -> None:
        self._marked = self._label.begin()
        self._begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begun
        if self._marked is not None:
            self._marked.close()


class StageTimers:
    """The timers of one epoch's stages, see `LoaderStats`; all but `handover` belong to the engine's thread."""

    def __init__(self) -> None:
        self.plan, self.read, self.submit = StageTimer("plan"), StageTimer("read"), StageTimer("submit")
        self.decode, self.tail, self.handover = StageTimer("decode"), StageTimer("tail"), StageTimer("handover")
        self.usage = Usage()  # of the CPU's workers, updated after each batch
        self.stored_bytes = 0  # bytes of the file in the batches so far
        self.verified_bytes = 0  # those of them that were compared with checksums
        self.transfer = Transfer()  # of files that are not on this machine

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage until now, by name."""
        return {name: timer.seconds for name, timer in vars(self).items() if isinstance(timer, StageTimer)}
