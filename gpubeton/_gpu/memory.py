"""Memory for batches: buffers that grow, the table for the kernels, and arrays that stay on the device."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from gpubeton._gpu.cuda import Memory
from gpubeton._plan.arena_layout import round_up

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from numpy.typing import NDArray

    from gpubeton._gpu.cuda import Device, PinnedMemory, Stream

M = TypeVar("M", bound=Memory)

_STEP = 1 << 20


class GrowableBuffer(Generic[M]):
    """Device or pinned memory that grows when a batch needs more, by an eighth more than that."""

    # So nothing is allocated after the first batches: allocating device memory stops all work on the GPU.

    def __init__(self, allocate: Callable[[int], M]) -> None:
        self._allocate = allocate
        self._memory: M | None = None

    def reserve(self, nbytes: int) -> M:
        """Return at least so much memory; growing loses its content, and it may not be in use then."""
        if self._memory is None or self._memory.nbytes < nbytes:
            self.free()
            larger = max(nbytes + nbytes // 8, 1)
            self._memory = self._allocate(-(-larger // _STEP) * _STEP)
        return self._memory

    def free(self) -> None:
        """Free the memory, which may not be in use."""
        if self._memory is not None:
            self._memory.free()
            self._memory = None

    @property
    def nbytes(self) -> int:
        """Its size now."""
        return 0 if self._memory is None else self._memory.nbytes


class Table:
    """Arrays that are sent to the device in one copy, and brought back in another."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pinned: GrowableBuffer[PinnedMemory] = GrowableBuffer(device.allocate_pinned)
        self._memory: GrowableBuffer[Memory] = GrowableBuffer(device.allocate)
        self.buffers = self._pinned, self._memory
        self.kinds: list[tuple[Hashable, np.dtype[Any], tuple[int, ...]]] = []  # of the arrays with room here
        self.arrays: dict[Hashable, NDArray[Any]] = {}  # in pinned memory, to change before they are sent
        self.addresses: dict[Hashable, int] = {}  # on the device
        self._copy = 0, 0, 0  # addresses on the device and in pinned memory, bytes

    def fill(self, arrays: Mapping[Hashable, NDArray[Any]]) -> dict[Hashable, int]:
        """Copy arrays to pinned memory; return the device address of each."""
        kinds = [(name, array.dtype, array.shape) for name, array in arrays.items()]
        if kinds != self.kinds or not self._memory.nbytes:  # as of the batch before, as a rule
            self.kinds = []  # there is no room if this fails
            self._make_room(arrays)
            self.kinds = kinds
        for name, array in arrays.items():
            self.arrays[name][...] = array
        return self.addresses

    def _make_room(self, arrays: Mapping[Hashable, NDArray[Any]]) -> None:
        starts = [*accumulate((round_up(array.nbytes) for array in arrays.values()), initial=0)]
        pinned, memory = self._pinned.reserve(starts[-1]), self._memory.reserve(starts[-1])
        self._copy = memory.address, pinned.address, starts[-1]
        self.arrays, self.addresses, home = {}, {}, pinned.array
        for start, (name, array) in zip(starts, arrays.items(), strict=False):
            self.arrays[name] = home[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
            self.addresses[name] = memory.address + start

    def send(self, stream: Stream) -> None:
        """Copy everything to the device, in the stream's order."""
        self._device.copy(*self._copy, stream)

    def bring_back(self, name: Hashable, stream: Stream) -> NDArray[Any]:
        """Copy one array back, in the stream's order; read it when the stream is done."""
        array, address, (memory, pinned, _) = self.arrays[name], self.addresses[name], self._copy
        self._device.copy(address - memory + pinned, address, array.nbytes, stream)
        return array


class Constants:
    """Arrays that stay on the device as long as the memory of the batches: nothing is sent or freed in later epochs."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._sent: dict[bytes, tuple[Memory, PinnedMemory]] = {}  # the copy may still read the pinned memory

    def address_of(self, array: NDArray[Any], stream: Stream) -> int:
        """Return the device address of an array, which is sent in the stream's order at the first call."""
        content = array.tobytes()
        if content not in self._sent:
            pinned, memory = self._device.allocate_pinned(len(content)), self._device.allocate(len(content))
            pinned.array[:] = np.frombuffer(content, np.uint8)
            self._device.copy(memory.address, pinned.address, len(content), stream)
            self._sent[content] = memory, pinned
        return self._sent[content][0].address
