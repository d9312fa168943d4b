"""What an epoch uses on the GPU, kept for the next epoch; and what the CPU does for it."""

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
    """What the CPU does for the GPU executor.

    Parameters
    ----------
    survey : callable
        ``survey(address, size, out)`` reads the markers of JPEGs, see `gpubeton.plan.lanes`.
    pack_regions : callable
        ``pack_regions(address, size, target)`` copies bytes to addresses.
    pack_crops : callable
        ``pack_crops(address, width, draws, target, pitch)`` copies the crops of raw-stored images to addresses.
    make_crew : callable
        ``make_crew(programs)`` starts the workers; called when the first image needs them, if ever.
    num_workers : int
        How many workers that are.
    """

    survey: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], None]
    pack_regions: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], None]
    pack_crops: Callable[[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], None]
    start_executor: Callable[[Sequence[ImageProgram]], ImageExecutor]
    num_workers: int


class EpochStreams:
    """The queues of one epoch.

    Parameters
    ----------
    device : Device
        Where.

    Attributes
    ----------
    plant : Stream
        Descriptions and sentinels: the host waits for it before it calls the JPEG engines, so nothing else is in it.
    send : Stream
        Pixels on their way to the device.
    augment : Stream
        The kernels, batch after batch.
    tail : Stream
        What follows on finished batches, and torch's memory for them.
    repair : Stream
        Images that are made one by one.
    """

    def __init__(self, device: Device) -> None:
        self.canary: Stream = device.make_stream("canary")
        self.send: Stream = device.make_stream("send")
        self.augment: Stream = device.make_stream("augment")
        self.tail: Stream = device.make_stream("tail")
        self.repair: Stream = device.make_stream("repair")

    def synchronize(self) -> None:
        """Wait until all are empty."""
        for stream in (self.canary, self.send, self.augment, self.tail, self.repair):
            stream.synchronize()  # wait point: each stream idle


@dataclass(eq=False)
class GpuResources:
    """What one epoch at a time uses on the GPU.

    Parameters
    ----------
    device : Device
        The GPU.
    lanes : mapping of Lane to DecodeLane
        The ways to decode JPEGs that it has.
    slots : list of Slot
        Memory for the batches under way.
    streams : Streams
        Its queues.
    single : Single
        Makes images one by one.
    is_deterministic : bool
        Whether the lane of an image depends on nothing else.

    Attributes
    ----------
    nonce : int
        Number of the sentinels that were made.
    left_to : dict of (str, int) to Lane
        Stored images that their own lane could not decode, by field and sample, and who could: the others are not
        tried again.
    """

    device: Device
    lanes: Mapping[Lane, DecodeBackend]
    slots: list[Slot]
    streams: EpochStreams
    single: PerImageRetry
    is_deterministic: bool
    nonce: int = 0
    fallbacks: dict[tuple[str, int], Lane] = field(default_factory=dict)

    def next_nonce(self) -> int:
        """Give a number that no batch has had for a long time."""
        self.nonce = (self.nonce + 1) & 0xFFFFFFFF
        return self.nonce

    def settle(self) -> None:
        """Wait until nothing is under way."""
        for lane in self.lanes.values():
            lane.settle()  # wait point: backends idle
        self.streams.synchronize()  # wait point: streams idle

    def close(self) -> None:
        """Free everything, when nothing is under way any more."""
        with self.device.active():
            self.settle()  # wait point: resources closing
            for lane in self.lanes.values():
                lane.close()
            for slot in self.slots:
                slot.free()
            self.single.free()
