"""Device: the interface of the GPU executor to CUDA.

`gpubeton.gpu.cuda.CudaDevice` implements it; tests use a device made of threads and host memory, so no other module
calls CUDA. Addresses are plain integers, since nvJPEG, the kernels and torch have different types for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray


class Event(Protocol):
    """A mark in a stream's queue."""

    @property
    def is_done(self) -> bool:
        """Whether everything before the mark is done (also if it was never recorded)."""

    def record(self, stream: Stream) -> None:
        """Put the mark at the end of the stream's queue; replaces an earlier mark."""

    def synchronize(self) -> None:
        """Let the calling thread sleep until everything before the mark is done; raises an error of that work."""

    def milliseconds_since(self, earlier: Event) -> float:
        """Time from another mark to this one; both are timed and done."""
        ...


class Stream(Protocol):
    """A queue of work, done in order, independent of other streams. Lives as long as the process."""

    @property
    def name(self) -> str:
        """Its name, for messages and tests."""

    @property
    def handle(self) -> int:
        """The ``cudaStream_t``, as nvJPEG wants it."""

    def wait(self, event: Event) -> None:
        """Let later work of the queue begin after the event's mark; returns at once."""

    def synchronize(self) -> None:
        """Let the calling thread sleep until the queue is empty; raises an error of that work."""


class Memory(Protocol):
    """Memory of the device, or page-locked memory of the host; freed with its last reference, or by `free`."""

    @property
    def address(self) -> int:
        """First byte; a multiple of 256."""

    @property
    def nbytes(self) -> int:
        """Its size."""

    def free(self) -> None:
        """Free it now; it may not be in use. May be called twice."""


class PinnedMemory(Memory, Protocol):
    """Page-locked memory of the host, which the device reads and writes at the same address."""

    @property
    def array(self) -> NDArray[np.uint8]:
        """The memory, shape (nbytes,)."""


class Device(Protocol):
    """One GPU."""

    @property
    def number(self) -> int:
        """CUDA's number of it, as in ``cuda:0``."""

    @property
    def name(self) -> str:
        """E.g. "NVIDIA H200"."""

    @property
    def architecture(self) -> str:
        """The architecture of its kernels, e.g. "sm_90"."""

    def active(self) -> AbstractContextManager[object]:
        """Make it the calling thread's current device for a while; needed for all methods below."""

    def make_stream(self, name: str = "") -> Stream:
        """Take an idle stream, or make one; it does not wait for the default stream, and its work is urgent."""

    def recycle(self, streams: Sequence[Stream]) -> None:
        """Take back streams that are empty, for `make_stream`."""

    def empty_cache(self) -> None:
        """Free the memory that torch keeps for reuse."""

    def make_event(self, *, is_timed: bool = False) -> Event:
        """Make an event, which takes the time if wanted."""

    def allocate(self, nbytes: int) -> Memory:
        """Allocate memory of the device, outside of torch's allocator; raises DeviceError if there is not enough."""

    def allocate_pinned(self, nbytes: int) -> PinnedMemory:
        """Allocate page-locked memory of the host; raises DeviceError if there is not enough."""

    def memory_left(self) -> int:
        """Bytes of memory that are free on the whole device."""
        ...

    def copy(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        """Copy bytes between any two of device and pinned memory, in the stream's order; returns at once."""

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Any],
        stream: Stream,
    ) -> None:
        """Run a kernel of `kernels/` in the stream's order; returns at once."""

    def empty(self, shape: tuple[int, ...], dtype: str, stream: Stream) -> Any:
        """Make a tensor on the device from torch's allocator, for use on this stream; C-contiguous, not initialised."""

    def using(self, stream: Stream) -> AbstractContextManager[object]:
        """Let torch work on this stream in the calling thread for a while."""

    def fetch(self, tensor: Any, stream: Stream) -> Any:
        """Copy a tensor of the device to the host, into new memory; waits for the stream."""

    def view(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Any:
        """Return a tensor over memory that it does not own; strides in elements."""

    def hand_over(self, tensors: Sequence[Any], ready: Event) -> None:
        """Let the thread's current torch stream wait for the event, and record that it uses the tensors."""
