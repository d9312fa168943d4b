"""CudaStream and CudaEvent: a GPU's queues of work and marks in them, through `cupy.cuda`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gpubeton.gpu.cuda_errors import explained

if TYPE_CHECKING:
    import torch

    from gpubeton.gpu.device import Event, Stream

_SUCCESS = 0  # cudaSuccess
_NOT_READY = 600  # cudaErrorNotReady

#: Priorities; CUDA takes the nearest that the GPU has. Training runs at 0, the lowest.
_URGENT = -5
_NOT_URGENT = 0

# Destroying a stream while torch's allocator or nvJPEG still knows it would be fatal, so none is.
_streams: list[CudaStream] = []


class CudaEvent:
    """A mark in a stream's queue. Made by `CudaDevice.make_event`.

    Parameters
    ----------
    cuda : module
        ``cupy.cuda``.
    place : str
        Which GPU, for errors.
    """

    def __init__(self, cuda: Any, place: str) -> None:
        self._cuda = cuda
        self._place = place
        # Blocking: a thread that waits sleeps instead of looking again and again.
        self.own = cuda.Event(block=True, disable_timing=True)

    @property
    def is_done(self) -> bool:
        """Whether everything before the mark is done."""
        # cupy.cuda.Event.done calls an event that failed one that is not done yet.
        status = self._cuda.runtime.eventQuery(self.own.ptr)
        if status not in {_SUCCESS, _NOT_READY}:
            with explained(self._cuda, self._place, "asking whether an event is done"):
                raise self._cuda.runtime.CUDARuntimeError(status)
        return bool(status == _SUCCESS)

    def record(self, stream: Stream) -> None:
        """Put the mark behind everything that is in the stream's queue."""
        with explained(self._cuda, self._place, "recording an event"):
            self.own.record(cast("CudaStream", stream).own)

    def synchronize(self) -> None:
        """Let the calling thread sleep until everything before the mark is done."""
        with explained(self._cuda, self._place, "waiting for an event"):
            self.own.synchronize()


class CudaStream:
    """A queue of work, for as long as the process lives. Made by `CudaDevice.make_stream`.

    Parameters
    ----------
    cuda : module
        ``cupy.cuda``.
    number : int
        Of the GPU.
    is_urgent : bool
        Whether its kernels go before those of training.
    """

    def __init__(self, cuda: Any, number: int, is_urgent: bool) -> None:
        import torch

        self._cuda = cuda
        self._place = f"cuda:{number}"
        self.own = cuda.Stream(non_blocking=True, priority=_URGENT if is_urgent else _NOT_URGENT)
        external: Any = torch.cuda.ExternalStream  # which torch leaves without types
        self.torch: torch.cuda.Stream = external(self.handle, device=torch.device("cuda", number))
        self._end = CudaEvent(cuda, self._place)
        _streams.append(self)

    @property
    def handle(self) -> int:
        """The ``cudaStream_t``."""
        return int(self.own.ptr)

    def wait(self, event: Event) -> None:
        """Let what is put into the queue from now on begin after the event's mark."""
        with explained(self._cuda, self._place, "letting a stream wait for an event"):
            self.own.wait_event(cast("CudaEvent", event).own)

    def synchronize(self) -> None:
        """Let the calling thread sleep until the queue is empty."""
        # cudaStreamSynchronize would keep a processor busy meanwhile.
        self._end.record(self)
        self._end.synchronize()
