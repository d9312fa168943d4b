"""Gpu: one GPU as a loader uses it, from epoch to epoch."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from gpubeton._gpu.executor import GpuExecutor
from gpubeton._gpu.gpu_resources import GpuResources
from gpubeton.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpubeton._gpu.cuda import Device
    from gpubeton._gpu.entry_decoder import ResidentJpegs
    from gpubeton._gpu.nvjpeg_backends import DecodeBackends
    from gpubeton._gpu.options import GpuOptions
    from gpubeton._plan.image_job import CpuServices
    from gpubeton._plan.program import ImageProgram


class Gpu:
    """One GPU: keeps decoders and memory from one epoch to the next."""

    def __init__(
        self, device: Device, options: GpuOptions, open_backends: Callable[[Device], DecodeBackends], *, num_slots: int
    ) -> None:
        self.device = device
        self.options = options
        self._open_backends = open_backends
        self._num_slots = num_slots
        self._lock = threading.Lock()
        self._is_closed = False
        self.resident: Mapping[str, ResidentJpegs] = {}  # by field; executors that begin use it
        # Errors of opening are raised at once, and not in the loop.
        first, opened = self._make()
        self.notes, self.warning = dict(opened.notes), opened.warning
        self.takes_entries = opened.takes_entries
        self.takes_entries_only = opened.takes_entries and not opened.backends
        self._free = [first]

    def start_executor(self, programs: Sequence[ImageProgram], cpu: CpuServices) -> GpuExecutor:
        """Begin an epoch; the executor has to be closed."""
        with self._lock:
            resources = self._free.pop() if self._free else None
        if resources is None:
            resources, _ = self._make()
        try:
            return GpuExecutor(resources, programs, cpu, self.options, self._take_back, self.resident)
        except BaseException:
            self._take_back(resources)
            raise

    def close(self) -> None:
        """Free what no epoch uses; the rest is freed when its epoch ends. May be called twice."""
        self.resident = {}
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for resources in free:
            # After an error of the GPU, which was raised where it appeared, nothing can be freed; the caller has other
            # things to close.
            with suppress(DeviceError):
                resources.close()

    def _make(self) -> tuple[GpuResources, DecodeBackends]:
        with self.device.active():
            opened = self._open_backends(self.device)
            return GpuResources(self.device, opened, self._num_slots), opened

    def _take_back(self, resources: GpuResources) -> None:
        with self._lock:
            if not self._is_closed:
                self._free.append(resources)
                return
        resources.close()
