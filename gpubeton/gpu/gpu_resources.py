"""GpuResources: backends, memory and streams of an epoch, kept for the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gpubeton.gpu.batch_memory import Constants, Slot, Table
from gpubeton.gpu.entry_decoder import EntryDecoder
from gpubeton.plan.lanes import adjust_share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubeton.gpu.cuda import Device, Stream
    from gpubeton.gpu.nvjpeg_backends import BatchedBackend
    from gpubeton.gpu.other_libraries import LibraryBackend
    from gpubeton.plan.lanes import Lane


class EpochStreams(NamedTuple):
    """The streams of one epoch; the engines have two more."""

    # Few: a process has 8 hardware queues by default, and streams that share one wait for each other.
    send: Stream  # tables, canaries and pixels to the device
    augment: Stream  # the kernels, batch after batch
    tail: Stream  # operations on finished batches, torch's memory for them, and images that are repaired


@dataclass(eq=False)
class GpuResources:
    """Backends, memory and streams for one epoch at a time; slow to make."""

    device: Device
    backends: Mapping[Lane, BatchedBackend | LibraryBackend]
    num_slots: int
    takes_entries: bool = False  # whether our own decoder takes the JPEGs with entry points
    entry_decoder: EntryDecoder | None = field(init=False, default=None)
    slots: list[Slot] = field(init=False)  # one for each batch under way
    streams: EpochStreams = field(init=False)
    mixes: Table = field(init=False)  # rows of a batch that is mixed
    constants: Constants = field(init=False)
    repair_slot: Slot = field(init=False)  # images that the CPU makes after a failure, and replacements
    nonce: int = 0  # of the last canaries
    engine_share: float = 0.5  # of the images that the engines and our decoder share, by the times they took
    # stored images, by field and sample, that their decoder has refused: the CPU decodes them
    refused: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        device = self.device
        self.slots = [Slot(device) for _ in range(self.num_slots)]
        self.streams = EpochStreams(*map(device.make_stream, EpochStreams._fields))
        self.entry_decoder = EntryDecoder(device) if self.takes_entries else None
        self.mixes, self.constants, self.repair_slot = Table(device), Constants(device), Slot(device)

    def next_nonce(self) -> int:
        """Return a number that no recent batch has had."""
        self.nonce = (self.nonce + 1) & 0xFFFFFFFF
        return self.nonce

    def note_times(self, times: tuple[float, float] | None) -> None:
        """Adjust what the engines and our decoder share to the times that a batch took them."""
        if times is not None:
            self.engine_share = adjust_share(self.engine_share, *times)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        for backend in self.backends.values():
            backend.settle()  # wait point: backends idle
        for stream in self.streams:
            stream.synchronize()  # wait point: streams idle

    def close(self) -> None:
        """Free everything, when nothing is under way any more."""
        with self.device.active():
            self.settle()  # wait point: resources closing
            for backend in self.backends.values():
                backend.close()
            for slot in (*self.slots, self.repair_slot):
                slot.free()
            self.mixes.free()
            self.constants.free()
            if self.entry_decoder is not None:
                self.entry_decoder.free()
            self.device.recycle(self.streams)
