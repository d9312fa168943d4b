"""Gpu: one GPU as a loader uses it, from epoch to epoch."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from gpubeton.errors import DeviceError
from gpubeton.gpu.crew import GpuCrew
from gpubeton.gpu.equipment import Equipment, Streams
from gpubeton.gpu.single import Single
from gpubeton.gpu.slot import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpubeton.gpu.device import Device
    from gpubeton.gpu.host import Host
    from gpubeton.gpu.lanes import Lanes
    from gpubeton.gpu.options import GpuOptions
    from gpubeton.plan.lanes import Lane
    from gpubeton.plan.program import ImageProgram


class Gpu:
    """One GPU as a loader uses it: keeps decoders and memory from one epoch to the next.

    Parameters
    ----------
    device : Device
        The GPU.
    options : GpuOptions
        How to decode.
    open_lanes : callable
        Opens the ways to decode, once for each epoch that is under way at once.
    num_slots : int
        Batches that may be under way in one epoch.

    Attributes
    ----------
    notes : dict of Lane to str
        What there is to say of each lane.
    """

    def __init__(
        self, device: Device, options: GpuOptions, open_lanes: Callable[[Device], Lanes], *, num_slots: int
    ) -> None:
        self.device = device
        self.options = options
        self._open_lanes = open_lanes
        self._num_slots = num_slots
        self._lock = threading.Lock()
        self._is_closed = False
        # What cannot be opened is told at once, and not in the loop.
        first, self.notes = self._make()
        self._free = [first]

    def crew(self, programs: Sequence[ImageProgram], host: Host) -> GpuCrew:
        """Begin an epoch.

        Parameters
        ----------
        programs : sequence of ImageProgram
            What is made.
        host : Host
            What the CPU does for it.

        Returns
        -------
        GpuCrew
            To be closed.
        """
        with self._lock:
            equipment = self._free.pop() if self._free else None
        if equipment is None:
            equipment, _ = self._make()
        try:
            return GpuCrew(equipment, programs, host, self.options, self._take_back)
        except BaseException:
            self._take_back(equipment)
            raise

    def close(self) -> None:
        """Free what no epoch uses; the rest is freed when its epoch ends. May be called twice."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for equipment in free:
            # An error that is stuck in the GPU was raised where it appeared. Nothing can be freed any more then, and
            # whoever closes has other things to close.
            with suppress(DeviceError):
                equipment.close()

    def _make(self) -> tuple[Equipment, dict[Lane, str]]:
        with self.device.active():
            streams = Streams(self.device)
            lanes = self._open_lanes(self.device)
            equipment = Equipment(
                device=self.device,
                lanes=lanes.lanes,
                slots=[Slot(self.device) for _ in range(self._num_slots)],
                streams=streams,
                single=Single(self.device, streams.repair),
                is_deterministic=self.options.deterministic,
            )
        return equipment, dict(lanes.notes)

    def _take_back(self, equipment: Equipment) -> None:
        with self._lock:
            if not self._is_closed:
                self._free.append(equipment)
                return
        equipment.close()
