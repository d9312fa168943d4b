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
    """A state of nvJPEG, and where its work goes.

    Parameters
    ----------
    state : S
        The state.
    stream : Stream
        Where its work goes.
    event : Event
        Behind its latest work; a new one for each, because others may still ask the one before.
    batch : int
        Images that it was initialised for; 0 if it was not.
    keep : object
        What its latest work reads.
    """

    state: S
    stream: Stream
    event: Event
    batch: int = 0
    keep: object = None


class StateRing(Generic[S]):
    """States used in turn: the device works on the others while one is prepared.

    Parameters
    ----------
    device : Device
        Whose streams.
    make_state : callable
        Makes a state.
    count : int
        How many.
    is_urgent : bool
        Whether their streams go before those of others.
    """

    def __init__(
        self, device: Device, make_state: Callable[[], S], count: int, name: str = "", *, is_urgent: bool = True
    ) -> None:
        self._device = device
        self._entries = [
            StateEntry(make_state(), device.make_stream(f"{name} {number}", is_urgent=is_urgent), device.make_event())
            for number in range(count)
        ]

    def next(self, batch: int = 0) -> StateEntry[S]:
        """Wait for a state that has nothing to do.

        Parameters
        ----------
        batch : int
            Images that it is wanted for. A free state that is initialised for them goes before others.

        Returns
        -------
        StateEntry
            The state, from now on the youngest. The calling thread, and not a stream, has waited for its work: nvJPEG
            asks for that before a state is initialised anew.
        """
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
    """Many images a call; ``nvjpegDecodeBatched``. May be used by several threads.

    Parameters
    ----------
    device : Device
        Where.
    handle : Handle
        NVIDIA's library with the backend HARDWARE or GPU_HYBRID.
    most : int
        Images of a call, at most.
    least : int
        Images of a call, at least, to be worth it.
    num_states : int
        Calls that may be under way at once. With three, two are always waiting for the engines.
    is_urgent : bool
        Whether its work goes before that of others.

    Attributes
    ----------
    most, least : int
        See above.
    """

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

    def begin(self, piece: DecodeRequest) -> DecodeHandle:
        """Begin to decode a piece.

        Parameters
        ----------
        piece : Piece
            Up to `most` images.

        Returns
        -------
        Begun
            If nvJPEG refuses one, all of them failed: it does not say which.
        """
        with self._lock:
            return self._begin(piece)

    def reserve(self, width: int, height: int) -> None:
        """Let the states allocate what images of up to this size need.

        Parameters
        ----------
        width, height : int
            Pixels.
        """
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

    def _begin(self, piece: DecodeRequest) -> DecodeHandle:
        count = len(piece.address)
        entry = self._ring.next(count)
        targets = np.zeros(count, IMAGE)
        targets["channel"][:, 0] = piece.target
        targets["pitch"][:, 0] = piece.pitch
        try:
            if entry.batch != count:
                entry.batch = 0
                entry.state.initialise(count)
                entry.batch = count
            entry.keep = piece, targets
            entry.state.decode_batched(piece.address, piece.size, targets, entry.stream.handle)
        except NvjpegError as error:
            # Whatever was begun of it still writes into the arena.
            entry.stream.synchronize()  # wait point: failed batch stopped
            entry.batch = 0
            return DecodeHandle(None, dict.fromkeys(range(count), str(error)))
        entry.event.record(entry.stream)
        return DecodeHandle(entry.event, {})

    def _make_state(self) -> State:
        self._states.append(self._handle.make_state())
        return self._states[-1]


class PerImageBackend:
    """One image a call, with some of the work on the CPU; ``nvjpegDecode``. May be used by several threads.

    Parameters
    ----------
    device : Device
        Where.
    handle : Handle
        NVIDIA's library with the backend DEFAULT, which takes all that nvJPEG knows.
    num_states : int
        Images that may be under way at once.

    Attributes
    ----------
    most, least : int
        Images of a piece. Any number will do; they are decoded one by one.
    """

    def __init__(self, device: Device, handle: Handle, *, num_states: int = 2) -> None:
        self.most = 1 << 30
        self.least = 1
        self._device = device
        self._handle = handle
        self._states: list[State] = []
        self._ring: StateRing[State] = StateRing(device, self._make_state, num_states, "per-image")
        # All images of a piece have to be waited for, whichever state they were decoded with.
        self._stream = device.make_stream("per-image done")
        self._lock = threading.Lock()

    def begin(self, piece: DecodeRequest) -> DecodeHandle:
        """Decode the images of a piece, one by one.

        Parameters
        ----------
        piece : Piece
            Any number of images.

        Returns
        -------
        Begun
            The event is a new one.
        """
        failed: dict[int, str] = {}
        with self._lock:
            for place in range(len(piece.address)):
                reason = self._begin_one(piece.part(slice(place, place + 1)))
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


# Each engine should find the next image as soon as it is done with one; more only takes memory.
_IMAGES_PER_ENGINE = 4

# Since this version nvJPEG can interpolate chroma.
_SMOOTH_SINCE = (12, 1)

# Smaller batches are decoded with the CPU's help, which is what this lane is to avoid.
_LEAST_FOR_SM = 51


def open_nvjpeg_backends(
    device: Device, library: Library, options: GpuOptions, largest: tuple[int, int]
) -> DecodeBackends:
    """Open the ways in which nvJPEG can decode on a GPU.

    Parameters
    ----------
    device : Device
        The GPU, current in this thread.
    library : Library
        NVIDIA's library.
    options : GpuOptions
        Which ways are wanted.
    largest : tuple of int
        Largest height and width of an image that will come, in pixels.

    Returns
    -------
    Lanes
        What there is.

    Raises
    ------
    DeviceError
        If there is none at all.
    """
    opening = _Opening(device, library, options, largest)
    openers = {Lane.HARDWARE: opening.hardware, Lane.SM: opening.sm, Lane.HYBRID: opening.hybrid}
    found = DecodeBackends()
    for lane, opener in openers.items():
        if lane not in options.allowed:
            found.notes[lane] = "not wanted"
            continue
        try:
            found.lanes[lane], found.notes[lane] = opener()
        except DeviceError as error:
            found.notes[lane] = str(error)
    if not found.lanes:
        reasons = "; ".join(f"{lane.name.lower()}: {note}" for lane, note in found.notes.items())
        raise DeviceError(f"{device.name} (cuda:{device.number}): nvJPEG cannot decode there. {reasons}")
    return found


class _Opening:
    """Opens lanes, one by one."""

    def __init__(self, device: Device, library: Library, options: GpuOptions, largest: tuple[int, int]) -> None:
        self.device, self.library, self.options, self.largest = device, library, options, largest
        is_smooth = options.smooth_chroma and library.version[:2] >= _SMOOTH_SINCE
        self.flags = Flags.UPSAMPLING_WITH_INTERPOLATION if is_smooth else Flags.NONE

    def hardware(self) -> tuple[DecodeBackend, str]:
        handle = self.library.create(Backend.HARDWARE, self.flags)
        engines, cores = handle.hardware_engines()
        most = self.options.images_per_call or max(engines * cores, 1) * _IMAGES_PER_ENGINE
        lane = BatchedBackend(self.device, handle, most=most)
        height, width = self.largest
        lane.reserve(width, height)
        return lane, f"{engines} JPEG engines, {most} images a call"

    def sm(self) -> tuple[DecodeBackend, str]:
        handle = self.library.create(Backend.GPU_HYBRID, self.flags)
        most = self.options.images_per_sm_call
        lane = BatchedBackend(self.device, handle, most=most, least=_LEAST_FOR_SM, num_states=2, is_urgent=False)
        return lane, f"the GPU's processors, {most} images a call"

    def hybrid(self) -> tuple[DecodeBackend, str]:
        handle = self.library.create(Backend.DEFAULT, self.flags)
        return PerImageBackend(self.device, handle), "image by image, with the CPU's help"
