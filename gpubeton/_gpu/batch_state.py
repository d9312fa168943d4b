"""BatchState: one batch on its way through the GPU."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton._gpu.batch_memory import GrowableBuffer, Table
from gpubeton._gpu.launch import image_arrays

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from gpubeton._gpu.cuda import Device, Event, Memory, PinnedMemory
    from gpubeton._gpu.entry_decoder import EntryImages
    from gpubeton._gpu.launch import KernelImages, ProgramConstants
    from gpubeton._gpu.memory_layout import MemoryLayout, SentPixels
    from gpubeton._plan.image_executor import BadImage, ImageJob


class Slot:
    """The memory of one batch on its way through the GPU."""

    # It may be used for another batch only after the **host** has waited for `done`: the JPEG engines of Hopper write
    # when they are called, so no wait in a stream protects the memory.

    def __init__(self, device: Device) -> None:
        # compressed bytes and pixels to send
        self.staging: GrowableBuffer[PinnedMemory] = GrowableBuffer(device.allocate_pinned)
        self.arena: GrowableBuffer[Memory] = GrowableBuffer(device.allocate)  # decoded images
        self.taps: GrowableBuffer[Memory] = GrowableBuffer(device.allocate)  # weights of the resampling
        # uint8 images before their colors are changed
        self.resampled: GrowableBuffer[Memory] = GrowableBuffer(device.allocate)
        self.table = Table(device)  # the description of the batch
        self.done = device.make_event()  # after the last kernel that reads any of it
        self.images: list[KernelImages] = []  # of the last batch, with its launches; most batches have the same
        self.prepared_for: list[Any] = []  # what these depend on
        self.buffers = (self.staging, self.arena, self.taps, self.resampled, *self.table.buffers)


class DecodeRequest(NamedTuple):
    """Images for one call of a backend."""

    address: NDArray[np.uint64]  # (M,): compressed bytes in pinned memory, unchanged until the batch is collected
    size: NDArray[np.uint64]  # (M,)
    target: NDArray[np.uint64]  # (M,): address of the first pixel in the arena
    pitch: NDArray[np.int32]  # (M,): bytes from one row of pixels to the next
    height: NDArray[np.int32]  # (M,): in pixels; markers and metadata agree
    width: NDArray[np.int32]  # (M,)

    @classmethod
    def of(cls, job: ImageJob, rows: NDArray[np.intp], target: Any, pitch: Any, address: Any = None) -> DecodeRequest:
        """Make a request of some images of a job, which are read where they are stored, or from other addresses."""
        address = job.address[rows] if address is None else address
        return cls(address, job.size[rows], target, pitch, job.height[rows], job.width[rows])

    def part(self, places: Any) -> DecodeRequest:
        """Take some of its images."""
        return DecodeRequest(*(column[places] for column in self))


class DecodeHandle(NamedTuple):
    """A request under way."""

    event: Event | None  # the end of decoding; None if nothing was begun
    failed: dict[int, str]  # the reason for each refused image, by its index in the request


@dataclass(eq=False)
class BatchState:
    """One batch on its way through the GPU."""

    slot: Slot
    jobs: Sequence[ImageJob]  # for each program
    sources: Sequence[int]  # for each program the first one with the same stored images
    layout: MemoryLayout  # of the slot
    nonce: int  # the seed of its canaries
    # by program: images that our decoder makes
    entry_images: dict[int, EntryImages] = field(default_factory=dict)
    decoding: list[DecodeHandle] = field(default_factory=list)  # what the decoders were asked
    images: list[KernelImages] = field(default_factory=list)  # of each program, for the kernels
    status: list[NDArray[np.int32]] = field(default_factory=list)  # for each program (N,) int32, 0 for success
    # for each program whose images are decoded, what the decoders were asked
    requests: dict[int, DecodeRequest] = field(default_factory=dict)
    # images that a decoder refused: the first program with these stored images, and the row
    refused: set[tuple[int, int]] = field(default_factory=set)
    # images whose bytes differ from their checksums: the first program with these stored images, and the row
    damaged: set[tuple[int, int]] = field(default_factory=set)
    # the first program, the rows (M,) and the decoder's flags (M,), which are read when the batch is done
    flagged: list[tuple[int, NDArray[np.intp], NDArray[np.int32]]] = field(default_factory=list)
    bad: list[BadImage] = field(default_factory=list)  # images that cannot be made
    has_failed: bool = False  # as a whole; the feeder has the error
    # taken while the feeder's thread has it; making an Event takes longer than most waits for it
    issuing: threading.Lock = field(default_factory=threading.Lock)

    def wait(self) -> None:
        """Wait until all of it is queued, or an error was raised."""
        with self.issuing:
            pass

    def arrays(self, constants: Sequence[ProgramConstants], arena: int) -> dict[Hashable, NDArray[Any]]:
        """Describe the batch for the kernels."""
        arrays: dict[Hashable, NDArray[Any]] = {}
        layout = self.layout
        layout.place(self.jobs, self.sources, arena)
        for number, (own, job) in enumerate(zip(constants, self.jobs, strict=True)):
            arrays |= image_arrays(number, own, layout.pictures[number], layout.draws[number], job.colors)
            if number in self.entry_images:
                arrays |= self.entry_images[number].arrays(job)
        for one in layout.sent:
            if one.crops_nbytes and self.jobs[one.program].is_pinned:
                arrays[one.program, "gathers"] = layout.gathers(one, self.jobs[one.program])
        return arrays

    @property
    def finished(self) -> dict[int, SentPixels]:
        """The images that the CPU's workers make, by program."""
        return {one.program: one for one in self.layout.sent if len(one.finished)}

    @property
    def is_complete(self) -> bool:
        """Whether no image is missing, once the batch is done; few batches miss any."""
        return not (self.refused or self.damaged or self.flagged or any(map(np.count_nonzero, self.status)))

    @property
    def failed(self) -> set[tuple[int, int]]:
        """Images that a decoder could or should not decode: the first program with these images, and the row."""
        found = self.refused | self.damaged
        for source, rows, flags in self.flagged:
            found.update((source, int(row)) for row in rows[flags != 0])
        return found

    @property
    def left_out(self) -> set[tuple[int, int]]:
        """Images that the kernels found not to be decoded: the first program with these stored images, and the row."""
        found: set[tuple[int, int]] = set()
        for number, status in enumerate(self.status):
            found.update((self.sources[number], row) for row in status.nonzero()[0].tolist())
        return found
