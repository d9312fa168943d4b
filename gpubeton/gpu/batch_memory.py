"""The memory of one batch: buffers that grow, the table for the kernels, and the slot that holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from gpubeton.gpu.device import Memory
from gpubeton.gpu.memory_layout import round_up

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from numpy.typing import NDArray

    from gpubeton.gpu.device import Device, PinnedMemory, Stream

M = TypeVar("M", bound=Memory)

_STEP = 1 << 20


class GrowableBuffer(Generic[M]):
    """Device or pinned memory that grows when a batch needs more, by an eighth more than that.

    So after the first batches nothing is allocated any more; allocating device memory stops everything on the GPU.

    Parameters
    ----------
    allocate : callable
        Allocates a number of bytes: `Device.allocate` or `Device.allocate_pinned`.
    """

    def __init__(self, allocate: Callable[[int], M]) -> None:
        self._allocate = allocate
        self._memory: M | None = None

    def reserve(self, nbytes: int) -> M:
        """Have at least so much memory. What was in it is lost if it grows; nobody may be using it.

        Parameters
        ----------
        nbytes : int
            Bytes wanted.

        Returns
        -------
        Memory
            At least so much.

        Raises
        ------
        DeviceError
            If there is not enough.
        """
        if self._memory is None or self._memory.nbytes < nbytes:
            self.free()
            wanted = max(nbytes + nbytes // 8, 1)
            self._memory = self._allocate(-(-wanted // _STEP) * _STEP)
        return self._memory

    def free(self) -> None:
        """Free the memory; nobody may be using it."""
        if self._memory is not None:
            self._memory.free()
            self._memory = None

    @property
    def nbytes(self) -> int:
        """Bytes that it has now."""
        return 0 if self._memory is None else self._memory.nbytes


class Slot:
    """The memory of one batch on its way through the GPU.

    It may be used for another batch only after the **host** has waited for `done`: the JPEG engines of Hopper write
    when they are called, so that no wait in a stream protects what is being read.

    Parameters
    ----------
    device : Device
        Whose memory.

    Attributes
    ----------
    staging : Block of PinnedMemory
        Compressed bytes and pixels on their way to the device.
    arena : Block of Memory
        Decoded images.
    taps : Block of Memory
        Weights of the resampling.
    levels : Block of Memory
        Resampled images whose colours are still to be changed.
    table : Table
        What describes the batch to the kernels.
    done : Event
        Behind the last kernel that reads any of it.
    """

    def __init__(self, device: Device) -> None:
        self.staging: GrowableBuffer[PinnedMemory] = GrowableBuffer(device.allocate_pinned)
        self.arena: GrowableBuffer[Memory] = GrowableBuffer(device.allocate)
        self.taps: GrowableBuffer[Memory] = GrowableBuffer(device.allocate)
        self.levels: GrowableBuffer[Memory] = GrowableBuffer(device.allocate)
        self.table = Table(device)
        self.done = device.make_event()

    def free(self) -> None:
        """Free the memory; nobody may be using it."""
        for block in (self.staging, self.arena, self.taps, self.levels):
            block.free()
        self.table.free()


class Table:
    """Arrays that are sent to the device in one copy, and brought back in another.

    Parameters
    ----------
    device : Device
        Where to.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pinned: GrowableBuffer[PinnedMemory] = GrowableBuffer(device.allocate_pinned)
        self._memory: GrowableBuffer[Memory] = GrowableBuffer(device.allocate)
        self._arrays: dict[Hashable, tuple[int, NDArray[Any]]] = {}
        self._nbytes = 0

    def fill(self, arrays: Mapping[Hashable, NDArray[Any]]) -> dict[Hashable, int]:
        """Take arrays over.

        Parameters
        ----------
        arrays : mapping of name to ndarray
            Any arrays; copied.

        Returns
        -------
        dict of name to int
            Where each will be on the device.
        """
        starts = np.cumsum([0, *(round_up(array.nbytes) for array in arrays.values())]).tolist()
        self._nbytes = starts[-1]
        pinned = self._pinned.reserve(self._nbytes).array
        memory = self._memory.reserve(self._nbytes)
        self._arrays = {}
        for start, (name, array) in zip(starts, arrays.items(), strict=False):
            place = pinned[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
            place[...] = array
            self._arrays[name] = start, place
        return {name: memory.address + start for name, (start, _) in self._arrays.items()}

    def send(self, stream: Stream) -> None:
        """Copy everything to the device, in the stream's order."""
        self._device.copy(self._memory.reserve(0).address, self._pinned.reserve(0).address, self._nbytes, stream)

    def bring_back(self, name: Hashable, stream: Stream) -> NDArray[Any]:
        """Copy one array back, in the stream's order.

        Parameters
        ----------
        name : hashable
            Which of those that were filled in.
        stream : Stream
            When.

        Returns
        -------
        ndarray
            To be read when the stream is done.
        """
        start, place = self._arrays[name]
        source, target = self._memory.reserve(0).address + start, self._pinned.reserve(0).address + start
        self._device.copy(target, source, place.nbytes, stream)
        return place

    def free(self) -> None:
        """Free the memory; nobody may be using it."""
        self._pinned.free()
        self._memory.free()
