"""Decode backends of nvJPEG: batches on the JPEG engines or the processors, and images one by one."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from gpubeton.errors import DeviceError, NvjpegError
from gpubeton.gpu.decode_backend import DecodeBackends, DecodeHandle, DecodeRequest
from gpubeton.gpu.nvjpeg import IMAGE, Backend, Flags, Handle, Library, State
from gpubeton.plan.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubeton.gpu.decode_backend import DecodeBackend
    from gpubeton.gpu.device import Device, Event, Stream
    from gpubeton.gpu.gpu_options import GpuOptions

S = TypeVar("S")


@dataclass(eq=False)
class StateEntry(Generic[S]):
    """A state of nvJPEG with its stream."""

    state: S
    stream: Stream
    event: Event  # the end of its latest work; a new one each time, because others may still query the old one
    batch: int = 0  # images that it was initialised for; 0 if it was not
    keep: object = None  # the arrays that its latest work reads


class StateRing(Generic[S]):
    """States used in turn, each with a stream: the device works on the others while one is prepared."""

    def __init__(
        self, device: Device, make_state: Callable[[], S], count: int, name: str = "", *, is_urgent: bool = True
    ) -> None:
        self._device = device
        self._entries = [
            StateEntry(make_state(), device.make_stream(f"{name} {number}", is_urgent=is_urgent), device.make_event())
            for number in range(count)
        ]

    def next(self, batch: int = 0) -> StateEntry[S]:
        """Wait for an idle state, if possible one that was initialised for this batch size."""
        # The thread waits, and not a stream: nvJPEG asks for that before a state is initialised again.
        free = [entry for entry in self._entries if entry.batch == batch and entry.event.is_done]
        entry = free[0] if free else self._entries[0]
        entry.event.synchronize()  # wait point: state free
        entry.event = self._device.make_event()
        entry.keep = None
        self._entries.remove(entry)
        self._entries.append(entry)
        return entry

    def settle(self) -> None:
        """Wait until nothing is under way."""
        for entry in self._entries:
            entry.stream.synchronize()  # wait point: states idle
            entry.keep = None


class BatchedBackend:
    """Many images a call; ``nvjpegDecodeBatched``. May be used by several threads."""

    def __init__(
        self, device: Device, handle: Handle, *, most: int, least: int = 1, num_states: int = 3, is_urgent: bool = True
    ) -> None:
        self.most = most
        self.least = least
        self._handle = handle
        self._states: list[State] = []
        self._lock = threading.Lock()
        self._ring: StateRing[State] = StateRing(
            device, self._make_state, num_states, Backend(handle.backend or 0).name.lower(), is_urgent=is_urgent
        )

    def begin(self, request: DecodeRequest) -> DecodeHandle:
        """Begin to decode; if nvJPEG refuses one image, all have failed, because it does not report which."""
        with self._lock:
            return self._begin(request)

    def reserve(self, width: int, height: int) -> None:
        """Let the states allocate the memory for images of up to this size."""
        for state in self._states:
            state.preallocate(self.most, width, height)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        self._ring.settle()  # wait point: batched states idle

    def close(self) -> None:
        """Free states and handle; nothing may be under way."""
        for state in self._states:
            state.close()
        self._handle.close()

    def _begin(self, request: DecodeRequest) -> DecodeHandle:
        count = len(request.address)
        entry = self._ring.next(count)
        targets = np.zeros(count, IMAGE)
        targets["channel"][:, 0] = request.target
        targets["pitch"][:, 0] = request.pitch
        try:
            if entry.batch != count:
                entry.batch = 0
                entry.state.initialise(count)
                entry.batch = count
            entry.keep = request, targets
            entry.state.decode_batched(request.address, request.size, targets, entry.stream.handle)
        except NvjpegError as error:
            # Images that were begun still write into the arena.
            entry.stream.synchronize()  # wait point: failed batch stopped
            entry.batch = 0
            return DecodeHandle(None, dict.fromkeys(range(count), str(error)))
        entry.event.record(entry.stream)
        return DecodeHandle(entry.event, {})

    def _make_state(self) -> State:
        self._states.append(self._handle.make_state())
        return self._states[-1]


class PerImageBackend:
    """One image a call, with some of the work on the CPU; ``nvjpegDecode``. May be used by several threads."""

    def __init__(self, device: Device, handle: Handle, *, num_states: int = 2) -> None:
        self.most = 1 << 30  # any number: they are decoded one by one
        self.least = 1
        self._device = device
        self._handle = handle
        self._states: list[State] = []
        self._ring: StateRing[State] = StateRing(device, self._make_state, num_states, "per-image")
        # Collects the ends of all images of a request, from all states.
        self._stream = device.make_stream("per-image done")
        self._lock = threading.Lock()

    def begin(self, request: DecodeRequest) -> DecodeHandle:
        """Begin to decode the images, one by one."""
        failed: dict[int, str] = {}
        with self._lock:
            for place in range(len(request.address)):
                reason = self._begin_one(request.part(slice(place, place + 1)))
                if reason is not None:
                    failed[place] = reason
            event = self._device.make_event()
            event.record(self._stream)
        return DecodeHandle(event, failed)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        self._ring.settle()  # wait point: per-image states idle

    def close(self) -> None:
        """Free states and handle; nothing may be under way."""
        for state in self._states:
            state.close()
        self._handle.close()

    def _begin_one(self, one: DecodeRequest) -> str | None:
        entry = self._ring.next()
        target = np.zeros(1, IMAGE)
        target["channel"][0, 0] = one.target[0]
        target["pitch"][0, 0] = one.pitch[0]
        entry.keep = one, target
        try:
            entry.state.decode(int(one.address[0]), int(one.size[0]), target, entry.stream.handle)
        except NvjpegError as error:
            entry.stream.synchronize()  # wait point: failed image stopped
            return str(error)
        entry.event.record(entry.stream)
        self._stream.wait(entry.event)  # wait point: all images of a request
        return None

    def _make_state(self) -> State:
        self._states.append(self._handle.make_state())
        return self._states[-1]


# Each engine should find its next image at once; more only takes memory.
_IMAGES_PER_ENGINE = 4

# The first nvJPEG that can interpolate chroma.
_SMOOTH_SINCE = (12, 1)

# nvJPEG decodes smaller batches with the CPU's help, which this backend avoids.
_LEAST_FOR_SM = 51


def open_nvjpeg_backends(
    device: Device, library: Library, options: GpuOptions, largest: tuple[int, int]
) -> DecodeBackends:
    """Open the backends that the options allow and the GPU has; `largest` is height and width in pixels."""
    opening = _Opening(device, library, options, largest)
    openers = {Lane.HARDWARE: opening.hardware, Lane.SM: opening.sm, Lane.HYBRID: opening.hybrid}
    found = DecodeBackends()
    for lane, opener in openers.items():
        if lane not in options.allowed:
            found.notes[lane] = "not wanted"
            continue
        try:
            found.backends[lane], found.notes[lane] = opener()
        except DeviceError as error:
            found.notes[lane] = str(error)
    if not found.backends:
        reasons = "; ".join(f"{lane.name.lower()}: {note}" for lane, note in found.notes.items())
        raise DeviceError(f"{device.name} (cuda:{device.number}): nvJPEG cannot decode there. {reasons}")
    return found


class _Opening:
    """Opens backends, one by one."""

    def __init__(self, device: Device, library: Library, options: GpuOptions, largest: tuple[int, int]) -> None:
        self.device, self.library, self.options, self.largest = device, library, options, largest
        is_smooth = options.smooth_chroma and library.version[:2] >= _SMOOTH_SINCE
        self.flags = Flags.UPSAMPLING_WITH_INTERPOLATION if is_smooth else Flags.NONE

    def hardware(self) -> tuple[DecodeBackend, str]:
        handle = self.library.create(Backend.HARDWARE, self.flags)
        engines, cores = handle.hardware_engines()
        most = self.options.images_per_call or max(engines * cores, 1) * _IMAGES_PER_ENGINE
        backend = BatchedBackend(self.device, handle, most=most)
        height, width = self.largest
        backend.reserve(width, height)
        return backend, f"{engines} JPEG engines, {most} images a call"

    def sm(self) -> tuple[DecodeBackend, str]:
        handle = self.library.create(Backend.GPU_HYBRID, self.flags)
        most = self.options.images_per_sm_call
        backend = BatchedBackend(self.device, handle, most=most, least=_LEAST_FOR_SM, num_states=2, is_urgent=False)
        return backend, f"the GPU's processors, {most} images a call"

    def hybrid(self) -> tuple[DecodeBackend, str]:
        handle = self.library.create(Backend.DEFAULT, self.flags)
        return PerImageBackend(self.device, handle), "image by image, with the CPU's help"
