"""A GPU made of threads and host memory: what `gpubeton._gpu.cuda.Device` is on real hardware.

Streams run beside the calling thread, with delays that `tests.simulator.faults` sets, so that a wait that is missing
shows. Memory is garbage when new, lies between unreadable pages, and can never be touched again once it is freed: the
process ends with a message then. "Tensors of the device" are torch's CPU tensors over such memory.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpubeton._gpu.kernels import function_of
from gpubeton.errors import DeviceError
from tests.kernels.host_build import kernels_of
from tests.simulator.library import library

DEVICE, PINNED, TENSOR = range(3)

_OUT_OF_MEMORY = 2
_NOT_READY = 600
_STATUSES = {
    1: "cudaErrorInvalidValue",
    2: "cudaErrorMemoryAllocation",
    9: "cudaErrorInvalidConfiguration",
    400: "cudaErrorInvalidResourceHandle",
    700: "cudaErrorIllegalAddress",
    719: "cudaErrorLaunchFailure",
}


class SimulatedEvent:
    """`gpubeton._gpu.cuda.Event`."""

    def __init__(self, device):
        self.device = device
        self.handle = library().simulated_event_make(device.number)
        weakref.finalize(self, library().simulated_event_drop, self.handle).atexit = False

    @property
    def is_done(self):
        status = library().simulated_event_query(self.handle)
        if status != _NOT_READY:
            _check(status, "query of an event", self.device)
        return status != _NOT_READY

    def record(self, stream):
        _check(library().simulated_event_record(self.handle, stream.handle), "record of an event", self.device)

    def synchronize(self):
        _check(library().simulated_event_synchronize(self.handle), "wait for an event", self.device)


class SimulatedStream:
    """`gpubeton._gpu.cuda.Stream`."""

    def __init__(self, device, name):
        self.device = device
        self.name = name
        self.handle = library().simulated_stream_make(device.number, True)

    @property
    def number(self):
        """Counts from 0 in each test; the journal and the seeds of delays go by it."""
        return library().simulated_stream_number(self.handle)

    @property
    def is_idle(self):
        return bool(library().simulated_stream_is_idle(self.handle))

    def wait(self, event):
        _check(library().simulated_stream_wait(self.handle, event.handle), "wait of a stream", self.device)

    def synchronize(self):
        _check(library().simulated_stream_synchronize(self.handle), "wait for a stream", self.device)


class SimulatedMemory:
    """`gpubeton._gpu.cuda.Memory` and `PinnedMemory`."""

    def __init__(self, device, nbytes, kind):
        self.nbytes = nbytes
        self.kind = kind
        self.device = device
        self.address = _allocate(device, nbytes, kind)
        self._finalizer = weakref.finalize(self, library().simulated_memory_free, self.address)
        self._finalizer.atexit = False

    def free(self):
        if self._finalizer.detach() is not None:
            _check(library().simulated_memory_free(self.address), "freeing memory", self.device)

    @property
    def array(self):
        assert self.kind == PINNED, "only pinned memory is the host's too"
        return np.asarray(self)

    @property
    def __array_interface__(self):
        assert self._finalizer.alive, "the memory was freed"
        return {"data": (self.address, False), "shape": (self.nbytes,), "typestr": "|u1", "version": 3}


class SimulatedDevice:
    """`gpubeton._gpu.cuda.Device`."""

    name = "Simulated GPU"
    architecture = "sm_90"

    def __init__(self, number=0):
        self.number = number
        self.streams = []
        self.idle = []
        self.caches_emptied = 0
        self._tensors = {}  # bytes of the device's tensors, by their address
        #: Milliseconds that timed work takes, by the first word of the stream's name.
        self._threads = threading.local()
        #: Further kernels by name: address and types of the parameters. These are for the simulator's own tests.
        self.kernels = {
            "add": (_address(library().run_add), [np.uint64, np.uint64, np.uint32, np.int32]),
            "stray": (_address(library().run_stray), [np.uint64, np.int32]),
        }

    # --- threads

    @contextmanager
    def active(self):
        before = library().simulated_use_device(self.number)
        self._threads.depth = getattr(self._threads, "depth", 0) + 1
        try:
            yield
        finally:
            self._threads.depth -= 1
            library().simulated_use_device(before)

    def _check_active(self):
        assert getattr(self._threads, "depth", 0) > 0, (
            f"cuda:{self.number} is not active in the thread {threading.current_thread().name!r}"
        )

    @contextmanager
    def using(self, stream):
        self._check_active()
        before = self.current_stream
        self._threads.stream = stream
        try:
            with _InOrder(stream):
                yield
        finally:
            self._threads.stream = before

    @property
    def current_stream(self):
        """The stream that torch works on in the calling thread, None for its default one."""
        return getattr(self._threads, "stream", None)

    # --- streams

    def make_stream(self, name=""):
        self._check_active()
        for stream in self.idle:
            if stream.name == name:
                self.idle.remove(stream)
                return stream
        self.streams.append(SimulatedStream(self, name))
        return self.streams[-1]

    def recycle(self, streams):
        # A user may let go of a tensor at any time: its memory goes back through the stream's queue.
        settled = [library().simulated_stream_is_settled(stream.handle) for stream in streams]
        assert all(settled), "a stream is given back while it works"
        assert not set(streams) & set(self.idle), "a stream is given back twice"
        self.idle += streams

    def empty_cache(self):
        self.caches_emptied += 1

    def stream(self, name):
        """The stream that was given this name."""
        (result,) = (stream for stream in self.streams if stream.name == name)
        return result

    def make_event(self):
        self._check_active()
        return SimulatedEvent(self)

    # --- memory

    def allocate(self, nbytes):
        self._check_active()
        return SimulatedMemory(self, nbytes, DEVICE)

    def memory_left(self):
        self._check_active()
        return library().simulated_memory_left(self.number)

    def allocate_pinned(self, nbytes):
        self._check_active()
        return SimulatedMemory(self, nbytes, PINNED)

    def copy(self, target, source, nbytes, stream):
        self._check_active()
        _check(library().simulated_copy(target, source, nbytes, stream.handle), f"copy of {nbytes} bytes", self)

    # --- kernels

    def launch(self, kernel, grid, block, arguments, stream):
        self._check_active()
        address, types = self.kernels.get(kernel) or _host_kernel(kernel)
        argument_types = [type(argument) for argument in arguments]
        assert argument_types == types, f"{kernel} takes {types}, not {argument_types}"
        values = [np.array(argument) for argument in arguments]
        status = library().simulated_launch(
            kernel.encode(),
            address,
            (ctypes.c_uint * 3)(*grid),
            (ctypes.c_uint * 3)(*block),
            (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values)),
            (ctypes.c_uint64 * len(values))(*(value.nbytes for value in values)),
            len(values),
            stream.handle,
        )
        _check(status, f"launch of {kernel} with grid {grid} and block {block}", self)

    # --- tensors

    def empty(self, shape, dtype, stream):
        self._check_active()
        kind = _dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        if nbytes == 0:
            return torch.empty(shape, dtype=kind)
        address = _allocate(self, nbytes, TENSOR)
        memory = (ctypes.c_ubyte * nbytes).from_address(address)
        # torch's allocator reuses the memory of a tensor only after the stream has done the work in its queue.
        weakref.finalize(memory, library().simulated_memory_free_in_order, address, stream.handle).atexit = False
        self._tensors[address] = nbytes
        weakref.finalize(memory, self._tensors.pop, address, None).atexit = False
        return torch.frombuffer(memory, dtype=kind).reshape(shape)

    def holds(self, batch):
        """What torch makes of a tensor is in the host's memory, and counts as that; views of it are the device's."""
        address = batch.data_ptr() if isinstance(batch, torch.Tensor) else 0
        return any(first <= address < first + nbytes for first, nbytes in list(self._tensors.items()))

    def view(self, address, shape, strides, dtype):
        self._check_active()
        kind = _dtype(dtype)
        if 0 in shape:
            return torch.empty(shape, dtype=kind).as_strided(shape, strides)
        extent = 1 + sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
        memory = (ctypes.c_ubyte * (extent * kind.itemsize)).from_address(address)
        return torch.frombuffer(memory, dtype=kind).as_strided(shape, strides)

    def send(self, tensor, stream):
        self._check_active()
        staging = SimulatedMemory(self, max(tensor.nbytes, 1), PINNED)
        sent = self.empty(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), stream)
        if tensor.nbytes:
            source = tensor.detach().contiguous()
            ctypes.memmove(staging.address, source.data_ptr(), tensor.nbytes)
            self.copy(sent.data_ptr(), staging.address, tensor.nbytes, stream)
            # Freed after the copy, in the stream's order.
            staging._finalizer.detach()
            _check(library().simulated_memory_free_in_order(staging.address, stream.handle), "send", self)
        return sent

    def fetch(self, tensor, stream):
        self._check_active()
        stream.synchronize()
        return tensor.clone()

    def hand_over(self, tensors, ready):
        """The consumer is the host: it sees the tensors as soon as the event is done."""
        self._check_active()
        ready.synchronize()


class _InOrder(TorchDispatchMode):
    """torch's operations begin when the stream has done its earlier work, as they do on a GPU."""

    def __init__(self, stream):
        super().__init__()
        self._stream = stream

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if not function.is_view:
            self._stream.synchronize()
        return function(*arguments, **(keywords or {}))


@cache
def _host_kernel(name):
    """A kernel, compiled for the host: its address and the types of its parameters."""
    kernels, function = kernels_of(name), function_of(name)
    return _address(getattr(kernels._library, f"run_{function}")), kernels.parameters(function)


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def _dtype(name):
    kind = getattr(torch, name)
    assert isinstance(kind, torch.dtype), name
    return kind


def _allocate(device, nbytes, kind):
    address = ctypes.c_uint64()
    status = library().simulated_memory_make(device.number, kind, nbytes, ctypes.byref(address))
    if status == _OUT_OF_MEMORY:
        left = library().simulated_memory_left(device.number)
        raise DeviceError(f"cuda:{device.number}: {nbytes} bytes were asked for, {left} are free.")
    _check(status, f"allocation of {nbytes} bytes", device)
    return address.value


def _check(status, what, device):
    if status != 0:
        raise DeviceError(f"cuda:{device.number}: {what}: {_STATUSES.get(status, 'cudaError')} ({status})")
