"""BatchedBackend: nvJPEG decodes batches on the JPEG engines; DecodeBackends: the decoders of a GPU."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._gpu.nvjpeg import IMAGE, INTERPOLATED, Handle, JpegHeader, Library, State, Status, load
from gpubeton._plan.routes import DecodeRoute
from gpubeton.errors import DeviceError, NvjpegError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton._gpu.batch import DecodedImages
    from gpubeton._gpu.cuda import Device, Event, Stream
    from gpubeton._gpu.options import GpuOptions
    from gpubeton._plan.image_job import ImageJob

STATES = 2
"""Requests in flight: while the engines decode one, the next one is prepared."""

# Memory is allocated ahead for images of up to this size; larger ones are rare, and take gigabytes.
_MOST_AHEAD = 4096

# Kinds of images that nvJPEG was asked about; more are forgotten, for the sake of files whose images all differ.
_MOST_KINDS = 1 << 16


@dataclass(eq=False)
class _Entry:
    """A state of nvJPEG with its stream."""

    state: State
    stream: Stream
    event: Event  # the end of its latest work


@dataclass(eq=False)
class BatchedBackend:
    """Many images a call; ``nvjpegDecodeBatched``. May be used by several threads."""

    device: Device
    handle: Handle
    most: int  # images of a call
    largest: tuple[int, int] = (1, 1)  # height and width of the largest image that is expected
    num_states: int = STATES
    _entries: list[_Entry] = field(default_factory=list, init=False)
    _header: JpegHeader | None = field(default=None, init=False)
    _kinds: dict[int, bool] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def takes(
        self, images: DecodedImages | ImageJob, tables: NDArray[np.int32], sampling: NDArray[np.int32]
    ) -> NDArray[np.bool_]:
        """Ask nvJPEG about images of a new kind: tables, sampling, and size within a factor of two."""
        with self._lock:
            sides = [np.frexp(side)[1].astype(np.int64) for side in (images.height, images.width)]
            kinds = (
                (tables.astype(np.int64) << 16) | ((sampling & 7).astype(np.int64) << 10) | (sides[0] << 5) | sides[1]
            )
            for kind, first in zip(*np.unique(kinds, return_index=True), strict=True):
                if int(kind) not in self._kinds:
                    self._header = self._header or JpegHeader(self.handle)
                    if len(self._kinds) >= _MOST_KINDS:
                        self._kinds.clear()
                    address, size = int(images.address[first]), int(images.size[first])
                    self._kinds[int(kind)] = self._header.is_supported(address, size)
            return np.array([self._kinds.get(kind, True) for kind in kinds.tolist()], bool)

    def begin(self, images: DecodedImages) -> tuple[Event | None, dict[int, str]]:
        """Begin to decode; return the end, if anything was begun, and the reason for each image that is refused."""
        # nvJPEG refuses a whole call for one image: halves of it find the images that it refuses.
        count = len(images.address)
        with self._lock:
            entry = self._next(count)
            refused = self._begin(entry, images, np.arange(count))
            if len(refused) == count:
                return None, refused
            entry.event = self.device.make_event()
            entry.event.record(entry.stream)
            return entry.event, refused

    def settle(self) -> None:
        """Wait until nothing is under way."""
        for entry in self._entries:
            entry.stream.synchronize()  # wait point: states idle

    def close(self) -> None:
        """Free states and handle, and give the streams back; nothing may be under way."""
        self.release()
        self.handle.close()

    def release(self) -> None:
        """Free the states and give the streams back; the next image makes new ones."""
        for entry in self._entries:
            entry.state.close()
        self.device.recycle([entry.stream for entry in self._entries])
        self._entries = []

    def _next(self, count: int) -> _Entry:
        """Wait for an idle state, if possible one that was initialized for this batch size."""
        # The thread waits, and not a stream: nvJPEG asks for that before a state is initialized again.
        if not self._entries:
            self._entries = [self._make_entry(number) for number in range(self.num_states)]
        free = [entry for entry in self._entries if entry.state.batch == count and entry.event.is_done]
        entry = free[0] if free else self._entries[0]
        entry.event.synchronize()  # wait point: state free
        self._entries.remove(entry)
        self._entries.append(entry)
        return entry

    def _make_entry(self, number: int) -> _Entry:
        """Make a state, with memory for the largest images if there is enough."""
        try:
            state = State(self.handle)
        except NvjpegError:
            self.device.empty_cache()
            state = State(self.handle)  # any other error comes again
        height, width = (min(side, _MOST_AHEAD) for side in self.largest)
        try:
            state.preallocate(self.most, width, height)
        except NvjpegError:
            # The smallest size makes nvJPEG keep the memory that it allocates later.
            self.device.empty_cache()
            state.preallocate(self.most, 1, 1)
        return _Entry(state, self.device.make_stream(f"engines {number}"), self.device.make_event())

    def _begin(self, entry: _Entry, images: DecodedImages, chosen: NDArray[np.intp]) -> dict[int, str]:
        """Begin to decode some of the images; return the reason for each that is refused."""
        # A copy by indices: its arrays are C-contiguous, and uint64 as nvJPEG's pointers and sizes.
        part, count = images.take(chosen), len(chosen)
        targets = np.zeros(count, IMAGE)
        targets["channel"][:, 0] = part.target
        targets["pitch"][:, 0] = part.pitch
        for is_last in (False, True):
            try:
                if entry.state.batch != count:
                    entry.state.initialize(count)
                entry.state.decode_batched(part.address, part.size, targets, entry.stream.handle)
            except NvjpegError as error:
                # Images that were begun still write into the arena.
                entry.stream.synchronize()  # wait point: failed batch stopped
                entry.state.batch = 0
                if error.status == Status.ALLOCATOR_FAILURE:
                    # No fault of the images: torch usually holds the rest of the memory.
                    self.device.empty_cache()
                    if is_last:
                        raise
                    continue
                if count == 1:
                    return {int(chosen[0]): str(error)}
                middle = count // 2
                refused = self._begin(entry, images, chosen[:middle])
                entry.stream.synchronize()  # wait point: half decoded
                return refused | self._begin(entry, images, chosen[middle:])
            break
        return {}


IMAGES_PER_ENGINE = 8
"""Images of a call for each core of an engine. Two rounds of work hide the host's part; more only takes memory."""

# The first nvJPEG that can interpolate chroma.
_SMOOTH_SINCE = (12, 1)

# A100 and A30; L4, L40; H100, H200; B100, B200, GB200; B300; Blackwell for workstations. GeForce GPUs of the same
# architectures have none: https://github.com/NVIDIA/CUDALibrarySamples/issues/252
_HAVE_ENGINES = {"sm_80", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121"}


@dataclass(eq=False)
class DecodeBackends:
    """The decode backends of a GPU, and a note on each: its settings, or why it is missing."""

    backends: dict[DecodeRoute, BatchedBackend] = field(default_factory=dict)
    notes: dict[DecodeRoute, str] = field(default_factory=dict)
    takes_entries: bool = False  # whether our own decoder takes JPEGs with entry points; the others take the rest
    warning: str = ""  # why the engines that the GPU has cannot be used


def with_entries(open_backends: Callable[[Device], DecodeBackends], device: Device) -> DecodeBackends:
    """Open backends, and let our own decoder take the JPEGs with entry points."""
    opened = open_backends(device)
    opened.takes_entries = True
    opened.notes[DecodeRoute.ENTRIES] = "baseline JPEGs with entry points or restart markers"
    return opened


def open_nvjpeg_backends(
    device: Device,
    library: Library | None,  # None: load it
    options: GpuOptions,
    largest: tuple[int, int],  # height and width in pixels
    *,
    is_library_needed: bool = True,  # else the engines are missing without it, and no error is raised
) -> DecodeBackends:
    """Open the engines if the options allow it and the GPU has some.

    States and memory follow when the first image needs them.
    """
    opened = DecodeBackends()
    if DecodeRoute.HARDWARE not in options.allowed:
        opened.notes[DecodeRoute.HARDWARE] = "not wanted"
        return opened
    try:
        library = library or load()
        is_smooth = options.smooth_chroma and library.version[:2] >= _SMOOTH_SINCE
        handle = Handle(library, flags=INTERPOLATED if is_smooth else 0, active=device.active)
        engines, cores = handle.hardware_engines()
    except DeviceError as error:
        if library is None and is_library_needed:
            raise
        opened.notes[DecodeRoute.HARDWARE] = str(error)
        if device.architecture in _HAVE_ENGINES and "GeForce" not in device.name:
            name = f"{device.name} (cuda:{device.number})"
            opened.warning = f"{name} has JPEG engines that cannot be used, so the CPU decodes in their place. {error}"
        return opened
    most = options.images_per_call or max(engines * cores, 1) * IMAGES_PER_ENGINE
    opened.backends[DecodeRoute.HARDWARE] = BatchedBackend(device, handle, most, largest)
    opened.notes[DecodeRoute.HARDWARE] = f"{engines} JPEG engines, {most} images a call"
    return opened
