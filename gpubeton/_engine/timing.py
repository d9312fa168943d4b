"""Timers of the stages of an epoch, with labels for profilers."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from gpubeton._bytes.load_pool import Transfer
from gpubeton._plan.image_job import Usage

STAGES: Final = {
    "plan": "deciding crops and draws, and asking for bytes",
    "read": "waiting for bytes of the file",
    "submit": "giving batches to the workers",
    "decode": "waiting for the workers or the GPU to have a batch decoded and augmented",
    "tail": "the rest of the pipelines: labels, operations that are not fused, copies to a GPU",
    "handover": "giving a batch to the loop",
}
"""The stages of an epoch, each run by one thread at a time."""
MAX_RECORDED: Final = 5000  # batches of an epoch whose intervals are kept


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

    def __init__(self, name: str, *, is_recorded: bool = False) -> None:
        self.seconds = 0.0  # wall time until now
        # (begun, ended) by time.perf_counter, one for each batch from the epoch's first one on; None: not recorded
        self.spans: list[tuple[float, float]] | None = [] if is_recorded else None
        self._label = ProfilerLabel(f"gpubeton: {name}")
        self._marked: ExitStack | None = None
        self._begun = 0.0

    def __enter__(self) -> None:
        self._marked = self._label.begin()
        self._begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        now = time.perf_counter()
        self.seconds += now - self._begun
        if self.spans is not None and len(self.spans) < MAX_RECORDED:
            self.spans.append((self._begun, now))
        if self._marked is not None:
            self._marked.close()


class StageTimers:
    """The timers of one epoch's stages, see `STAGES`; all but `handover` belong to the engine's thread."""

    def __init__(self, *, is_recorded: bool = False) -> None:
        timer = partial(StageTimer, is_recorded=is_recorded)
        self.plan, self.read, self.submit = timer("plan"), timer("read"), timer("submit")
        self.decode, self.tail, self.handover = timer("decode"), timer("tail"), timer("handover")
        self.usage = Usage()  # of the CPU's workers, updated after each batch
        # (time.perf_counter, usage) after each batch, and (begun, ended) of the loop's waits; None: not recorded
        self.usages: list[tuple[float, Usage]] | None = [] if is_recorded else None
        self.waits: list[tuple[float, float]] | None = [] if is_recorded else None
        self.stored_bytes = 0  # bytes of the file in the batches so far
        self.verified_bytes = 0  # those of them that were compared with checksums
        self.transfer = Transfer()  # of files that are not on this machine

    def set_usage(self, usage: Usage) -> None:
        """Take over what the CPU's workers did until now."""
        self.usage = usage
        if self.usages is not None and len(self.usages) < MAX_RECORDED:
            self.usages.append((time.perf_counter(), usage))

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage until now, by name."""
        timers: dict[str, StageTimer] = {name: getattr(self, name) for name in STAGES}
        return {name: timer.seconds for name, timer in timers.items()}
