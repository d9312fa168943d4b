"""GpuResources: backends, memory and streams of an epoch, kept for the next; CpuServices: the CPU's part."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton.gpu.batch_memory import Slot
    from gpubeton.gpu.decode_backend import DecodeBackend
    from gpubeton.gpu.device import Device, Stream
    from gpubeton.gpu.retry import PerImageRetry
    from gpubeton.plan.image_executor import ImageExecutor
    from gpubeton.plan.lanes import Lane
    from gpubeton.plan.program import ImageProgram


@dataclass(frozen=True)
class CpuServices:
    """Functions of the CPU executor that the GPU executor calls."""

    # survey(address, size, out): read the markers of JPEGs
    survey: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], None]
    # pack_regions(address, size, target): copy bytes to addresses
    pack_regions: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], None]
    # pack_crops(address, width, draws, target, pitch): copy crops of raw-stored images to addresses
    pack_crops: Callable[[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], None]
    # start_executor(programs): start the workers; called when the first image needs them
    start_executor: Callable[[Sequence[ImageProgram]], ImageExecutor]
    num_workers: int


class EpochStreams:
    """The streams of one epoch."""

    def __init__(self, device: Device) -> None:
        self.canary: Stream = device.make_stream("canary")  # tables and canaries only: the host waits for it
        self.send: Stream = device.make_stream("send")  # pixels to the device
        self.augment: Stream = device.make_stream("augment")  # the kernels, batch after batch
        self.tail: Stream = device.make_stream("tail")  # operations on finished batches, and torch's memory for them
        self.repair: Stream = device.make_stream("repair")  # images that are made one by one

    def synchronize(self) -> None:
        """Wait until all are empty."""
        for stream in (self.canary, self.send, self.augment, self.tail, self.repair):
            stream.synchronize()  # wait point: each stream idle


@dataclass(eq=False)
class GpuResources:
    """Backends, memory and streams for one epoch at a time; slow to make."""

    device: Device
    backends: Mapping[Lane, DecodeBackend]
    slots: list[Slot]  # one for each batch under way
    streams: EpochStreams
    retry: PerImageRetry
    is_deterministic: bool  # whether the lane of an image depends on the image alone
    nonce: int = 0  # of the last canaries
    # stored images that their lane could not decode, by field and sample, and the lane that can
    fallbacks: dict[tuple[str, int], Lane] = field(default_factory=dict)

    def next_nonce(self) -> int:
        """Return a number that no recent batch has had."""
        self.nonce = (self.nonce + 1) & 0xFFFFFFFF
        return self.nonce

    def settle(self) -> None:
        """Wait until nothing is under way."""
        for backend in self.backends.values():
            backend.settle()  # wait point: backends idle
        self.streams.synchronize()  # wait point: streams idle

    def close(self) -> None:
        """Free everything, when nothing is under way any more."""
        with self.device.active():
            self.settle()  # wait point: resources closing
            for backend in self.backends.values():
                backend.close()
            for slot in self.slots:
                slot.free()
            self.retry.free()
