"""Fakes of `cupy.cuda` and `torch.cuda` that record their calls, for the tests of `Device`.

Signatures are those of CuPy 14; `test_cupy_has_everything_that_is_used` compares them where CuPy is installed.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from gpubeton._gpu import cuda


class CudaRuntimeError(RuntimeError):
    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status


class DriverError(RuntimeError):
    def __init__(self, status):
        super().__init__(f"driver status {status}")
        self.status = status


class RecordedCuda:
    """The calls, in `calls`; and the prepared answers.

    Attributes
    ----------
    calls : list of tuple
        Name and arguments of each call, in order.
    fail : dict of str to list
        Exceptions that the next calls of a name raise.
    """

    def __init__(self):
        self.calls = []
        self.fail = {}
        self.numbers = itertools.count(1000)
        self.count = 2
        self.current = {"cupy": 0, "torch": 0}
        self.is_one_runtime = True
        self.event_status = 0
        self.free_bytes = 4096
        self.host_memory = {}
        self.tensors = []

    def note(self, name, *arguments):
        self.calls.append((name, *arguments))
        if self.fail.get(name):
            raise self.fail[name].pop(0)

    def named(self, *names):
        """The calls of these names."""
        return [call for call in self.calls if call[0] in names]

    # --- CuPy

    def cupy(self):
        """The module."""
        record = self

        class Stream:
            def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
                record.note("Stream", null, non_blocking, ptds, priority)
                self.ptr = next(record.numbers)

            def wait_event(self, event):
                record.note("wait_event", self.ptr, event.ptr)

        class Event:
            def __init__(self, block=False, disable_timing=False, interprocess=False):
                record.note("Event", block, disable_timing, interprocess)
                self.ptr = next(record.numbers)

            def record(self, stream=None):
                record.note("record", self.ptr, stream.ptr)

            def synchronize(self):
                record.note("synchronize", self.ptr)

        class Module:
            def load(self, cubin):
                record.note("load", cubin)

            def get_function(self, name):
                record.note("get_function", name)

                def launch(grid, block, args, shared_mem=0, stream=None):
                    record.note("launch", name, grid, block, args, shared_mem, stream.ptr)

                return launch

        def compile_using_nvrtc(source, options=(), cache_in_memory=False):
            record.note("compile", source, options)
            return b"code", None

        module = ModuleType("cupy")
        module.__version__ = "14.0.0"
        module.cuda = SimpleNamespace(
            Stream=Stream,
            Event=Event,
            function=SimpleNamespace(Module=Module),
            runtime=self.runtime(),
            driver=SimpleNamespace(CUDADriverError=DriverError),
            nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
            compiler=SimpleNamespace(compile_using_nvrtc=compile_using_nvrtc, CompileException=RuntimeError),
        )
        return module

    def runtime(self):
        """``cupy.cuda.runtime``."""

        def host_alloc(size, flags):
            self.note("hostAlloc", size, flags)
            memory = np.zeros(size, np.uint8)
            self.host_memory[memory.ctypes.data] = memory
            return memory.ctypes.data

        def malloc(size):
            self.note("malloc", size)
            return next(self.numbers) * 256

        def set_device(number):
            self.note("setDevice", number)
            self.current["cupy"] = number

        def event_query(event):
            self.note("eventQuery", event)
            return self.event_status

        def check_status(status):
            self.note("check_status", status)
            if status:
                raise CudaRuntimeError(status)

        def device_count():
            self.note("getDeviceCount")
            return self.count

        return SimpleNamespace(
            CUDARuntimeError=CudaRuntimeError,
            hostAllocPortable=1,
            memcpyDefault=4,
            malloc=malloc,
            free=lambda address: self.note("free", address),
            hostAlloc=host_alloc,
            freeHost=lambda address: self.note("freeHost", address),
            memcpyAsync=lambda dst, src, size, kind, stream: self.note("memcpyAsync", dst, src, size, kind, stream),
            streamWaitEvent=lambda stream, event, flags=0: self.note("streamWaitEvent", stream, event, flags),
            eventQuery=event_query,
            check_status=check_status,
            getDevice=lambda: self.current["torch" if self.is_one_runtime else "cupy"],
            setDevice=set_device,
            getDeviceCount=device_count,
            memGetInfo=lambda: (self.free_bytes, 1 << 30),
        )

    # --- torch

    @contextmanager
    def device(self, number):
        """``torch.cuda.device``."""
        before, self.current["torch"] = self.current["torch"], number
        self.note("torch device", number)
        try:
            yield
        finally:
            self.current["torch"] = before
            self.note("torch device", before)

    def set_stream(self, stream):
        """``torch.cuda.set_stream``."""
        self.note("torch stream", stream.cuda_stream)

    def external_stream(self, pointer, device=None):
        """``torch.cuda.ExternalStream``."""
        self.note("ExternalStream", pointer, device)
        return SimpleNamespace(cuda_stream=pointer, device=device)

    def empty(self, shape, **keywords):
        """``torch.empty``."""
        self.note("empty", tuple(shape), keywords)
        self.tensors.append(RecordedTensor(self, f"tensor {len(self.tensors)}"))
        return self.tensors[-1]

    def install(self, monkeypatch):
        """Put them where the real ones are."""
        monkeypatch.setitem(sys.modules, "cupy", self.cupy())
        replaced = {
            "is_available": lambda: True,
            "current_device": lambda: self.current["torch"],
            "get_device_name": lambda number: f"GPU {number}",
            "get_device_capability": lambda number: (9, number),
            "memory_reserved": lambda number: 700 + number,
            "empty_cache": lambda: self.note("empty_cache"),
            "current_stream": lambda number: SimpleNamespace(cuda_stream=555 + number),
            "device": self.device,
            "set_stream": self.set_stream,
            "ExternalStream": self.external_stream,
        }
        for name, fake in replaced.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch, "empty", self.empty)


class RecordedTensor:
    """A tensor that records its operations."""

    is_cuda = True

    def __init__(self, record, name):
        self.record = record
        self.name = name

    def copy_(self, source):
        self.record.note("copy_", self.name, source)

    def to(self, device, non_blocking=False):
        self.record.note("to", self.name, str(device), non_blocking)
        return RecordedTensor(self.record, f"{self.name} on {device}")

    def record_stream(self, stream):
        self.record.note("record_stream", self.name, stream.cuda_stream)


@pytest.fixture
def record(monkeypatch):
    """Fakes of CuPy and torch's CUDA, and their calls."""
    monkeypatch.setattr(cuda, "_devices", {})
    fake = RecordedCuda()
    fake.install(monkeypatch)
    return fake


@pytest.fixture
def cuda_device(record):
    """cuda:1 of the fakes."""
    opened = cuda.open_device(1)
    record.calls.clear()
    return opened
