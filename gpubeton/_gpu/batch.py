"""Batch: one batch on its way through the GPU, its slot of memory, and the layout of its images there."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton._gpu.launch import GATHER, PICTURE, image_arrays
from gpubeton._gpu.memory import GrowableBuffer, Table
from gpubeton._plan.arena_layout import ALIGNMENT, lay_out_images, lay_out_pixels, round_up
from gpubeton._plan.draw_rows import LEFT, TOP
from gpubeton._plan.jpeg_windows import aligned
from gpubeton._plan.routes import DecodeRoute

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from gpubeton._gpu.cuda import Device, Event, Memory, PinnedMemory
    from gpubeton._gpu.entry_decoder import EntryImages
    from gpubeton._gpu.launch import KernelImages
    from gpubeton._plan.image_job import BadImage, ImageJob


# Plain numbers: a member of an IntEnum takes numpy longer to compare than a batch of small images.
_HARDWARE, _CPU, _BYTES = map(int, (DecodeRoute.HARDWARE, DecodeRoute.CPU, DecodeRoute.BYTES))
_NONE = np.zeros(0, np.intp)
_SHORT = 1 << 20  # most bytes of staging memory of a batch that needs no thread


class Slot:
    """The memory of one batch on its way through the GPU."""

    # It may be used for another batch only after the **host** has waited for `done`: the JPEG engines of Hopper write
    # when they are called, so no wait in a stream protects the memory.

    def __init__(self, device: Device) -> None:
        # compressed bytes and pixels to send
        self.staging: GrowableBuffer[PinnedMemory] = GrowableBuffer(device.allocate_pinned)
        self.arena: GrowableBuffer[Memory] = GrowableBuffer(device.allocate)  # decoded images
        self.taps: GrowableBuffer[Memory] = GrowableBuffer(device.allocate)  # weights of the resampling
        # uint8 images before their steps, and what steps need
        self.resampled: GrowableBuffer[Memory] = GrowableBuffer(device.allocate)
        self.table = Table(device)  # the description of the batch
        self.done = device.make_event()  # after the last kernel that reads any of it
        self.images: list[KernelImages] = []  # of the last batch, with its launches; most batches have the same
        self.prepared_for: list[Any] = []  # what these depend on
        self.buffers = (self.staging, self.arena, self.taps, self.resampled, *self.table.buffers)


class DecodedImages(NamedTuple):
    """Images of one field that are decoded into the arena, for all outputs that use them; what a decoder is asked."""

    program: int  # the first output that uses them
    # (M,): rows of the batch, sorted by route, chroma sampling and size, so that the images of one call are alike
    rows: NDArray[np.intp]
    routes: NDArray[np.int8]  # (M,): a DecodeRoute for each
    # (M,): compressed bytes in pinned memory, unchanged until the batch is collected, and first pixel in the arena.
    # Until `Batch.place` target and address, unless the source is pinned, are offsets in their memory.
    address: NDArray[np.uint64]
    target: NDArray[np.uint64]
    size: NDArray[np.uint64]  # (M,): compressed bytes
    pitch: NDArray[np.int32]  # (M,): bytes from one row of pixels to the next
    height: NDArray[np.int32]  # (M,): in pixels; markers and metadata agree
    width: NDArray[np.int32]  # (M,)

    def take(self, which: Any) -> DecodedImages:
        """Take some of the images."""
        return DecodedImages(self.program, *(column[which] for column in self[1:]))


class SentPixels(NamedTuple):
    """Images of one output that are sent to the device as pixels: first crops, then what the CPU's workers make."""

    program: int
    crops: Any  # rows of the crops, as an index: a slice for all rows, which numpy copies several times as fast
    finished: NDArray[np.intp]  # (M,): rows of the images with final size and paints
    within: NDArray[np.uint64]  # (N,): first byte of each of these images, from the beginning of the crops
    pitch: NDArray[np.int32]  # (N,): bytes from one row of pixels to the next
    crops_nbytes: int  # with the gap after them
    nbytes: int  # of all
    offset: int  # in the arena
    staged: int  # in staging memory


@dataclass(eq=False)
class Batch:
    """One batch on its way through the GPU. Images are named by the first program that uses them, and their row."""

    jobs: Sequence[ImageJob]  # for each program
    sources: Sequence[int]  # for each program the first one with the same stored images

    # 1. The layout.
    decoded: list[DecodedImages] = field(default_factory=list)  # none is empty
    sent: list[SentPixels] = field(default_factory=list)  # of each output that has any
    pictures: list[NDArray[np.void]] = field(default_factory=list)  # of each output: PICTURE (N,), see `place`
    draws: list[NDArray[np.int32]] = field(default_factory=list)  # (N, columns), changed for images that are sent
    entry_images: dict[int, EntryImages] = field(default_factory=dict)  # by program: images that our decoder makes
    arena_nbytes: int = 0  # with room at the end: kernels read 16 bytes at a time, also past the last image
    staging_nbytes: int = 0

    # 2. The memory.
    slot: Slot = field(init=False)
    arena: int = 0  # addresses
    staging: int = 0
    nonce: int = 0  # the seed of its canaries
    images: list[KernelImages] = field(default_factory=list)  # of each program, for the kernels

    # 3. What is under way.
    issuing: threading.Lock = field(default_factory=threading.Lock)  # held while the feeder's thread has the batch
    decoding: list[Event] = field(default_factory=list)  # the end of what the decoders do
    status: list[NDArray[np.int32]] = field(default_factory=list)  # for each program (N,) int32, 0 for success
    # The first program, the rows (M,) and the entry decoder's flags (M,), which are read when the batch is done.
    flagged: list[tuple[int, NDArray[np.intp], NDArray[np.int32]]] = field(default_factory=list)

    # 4. What went wrong.
    refused: set[tuple[int, int]] = field(default_factory=set)  # images that a decoder refused
    damaged: set[tuple[int, int]] = field(default_factory=set)  # images whose bytes differ from their checksums
    bad: list[BadImage] = field(default_factory=list)  # images that cannot be made
    has_failed: bool = False  # as a whole; the feeder has the error

    def reserve(self, slot: Slot, nonce: int) -> None:
        """Take the memory of a slot."""
        for images in self.entry_images.values():
            images.offset, images.staged = self.arena_nbytes, self.staging_nbytes
            self.arena_nbytes += round_up(images.nbytes)
            self.staging_nbytes += round_up(images.nbytes)
        self.slot, self.nonce = slot, nonce
        self.place(slot.arena.reserve(self.arena_nbytes).address, slot.staging.reserve(self.staging_nbytes).address)

    def place(self, arena: int, staging: int) -> None:
        """Turn offsets into addresses, and complete the pictures, as the kernels need them."""
        self.arena, self.staging = arena, staging
        for pixels in self.sent:
            self.pictures[pixels.program]["address"] = pixels.within + np.uint64(arena + pixels.offset)
        for number, decoded in enumerate(self.decoded):
            start, rows = 0 if self.jobs[decoded.program].is_pinned else staging, decoded.rows
            target, address = decoded.target + np.uint64(arena), decoded.address + np.uint64(start)
            self.decoded[number] = decoded._replace(target=target, address=address)
            for source, pictures in zip(self.sources, self.pictures, strict=True):
                if source == decoded.program:
                    pictures["address"][rows], pictures["pitch"][rows] = target, decoded.pitch
                    pictures["height"][rows], pictures["width"][rows] = decoded.height, decoded.width
                    pictures["is_guarded"][rows] = 1

    def arrays(self) -> dict[Hashable, NDArray[Any]]:
        """Describe the batch for the kernels."""
        arrays: dict[Hashable, NDArray[Any]] = {}
        for number, job in enumerate(self.jobs):
            arrays |= image_arrays(number, self.pictures[number], self.draws[number], job.steps)
            if number in self.entry_images:
                arrays |= self.entry_images[number].arrays(job)
        for pixels in self.sent:
            if pixels.crops_nbytes and self.jobs[pixels.program].is_pinned:
                arrays[pixels.program, "gathers"] = self.gathers(pixels)
        return arrays

    def gathers(self, pixels: SentPixels) -> NDArray[np.void]:  # (M,) GATHER
        """Describe the copy of each crop of an output from pinned memory to the arena."""
        job, crops = self.jobs[pixels.program], pixels.crops
        pictures, width, draws = self.pictures[pixels.program][crops], job.width[crops], job.draws[crops]
        rows, pitch = np.zeros(len(pictures), GATHER), 3 * width.astype(np.int64)
        first = draws[:, TOP] * pitch + 3 * draws[:, LEFT]
        rows["source"] = job.address[crops] + first.astype(np.uint64)
        rows["target"], rows["source_pitch"], rows["target_pitch"] = pictures["address"], pitch, pictures["pitch"]
        rows["row_bytes"], rows["rows"] = 3 * pictures["width"], pictures["height"]
        return rows

    @property
    def is_quick(self) -> bool:
        """Whether putting it into the queues waits for nothing, and copies little."""
        return not (self.decoded or self.entry_images or self.finished or self.staging_nbytes > _SHORT)

    def wait(self) -> None:
        """Wait until all of it is queued, or an error was raised."""
        # A lock: making an Event takes longer than most waits for it.
        with self.issuing:
            pass

    @property
    def finished(self) -> dict[int, SentPixels]:
        """The images that the CPU's workers make, by program."""
        return {pixels.program: pixels for pixels in self.sent if len(pixels.finished)}

    @property
    def is_complete(self) -> bool:
        """Whether no image is missing, once the batch is done; few batches miss any."""
        if self.refused or self.damaged or any(np.count_nonzero(flags) for _, _, flags in self.flagged):
            return False
        return not any(map(np.count_nonzero, self.status))

    @property
    def failed(self) -> set[tuple[int, int]]:
        """Images that a decoder could or should not decode."""
        failed = self.refused | self.damaged
        for source, rows, flags in self.flagged:
            failed.update((source, int(row)) for row in rows[flags != 0])
        return failed

    @property
    def left_out(self) -> set[tuple[int, int]]:
        """Images that the kernels found not to be decoded."""
        left_out: set[tuple[int, int]] = set()
        for source, status in zip(self.sources, self.status, strict=False):
            left_out.update((source, row) for row in status.nonzero()[0].tolist())
        return left_out


def lay_out_batch(
    programs: Sequence[Any],  # `ImageProgram`s, or what else has their height and width
    jobs: Sequence[ImageJob],
    sources: Sequence[int],
    routes: Sequence[NDArray[np.int8]],
    samplings: Sequence[NDArray[np.int32]],
) -> Batch:
    """Lay out a batch; outputs with the same source share its decoded images."""
    batch = Batch(jobs, sources)
    arena = staging = 0
    for number, (program, job, taken) in enumerate(zip(programs, jobs, routes, strict=True)):
        count = len(taken)
        pictures, draws = np.zeros(count, PICTURE), job.draws.copy()
        within, pitch = np.zeros(count, np.uint64), np.zeros(count, np.int32)
        words = pictures.view(np.int32)
        crops, stop_of_crops, nbytes = lay_out_pixels(taken, program.height, program.width, draws, words, within, pitch)
        batch.pictures.append(pictures)
        batch.draws.append(draws)
        if sources[number] == number and crops < count:
            rows = np.flatnonzero(taken == _HARDWARE)
            if len(rows):
                rows = rows[np.lexsort((-job.size[rows].astype(np.int64), samplings[number][rows], taken[rows]))]
                decoded, arena, staging = _lay_out_decoded(number, job, rows, taken[rows], arena, staging)
                batch.decoded.append(decoded)
        if nbytes:
            where = slice(None) if crops == count else np.flatnonzero(taken == _BYTES)
            finished = np.flatnonzero(taken == _CPU) if nbytes > stop_of_crops else _NONE
            batch.sent.append(SentPixels(number, where, finished, within, pitch, stop_of_crops, nbytes, arena, staging))
            arena += nbytes
            staging += nbytes
    batch.arena_nbytes, batch.staging_nbytes = arena + ALIGNMENT, round_up(max(staging, 1))
    return batch


def _lay_out_decoded(
    number: int, job: ImageJob, rows: NDArray[np.intp], routes: NDArray[np.int8], arena: int, staging: int
) -> tuple[DecodedImages, int, int]:
    """Lay out the images of one field that are decoded; return also the ends of arena and staging memory."""
    height, width, size = job.height[rows], job.width[rows], job.size[rows]
    layout = lay_out_images(height, width, start=arena)
    staged_nbytes = aligned(size) * (not job.is_pinned)
    stop = staging + np.cumsum(staged_nbytes)
    address = job.address[rows] if job.is_pinned else (stop - staged_nbytes).astype(np.uint64)
    images = DecodedImages(number, rows, routes, address, layout.offset, size, layout.pitch, height, width)
    return images, layout.nbytes, round_up(int(stop[-1]))
