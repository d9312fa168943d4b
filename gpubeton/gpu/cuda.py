"""CudaDevice: a real GPU, through CuPy and torch. The only module that names CuPy.

CuPy gives CUDA's streams, events, memory and kernels. Torch gives the memory of batches, since the training loop frees
it. Decoded images are in memory of gpubeton's: nvJPEG may write earlier than the stream's order, into memory that torch
would have reused.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gpubeton.errors import DeviceError
from gpubeton.gpu.libraries import INSTALL, driver_version, relaxed_capture
from gpubeton.pipeline.pixel_type import pixel_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch
    from numpy.typing import NDArray

    from gpubeton.gpu.device import Event, Stream


# No driver, one that is too old or not ready, no GPU, or a driver and libraries that do not fit.
_CANNOT_START = {3, 34, 35, 46, 100, 101, 803, 804, 999}


@contextmanager
def explained(cuda: Any, place: str, doing: str) -> Iterator[None]:
    """Turn an error of CUDA into a DeviceError: where it appeared, and the likely cause."""
    try:
        yield
    except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) as error:
        if error.status in _CANNOT_START:
            newest = driver_version()
            driver = "no driver answers" if newest is None else f"the driver is for CUDA {newest[0]}.{newest[1]}"
            advice = f"CUDA does not start: {driver}. nvidia-smi has to show the GPU, and CuPy has to fit: {INSTALL}"
        else:
            advice = (
                "Kernels and copies report late: what failed may be earlier work, training's included. "
                "CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer show which"
            )
        raise DeviceError(f"{place}: {doing}: {error}. {advice}") from error


class CudaMemory:
    """Memory of a GPU, or page-locked memory of the host. Made by `CudaDevice`."""

    def __init__(self, address: int, nbytes: int, free: Callable[[int], object]) -> None:
        self.address = address
        self.nbytes = nbytes
        self._free = free
        self._finalizer = weakref.finalize(self, _free_quietly, free, address)
        # At the end of the process CUDA may be unloaded, and frees everything anyway.
        self._finalizer.atexit = False

    def free(self) -> None:
        """Free it now; may be called twice."""
        if self._finalizer.detach() is not None:
            self._free(self.address)


class CudaPinnedMemory(CudaMemory):
    """Page-locked memory of the host, at the same address for the GPU. Made by `CudaDevice.allocate_pinned`."""

    @property
    def array(self) -> NDArray[np.uint8]:
        """The memory, shape (nbytes,); it lives as long as this array."""
        return np.asarray(self)

    @property
    def __array_interface__(self) -> dict[str, object]:
        """For numpy."""
        return {"data": (self.address, False), "shape": (self.nbytes,), "typestr": "|u1", "version": 3}


class DescribedMemory:
    """Memory of a device that torch takes without a copy: ``torch.as_tensor(described)``; strides in elements."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "strides": tuple(dtype.itemsize * stride for stride in strides),
            "typestr": dtype.str,
            "version": 2,
        }


def _free_quietly(free: Callable[[int], object], address: int) -> None:
    """Free unreferenced memory; an error of CUDA appears again at the next call."""
    with suppress(RuntimeError):  # also torch's, in a forked child
        free(address)


_SUCCESS = 0  # cudaSuccess
_NOT_READY = 600  # cudaErrorNotReady

#: The highest priority; CUDA takes the nearest that the GPU has. Training runs at 0, the lowest.
_URGENT = -5

# Never destroyed: torch's allocator or nvJPEG may still use a stream.
_streams: list[CudaStream] = []


class CudaEvent:
    """A mark in a stream's queue. Made by `CudaDevice.make_event`."""

    def __init__(self, cuda: Any, place: str, *, is_timed: bool = False) -> None:
        self._cuda = cuda
        self._place = place
        # Blocking: a waiting thread sleeps and does not poll.
        self.own = cuda.Event(block=True, disable_timing=not is_timed)

    @property
    def is_done(self) -> bool:
        # cupy.cuda.Event.done returns False also after an error.
        runtime = self._cuda.runtime
        status = runtime.eventQuery(self.own.ptr)
        with explained(self._cuda, self._place, "asking whether an event is done"):
            try:
                # Forgets the error, too: where torch shares CuPy's copy of the runtime, it would find "not ready".
                runtime.check_status(status)
            except runtime.CUDARuntimeError:
                if status != _NOT_READY:
                    raise
        return bool(status == _SUCCESS)

    def record(self, stream: Stream) -> None:
        with explained(self._cuda, self._place, "recording an event"):
            self.own.record(cast("CudaStream", stream).own)

    def synchronize(self) -> None:
        with explained(self._cuda, self._place, "waiting for an event"):
            self.own.synchronize()

    def milliseconds_since(self, earlier: Event) -> float:
        with explained(self._cuda, self._place, "asking for the time between events"):
            return float(self._cuda.get_elapsed_time(cast("CudaEvent", earlier).own, self.own))


class CudaStream:
    """A queue of work, for as long as the process lives. Made by `CudaDevice.make_stream`."""

    def __init__(self, cuda: Any, number: int, name: str) -> None:
        import torch

        self.name = name
        self._cuda = cuda
        self._place = f"cuda:{number}"
        self.own = cuda.Stream(non_blocking=True, priority=_URGENT)
        external: Any = torch.cuda.ExternalStream  # without types in torch
        self.torch: torch.cuda.Stream = external(self.handle, device=torch.device("cuda", number))
        self._end = CudaEvent(cuda, self._place)
        _streams.append(self)

    @property
    def handle(self) -> int:
        return int(self.own.ptr)

    def wait(self, event: Event) -> None:
        with explained(self._cuda, self._place, "letting a stream wait for an event"):
            self.own.wait_event(cast("CudaEvent", event).own)

    def synchronize(self) -> None:
        # cudaStreamSynchronize would keep a core busy.
        self._end.record(self)
        self._end.synchronize()


_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation

_devices: dict[tuple[int, int], CudaDevice] = {}
_opening = threading.Lock()


def open_device(device: torch.device | str | int) -> CudaDevice:
    """Open a GPU by name or number, or return the object that was opened before."""
    import torch

    wanted = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if wanted.type != "cuda":
        raise DeviceError(f'{str(wanted)!r} is no GPU; expected "cuda", "cuda:0", ...')
    _check_torch(str(wanted))
    number = wanted.index if ":" in str(wanted) else torch.cuda.current_device()
    key = os.getpid(), number  # a forked child cannot use its parent's
    with _opening:
        if key not in _devices:
            _devices[key] = CudaDevice(number)
        return _devices[key]


class CudaDevice:
    """One GPU. Made by `open_device`."""

    def __init__(self, number: int) -> None:
        import torch

        self.number = number
        self._place = f"cuda:{number}"
        self._cuda = _import_cupy(self._place)
        self._check_number()
        self.name: str = torch.cuda.get_device_name(number)  # e.g. "NVIDIA H200"
        self.architecture = "sm_{}{}".format(*torch.cuda.get_device_capability(number))  # e.g. "sm_90"
        self._functions: dict[str, Any] = {}
        self._idle: dict[str, list[CudaStream]] = {}  # by name
        self._lock = threading.Lock()

    def _check_number(self) -> None:
        with explained(self._cuda, self._place, "counting the GPUs"):
            count = self._cuda.runtime.getDeviceCount()
        if not 0 <= self.number < count:
            raise DeviceError(
                f"{self._place}: there are {count} GPUs, cuda:0 to cuda:{count - 1}. nvidia-smi lists them, and "
                f"CUDA_VISIBLE_DEVICES ({os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}) hides some"
            )

    @contextmanager
    def active(self) -> Iterator[None]:
        import torch

        runtime = self._cuda.runtime
        with relaxed_capture(), torch.cuda.device(self.number):
            # Torch and CuPy each have a copy of CUDA's runtime. Both use the thread's context, but do not promise it.
            # Set the former device again only if needed: that would allocate a context on it.
            before = runtime.getDevice()
            if before != self.number:
                runtime.setDevice(self.number)
            try:
                yield
            finally:
                if before != self.number:
                    runtime.setDevice(before)

    def make_stream(self, name: str = "") -> CudaStream:
        # Torch keeps memory for each stream, and a process has few hardware queues: streams are used again, for the
        # same work.
        with self._lock, self._explained("making a stream"):
            idle = self._idle.get(name)
            return idle.pop() if idle else CudaStream(self._cuda, self.number, name)

    def recycle(self, streams: Sequence[Stream]) -> None:
        with self._lock:
            for stream in cast("Sequence[CudaStream]", streams):
                self._idle.setdefault(stream.name, []).append(stream)

    def empty_cache(self) -> None:
        import torch

        with suppress(RuntimeError):  # an allocator of the user's, e.g. RMM, has no cache that torch knows
            torch.cuda.empty_cache()

    def make_event(self, *, is_timed: bool = False) -> CudaEvent:
        with self._explained("making an event"):
            return CudaEvent(self._cuda, self._place, is_timed=is_timed)

    def allocate(self, nbytes: int) -> CudaMemory:
        import torch

        runtime = self._cuda.runtime
        try:
            address = runtime.malloc(max(nbytes, 1))
        except runtime.CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY:
                raise self._error(f"allocating {nbytes} bytes", error) from error
            self.empty_cache()
            try:
                address = runtime.malloc(max(nbytes, 1))
            except runtime.CUDARuntimeError as again:
                free, total = runtime.memGetInfo()
                raise DeviceError(
                    f"{self._place} ({self.name}): {nbytes} bytes were asked for, {free} of {total} are free, and "
                    f"torch holds {torch.cuda.memory_reserved(self.number)}. Take smaller batches or fewer of them "
                    "ahead (batches_ahead), keep no images there (GpuOptions(resident=False)), or end what else uses "
                    "the GPU"
                ) from again
        return CudaMemory(address, nbytes, partial(self._free, runtime.free))

    def memory_left(self) -> int:
        """Bytes of memory that are free on the whole device."""
        with self._explained("asking for free memory"):
            return int(self._cuda.runtime.memGetInfo()[0])

    def allocate_pinned(self, nbytes: int) -> CudaPinnedMemory:
        runtime = self._cuda.runtime
        try:
            address = runtime.hostAlloc(max(nbytes, 1), runtime.hostAllocPortable)
        except runtime.CUDARuntimeError as error:
            raise DeviceError(
                f"{self._place}: {nbytes} bytes of page-locked memory were asked for: {error}. The host's memory, or "
                "what this process may lock of it (ulimit -l; docker run --ulimit memlock=-1), is too small"
            ) from error
        return CudaPinnedMemory(address, nbytes, partial(self._free, runtime.freeHost))

    def _free(self, function: Callable[[int], object], address: int) -> None:
        with self._explained("freeing memory"), self.active():
            function(address)

    def copy(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        runtime = self._cuda.runtime
        if nbytes:
            with self._explained(f"copying {nbytes} bytes"):
                runtime.memcpyAsync(target, source, nbytes, runtime.memcpyDefault, stream.handle)

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Any],
        stream: Stream,
    ) -> None:
        if min(*grid, *block) < 1:  # CuPy would make 1 of it
            raise DeviceError(f"{self._place}: launching {kernel}: a grid of {grid} blocks of {block} threads is empty")
        function = self._functions.get(kernel) or self._load(kernel)
        with self._explained(f"launching {kernel} with grid {grid} and block {block}"):
            function(grid, block, tuple(arguments), stream=cast("CudaStream", stream).own)

    def _load(self, kernel: str) -> Any:
        from gpubeton.gpu.gpu_kernels import function_of, load_machine_code

        with self._lock:
            if kernel not in self._functions:
                cubin = load_machine_code(kernel, self.architecture)
                with self._explained(f"loading {kernel}, compiled for {self.architecture}"):
                    module = self._cuda.function.Module()
                    module.load(cubin)
                    self._functions[kernel] = module.get_function(function_of(kernel))  # which keeps the module
            return self._functions[kernel]

    def empty(self, shape: tuple[int, ...], dtype: str, stream: Stream) -> Any:
        import torch

        try:
            with self.using(stream):
                return torch.empty(shape, dtype=getattr(torch, dtype), device=torch.device("cuda", self.number))
        except torch.cuda.OutOfMemoryError as error:
            raise self._error(f"a {dtype} tensor of shape {shape}", error) from error

    def using(self, stream: Stream) -> AbstractContextManager[object]:
        import torch

        return torch.cuda.stream(cast("CudaStream", stream).torch)

    def fetch(self, tensor: Any, stream: Stream) -> Any:
        stream.synchronize()  # asleep; torch would keep a core busy
        with self.using(stream):
            return tensor.to("cpu")

    def view(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Any:
        import torch

        device = torch.device("cuda", self.number)
        kind = getattr(torch, dtype)
        if 0 in shape:
            return torch.empty(shape, dtype=kind, device=device)
        described = DescribedMemory(address, shape, strides, pixel_type(dtype).exchange_dtype)
        return torch.as_tensor(described, device=device).view(kind)

    def hand_over(self, tensors: Sequence[Any], ready: Event) -> None:
        import torch

        current = torch.cuda.current_stream(self.number)
        with self._explained("handing tensors over"):
            self._cuda.runtime.streamWaitEvent(current.cuda_stream, cast("CudaEvent", ready).own.ptr)
        for tensor in tensors:
            if tensor.is_cuda:  # record_stream raises for CPU tensors
                tensor.record_stream(current)

    def _explained(self, doing: str) -> AbstractContextManager[None]:
        return explained(self._cuda, self._place, doing)

    def _error(self, doing: str, error: Exception) -> DeviceError:
        return DeviceError(f"{self._place}: {doing}: {error}")


def _check_torch(place: str) -> None:
    """Raise DeviceError if torch cannot use a GPU, or not in this process."""
    import torch

    if torch.version.cuda is None:
        raise DeviceError(
            f"{place}: this torch ({torch.__version__}) was built without CUDA. Install one that has it: "
            "https://pytorch.org/get-started/locally"
        )
    if not torch.cuda.is_available():
        raise DeviceError(
            f"{place}: torch finds no GPU. nvidia-smi has to list one; torch was built for CUDA {torch.version.cuda}, "
            "which the driver has to know; in a container, start it with --gpus all"
        )
    try:
        torch.cuda.current_device()
    except RuntimeError as error:
        raise DeviceError(f"{place}: torch cannot start CUDA in this process: {error}") from error


def _import_cupy(place: str) -> Any:
    """Return ``cupy.cuda``."""
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(f"{place}: CuPy is missing ({error}). {INSTALL}") from error
    return cupy.cuda
