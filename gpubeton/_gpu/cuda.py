"""Device: a real GPU, through CuPy and torch. The only module that imports CuPy, and calls CUDA.

Tests have another device in its place, made of threads and the host's memory. CuPy gives CUDA's streams, events, memory
and kernels. Torch gives the memory of batches, since the training loop frees it. Decoded images are in memory of
gpubeton's: nvJPEG may write earlier than the stream's order, into memory that torch would have reused. Addresses are
plain integers, since nvJPEG, the kernels and torch have different types for them.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import contextmanager, suppress
from ctypes import byref, c_int
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._gpu.libraries import RELAXED, capture_mode_exchange, explain_no_cuda, install_cuda
from gpubeton.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch
    from numpy.typing import NDArray


# No driver, one that is too old or not ready, no GPU, or a driver that does not fit the libraries or the machine code.
_CANNOT_START = {3, 34, 35, 46, 100, 101, 200, 209, 218, 222, 802, 803, 804, 999}
_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
_NOT_READY = 600  # cudaErrorNotReady

#: The highest priority; CUDA takes the nearest that the GPU has. Training runs at 0, the lowest.
_URGENT = -5


class Memory:
    """Memory of a GPU, or page-locked memory of the host; freed with its last reference, or by `free`."""

    def __init__(self, address: int, nbytes: int, free: Callable[[int], object]) -> None:
        self.address = address  # a multiple of 256
        self.nbytes = nbytes
        self._free = free
        self._finalizer = weakref.finalize(self, _free_quietly, free, address)
        # At the end of the process CUDA may be unloaded, and frees everything anyway.
        self._finalizer.atexit = False

    def free(self) -> None:
        """Free it now; it may not be in use. May be called twice."""
        if self._finalizer.detach() is not None:
            self._free(self.address)


class PinnedMemory(Memory):
    """Page-locked memory of the host, which the device reads and writes at the same address."""

    @property
    def array(self) -> NDArray[np.uint8]:
        """The memory, shape (nbytes,); it lives as long as this array."""
        return np.asarray(self)

    @property
    def __array_interface__(self) -> dict[str, object]:
        """For numpy."""
        return {"data": (self.address, False), "shape": (self.nbytes,), "typestr": "|u1", "version": 3}


def _free_quietly(free: Callable[[int], object], address: int) -> None:
    """Free unreferenced memory; an error of CUDA appears again at the next call."""
    with suppress(RuntimeError):  # also torch's, in a forked child
        free(address)


class Event:
    """A mark in a stream's queue. Made by `Device.make_event`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        # Blocking: a waiting thread sleeps and does not poll.
        self.cupy = device.cuda.Event(block=True, disable_timing=True)

    @property
    def is_done(self) -> bool:
        """Whether everything before the mark is done (also if it was never recorded)."""
        # cupy.cuda.Event.done returns False also after an error.
        runtime = self._device.cuda.runtime
        status = runtime.eventQuery(self.cupy.ptr)
        with self._device.explained("asking whether an event is done"):
            try:
                # Forgets the error, too: where torch shares CuPy's copy of the runtime, it would find "not ready".
                runtime.check_status(status)
            except runtime.CUDARuntimeError:
                if status != _NOT_READY:
                    raise
        return not status

    def record(self, stream: Stream) -> None:
        """Put the mark at the end of the stream's queue; replaces an earlier mark."""
        with self._device.explained("recording an event"):
            self.cupy.record(stream.cupy)

    def synchronize(self) -> None:
        """Let the calling thread sleep until everything before the mark is done; raises an error of that work."""
        with self._device.explained("waiting for an event"):
            self.cupy.synchronize()


class Stream:
    """A queue of work, done in order, independent of other streams. Made by `Device.make_stream`."""

    def __init__(self, device: Device, name: str) -> None:
        import torch

        self.name = name  # for messages and tests
        self._device = device
        self.cupy = device.cuda.Stream(non_blocking=True, priority=_URGENT)
        self.handle = int(self.cupy.ptr)  # the ``cudaStream_t``, as nvJPEG wants it
        external: Any = torch.cuda.ExternalStream  # without types in torch
        self.torch: torch.cuda.Stream = external(self.handle, device=torch.device("cuda", device.number))
        self._end = Event(device)
        _streams.append(self)

    def wait(self, event: Event) -> None:
        """Let later work of the queue begin after the event's mark; returns at once."""
        with self._device.explained("letting a stream wait for an event"):
            self.cupy.wait_event(event.cupy)

    def synchronize(self) -> None:
        """Let the calling thread sleep until the queue is empty; raises an error of that work."""
        # cudaStreamSynchronize would keep a core busy.
        self._end.record(self)
        self._end.synchronize()


# Never destroyed: torch's allocator or nvJPEG may still use a stream.
_streams: list[Stream] = []
_devices: dict[tuple[int, int], Device] = {}
_opening = threading.Lock()


def open_device(device: torch.device | str | int) -> Device:
    """Open a GPU by name or number, or return the object that was opened before."""
    import torch

    named = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if named.type != "cuda":
        raise DeviceError(f'{str(named)!r} is no GPU; expected "cuda", "cuda:0", ...')
    _check_torch(str(named))
    number = named.index if ":" in str(named) else torch.cuda.current_device()
    key = os.getpid(), number  # a forked child cannot use its parent's
    with _opening:
        if key not in _devices:
            _devices[key] = Device(number)
        return _devices[key]


class Device:
    """One GPU. Made by `open_device`."""

    def __init__(self, number: int) -> None:
        import torch

        self.number = number  # as in ``cuda:0``
        self._name = f"cuda:{number}"
        try:
            import cupy
        except ImportError as error:
            raise DeviceError(f"{self._name}: CuPy is missing ({error}). {install_cuda()}") from error
        self._cupy: Any = cupy
        self.cuda: Any = cupy.cuda
        with self.explained("counting the GPUs"):
            count = self.cuda.runtime.getDeviceCount()
        if not 0 <= number < count:
            raise DeviceError(
                f"{self._name}: there are {count} GPUs, cuda:0 to cuda:{count - 1}. nvidia-smi lists them, and "
                f"CUDA_VISIBLE_DEVICES ({os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}) hides some"
            )
        self.name: str = torch.cuda.get_device_name(number)  # e.g. "NVIDIA H200"
        self.architecture = "sm_{}{}".format(*torch.cuda.get_device_capability(number))  # e.g. "sm_90"
        self._functions: dict[str, Any] = {}
        self._idle: dict[str, list[Stream]] = {}  # by name
        self._lock = threading.Lock()

    @contextmanager
    def explained(self, doing: str) -> Iterator[None]:
        """Turn an error of CUDA into a DeviceError: where it appeared, and the likely cause."""
        try:
            yield
        except (self.cuda.runtime.CUDARuntimeError, self.cuda.driver.CUDADriverError) as error:
            if error.status in _CANNOT_START:
                advice = f"CUDA cannot be used: {explain_no_cuda()}"
            else:
                advice = (
                    "Kernels and copies report late: what failed may be earlier work, training's included. "
                    "CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer show which"
                )
            raise DeviceError(f"{self._name}: {doing}: {error}. {advice}") from error

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make it the calling thread's current device for a while; needed for all methods below."""
        import torch

        runtime, exchange, mode = self.cuda.runtime, capture_mode_exchange(), c_int(RELAXED)
        # Otherwise both our calls and the graph that another thread captures would fail. It fails only before CUDA
        # begins or after its end: no graph is captured then.
        exchange(byref(mode))
        try:
            with torch.cuda.device(self.number):
                # Torch and CuPy each have a copy of CUDA's runtime. Both use the thread's context, but do not promise
                # it. Set the former device again only if needed: that would allocate a context on it.
                before = runtime.getDevice()
                if before != self.number:
                    runtime.setDevice(self.number)
                try:
                    yield
                finally:
                    if before != self.number:
                        runtime.setDevice(before)
        finally:
            exchange(byref(mode))

    def make_stream(self, name: str = "") -> Stream:
        """Take an idle stream, or make one; it does not wait for the default stream, and its work is urgent."""
        # Torch keeps memory for each stream, and a process has few hardware queues: streams are used again, for the
        # same work.
        with self._lock, self.explained("making a stream"):
            idle = self._idle.get(name)
            return idle.pop() if idle else Stream(self, name)

    def recycle(self, streams: Sequence[Stream]) -> None:
        """Take back streams that are empty, for `make_stream`."""
        with self._lock:
            for stream in streams:
                self._idle.setdefault(stream.name, []).append(stream)

    def empty_cache(self) -> None:
        """Free the memory that torch keeps for reuse."""
        import torch

        with suppress(RuntimeError):  # an allocator of the user's, e.g. RMM, has no cache that torch knows
            torch.cuda.empty_cache()

    def make_event(self) -> Event:
        """Make an event."""
        with self.explained("making an event"):
            return Event(self)

    def allocate(self, nbytes: int) -> Memory:
        """Allocate memory of the device, outside of torch's allocator; raises DeviceError if there is not enough."""
        import torch

        runtime = self.cuda.runtime
        with self.explained(f"allocating {nbytes} bytes"):
            try:
                address = runtime.malloc(max(nbytes, 1))
            except runtime.CUDARuntimeError as error:
                if error.status != _OUT_OF_MEMORY:
                    raise
                self.empty_cache()
                try:
                    address = runtime.malloc(max(nbytes, 1))
                except runtime.CUDARuntimeError as again:
                    free, total = runtime.memGetInfo()
                    raise DeviceError(
                        f"{self._name} ({self.name}): {nbytes} bytes were asked for, {free} of {total} are free, and "
                        f"torch holds {torch.cuda.memory_reserved(self.number)}. Take smaller batches or fewer of them "
                        "ahead (batches_ahead), keep no images there (GpuOptions(resident=False)), or end what else "
                        "uses the GPU"
                    ) from again
        return Memory(address, nbytes, partial(self._free, runtime.free))

    def memory_left(self) -> int:
        """Bytes of memory that are free on the whole device."""
        with self.explained("asking for free memory"):
            return int(self.cuda.runtime.memGetInfo()[0])

    def allocate_pinned(self, nbytes: int) -> PinnedMemory:
        """Allocate page-locked memory of the host; raises DeviceError if there is not enough."""
        runtime = self.cuda.runtime
        try:
            address = runtime.hostAlloc(max(nbytes, 1), runtime.hostAllocPortable)
        except runtime.CUDARuntimeError as error:
            raise DeviceError(
                f"{self._name}: {nbytes} bytes of page-locked memory were asked for: {error}. The host's memory, or "
                "what this process may lock of it (ulimit -l; docker run --ulimit memlock=-1), is too small"
            ) from error
        return PinnedMemory(address, nbytes, partial(self._free, runtime.freeHost))

    def _free(self, function: Callable[[int], object], address: int) -> None:
        with self.explained("freeing memory"), self.active():
            function(address)

    def copy(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        """Copy bytes between any two of device and pinned memory, in the stream's order; returns at once."""
        runtime = self.cuda.runtime
        if nbytes:
            with self.explained(f"copying {nbytes} bytes"):
                runtime.memcpyAsync(target, source, nbytes, runtime.memcpyDefault, stream.handle)

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Any],
        stream: Stream,
    ) -> None:
        """Run a kernel of `kernels/` in the stream's order; returns at once."""
        if min(*grid, *block) < 1:  # CuPy would make 1 of it
            raise DeviceError(f"{self._name}: launching {kernel}: a grid of {grid} blocks of {block} threads is empty")
        function = self._functions.get(kernel) or self._load(kernel)
        with self.explained(f"launching {kernel} with grid {grid} and block {block}"):
            function(grid, block, tuple(arguments), stream=stream.cupy)

    def _load(self, kernel: str) -> Any:
        from gpubeton._gpu.kernels import function_of, load_machine_code

        with self._lock:
            if kernel not in self._functions:
                code = load_machine_code(self._cupy, kernel, self.architecture)
                with self.explained(f"loading {kernel}, compiled for {self.architecture}"):
                    module = self.cuda.function.Module()
                    module.load(code)
                    self._functions[kernel] = module.get_function(function_of(kernel))  # which keeps the module
            return self._functions[kernel]

    def empty(self, shape: tuple[int, ...], dtype: str, stream: Stream) -> Any:
        """Make a tensor on the device from torch's allocator, for use on this stream; C-contiguous, not initialized."""
        import torch

        try:
            with self.using(stream):
                return torch.empty(shape, dtype=getattr(torch, dtype), device=torch.device("cuda", self.number))
        except torch.cuda.OutOfMemoryError as error:
            raise DeviceError(f"{self._name}: a {dtype} tensor of shape {shape}: {error}") from error

    def holds(self, batch: Any) -> bool:
        """Return whether a batch is a tensor on this device."""
        return bool(getattr(batch, "is_cuda", False) and batch.device.index == self.number)

    @contextmanager
    def using(self, stream: Stream) -> Iterator[None]:
        """Let torch work on this stream in the calling thread for a while."""
        import torch

        before = torch.cuda.current_stream(self.number)  # torch.cuda.stream also asks for other devices
        torch.cuda.set_stream(stream.torch)
        try:
            yield
        finally:
            torch.cuda.set_stream(before)

    def fetch(self, tensor: Any, stream: Stream) -> Any:
        """Copy a tensor of the device to the host, into new memory; waits for the stream."""
        stream.synchronize()  # asleep; torch would keep a core busy
        with self.using(stream):
            return tensor.to("cpu")

    def hand_over(self, tensors: Sequence[Any], ready: Event) -> None:
        """Let the thread's current torch stream wait for the event, and record that it uses the tensors."""
        import torch

        current = torch.cuda.current_stream(self.number)
        with self.explained("handing tensors over"):
            self.cuda.runtime.streamWaitEvent(current.cuda_stream, ready.cupy.ptr)
        for tensor in tensors:
            if tensor.is_cuda:  # record_stream raises for CPU tensors
                tensor.record_stream(current)


def _check_torch(device: str) -> None:
    """Raise DeviceError if torch cannot use a GPU, or not in this process."""
    import torch

    if torch.version.cuda is None:
        raise DeviceError(
            f"{device}: this torch ({torch.__version__}) was built without CUDA. Install one that has it: "
            "https://pytorch.org/get-started/locally"
        )
    try:
        torch.cuda.current_device()
    except RuntimeError as error:
        raise DeviceError(
            f"{device}: torch cannot start CUDA in this process: {error}. nvidia-smi has to list a GPU; torch was "
            f"built for CUDA {torch.version.cuda}, which the driver has to know; a container needs --gpus all; after "
            "error 802, on machines with NVSwitch, start nvidia-fabricmanager"
        ) from error
