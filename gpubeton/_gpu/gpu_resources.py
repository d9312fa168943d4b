"""GpuResources: backends, memory and streams of an epoch, kept for the next."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from gpubeton._gpu.batch import Slot
from gpubeton._gpu.entry_decoder import EntryDecoder
from gpubeton._gpu.memory import Constants, Table

if TYPE_CHECKING:
    from gpubeton._gpu.cuda import Device, Event, Stream
    from gpubeton._gpu.nvjpeg_backends import DecodeBackends


class EpochStreams(NamedTuple):
    """The streams of one epoch; the engines have two more."""

    # Few: a process has 8 hardware queues by default, and streams that share one wait for each other.
    send: Stream  # tables, canaries and pixels to the device
    augment: Stream  # the kernels, batch after batch
    batch_ops: Stream  # operations on finished batches, torch's memory for them, and images that are repaired


class GpuResources:
    """Backends, memory and streams for one epoch at a time; slow to make."""

    def __init__(self, device: Device, opened: DecodeBackends, num_slots: int) -> None:
        self.device = device
        self.backends = opened.backends
        # It takes the JPEGs with entry points.
        self.entry_decoder = EntryDecoder(device) if opened.takes_entries else None
        self.slots = [Slot(device) for _ in range(num_slots)]  # one for each batch under way
        self.repair_slot = Slot(device)  # images that the CPU makes after a failure, and replacements
        self.streams = EpochStreams(*map(device.make_stream, EpochStreams._fields))
        self.mixes = Table(device)  # rows of a batch that is mixed
        self._steps: list[tuple[Table, Event]] = []
        self.constants = Constants(device)
        self.nonces = count(1)  # of canaries
        # stored images, by field and sample, that their decoder has refused: the CPU decodes them
        self.refused: set[tuple[str, int]] = set()

    def steps_table(self) -> tuple[Table, Event]:
        """Return a table for the steps of a finished batch whose last copy is done; the event is to be recorded."""
        # So the host never waits. There are as many as operations of the batches that the GPU has before it.
        for table, sent in self._steps:
            if sent.is_done:
                return table, sent
        self._steps.append((Table(self.device), self.device.make_event()))
        return self._steps[-1]

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
            # Not with the last reference: an error that is kept has frames with batches.
            slots, tables = (*self.slots, self.repair_slot), (self.mixes, *(table for table, _ in self._steps))
            of_slots = (buffer for slot in slots for buffer in slot.buffers)
            for buffer in (*of_slots, *(buffer for table in tables for buffer in table.buffers)):
                buffer.free()
            if self.entry_decoder is not None:
                self.entry_decoder.windows.free()
            del self.constants
            self.device.recycle(self.streams)
