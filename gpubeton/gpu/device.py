"""Device: everything the GPU executor asks of CUDA, as one small interface.

`gpubeton.gpu.cuda.CudaDevice` is the real one, and the only place that names cupy. Tests drive the same executor with a
device made of threads and host memory, which is why nothing above this file calls CUDA by itself.

Addresses are plain integers: nvJPEG, the kernels and torch each have types of their own for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray


class Event(Protocol):
    """A mark in a stream's queue; without timing."""

    @property
    def is_done(self) -> bool:
        """Whether everything before the mark is done (also if it was never recorded)."""
        ...

    def record(self, stream: Stream) -> None:
        """Put the mark behind everything that is in the stream's queue; an earlier mark of this event is forgotten."""
        ...

    def synchronize(self) -> None:
        """Let the calling thread sleep until everything before the mark is done; raises what went wrong there."""
        ...


class Stream(Protocol):
    """A queue of work, done in order, independent of other streams. Lives as long as the process."""

    @property
    def name(self) -> str:
        """Its name, for messages and tests."""
        ...

    @property
    def handle(self) -> int:
        """The ``cudaStream_t``, as nvJPEG wants it."""
        ...

    def wait(self, event: Event) -> None:
        """Let what is put into the queue from now on begin after the event's mark; returns at once."""
        ...

    def synchronize(self) -> None:
        """Let the calling thread sleep until the queue is empty; raises what went wrong there."""
        ...


class Memory(Protocol):
    """Memory of the device, or page-locked memory of the host; freed when nobody refers to it, or by `free`."""

    @property
    def address(self) -> int:
        """First byte; a multiple of 256."""
        ...

    @property
    def nbytes(self) -> int:
        """Its size."""
        ...

    def free(self) -> None:
        """Free it now. Nobody may use it any more; may be called twice."""
        ...


class PinnedMemory(Memory, Protocol):
    """Page-locked memory of the host, which the device reads and writes at the same address."""

    @property
    def array(self) -> NDArray[np.uint8]:
        """The memory, shape (nbytes,)."""
        ...


class Device(Protocol):
    """One GPU."""

    @property
    def number(self) -> int:
        """CUDA's number of it, as in ``cuda:0``."""
        ...

    @property
    def name(self) -> str:
        """What it is, e.g. "NVIDIA H200"."""
        ...

    @property
    def architecture(self) -> str:
        """What kernels are compiled for, e.g. "sm_90"."""
        ...

    def active(self) -> AbstractContextManager[object]:
        """Make it the calling thread's current device for a while; whoever calls anything below does so inside."""
        ...

    def make_stream(self, name: str = "", *, is_urgent: bool = True) -> Stream:
        """Make a stream that does not wait for the default stream; one that is not urgent has a lower priority."""
        ...

    def make_event(self) -> Event:
        """Make an event."""
        ...

    def allocate(self, nbytes: int) -> Memory:
        """Allocate memory of the device, outside of torch's allocator; raises DeviceError if there is not enough."""
        ...

    def allocate_pinned(self, nbytes: int) -> PinnedMemory:
        """Allocate page-locked memory of the host; raises DeviceError if there is not enough."""
        ...

    def copy(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        """Copy bytes between any two of device and pinned memory, in the stream's order; returns at once."""
        ...

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Any],
        stream: Stream,
    ) -> None:
        """Run a kernel of `kernels/` in the stream's order; returns at once.

        Parameters
        ----------
        kernel : str
            Its name, which is also its file's.
        grid, block : tuple of int
            Blocks, and threads of a block, along x, y and z.
        arguments : sequence of numpy scalars
            In the order of the kernel's parameters and of exactly their types; pointers as ``np.uint64``. Copied.
        stream : Stream
            Where.
        """
        ...

    def empty(self, shape: tuple[int, ...], dtype: str, stream: Stream) -> Any:
        """Make a tensor on the device from torch's allocator, for use on this stream; C-contiguous, not initialised."""
        ...

    def using(self, stream: Stream) -> AbstractContextManager[object]:
        """Let torch work on this stream in the calling thread for a while."""
        ...

    def fetch(self, tensor: Any, stream: Stream) -> Any:
        """Copy a tensor of the device to the host, into memory of its own; waits for the stream."""
        ...

    def view(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Any:
        """Give a tensor over memory of the device that stays its owner's; strides in elements."""
        ...

    def hand_over(self, tensors: Sequence[Any], ready: Event) -> None:
        """Let the calling thread's current torch stream wait for the event, and torch know that it uses the tensors."""
        ...
