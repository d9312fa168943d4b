"""Memory layout: offsets of a batch's images in staging memory and in the arena on the device; pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton.gpu.device_structs import GATHER, PICTURE
from gpubeton.plan.draw_rows import FLIP, HEIGHT, LEFT, NUM_PAINTS, TOP, WIDTH
from gpubeton.plan.jpeg_parts import aligned
from gpubeton.plan.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.plan.image_executor import ImageJob
    from gpubeton.plan.program import ImageProgram

ALIGNMENT = 256
"""Images begin at multiples of this, as allocations of the device do."""

_PITCH = 32


class ArenaLayout(NamedTuple):
    """Offsets of images in an arena."""

    offset: NDArray[np.uint64]  # (N,): first byte of each
    pitch: NDArray[np.int32]  # (N,): bytes from one row to the next
    nbytes: int  # from the arena's beginning to the end of the last


def lay_out_images(
    height: NDArray[Any],  # (N,) integers
    width: NDArray[Any],  # (N,) integers
    *,
    start: int = 0,
    is_tight: bool = False,
) -> ArenaLayout:
    """Place RGB images one after another, from `start`; `is_tight` leaves no gap between rows or images."""
    pitch = 3 * width.astype(np.int64)
    pitch = pitch if is_tight else (pitch + (_PITCH - 1)) & -_PITCH
    size = pitch * height if is_tight else round_up(pitch * height)
    start = round_up(start)
    stop = start + size.cumsum()
    nbytes = round_up(int(stop[-1])) if len(stop) else start
    return ArenaLayout((stop - size).astype(np.uint64), pitch.astype(np.int32), nbytes)


def round_up(nbytes: Any) -> Any:
    """Round a number of bytes, or an array of them, up to a multiple of `ALIGNMENT`."""
    return (nbytes + (ALIGNMENT - 1)) & -ALIGNMENT


# Plain numbers: a member of an IntEnum takes numpy longer to compare than a batch of small images.
_HARDWARE, _OWN, _LIBRARY, _CPU, _BYTES = map(int, (Lane.HARDWARE, Lane.OWN, Lane.LIBRARY, Lane.CPU, Lane.BYTES))


@dataclass(frozen=True, eq=False)
class DecodedImages:
    """Images of one field that are decoded into the arena, for all outputs that use them."""

    program: int  # the first output that uses them
    # (M,): rows of the batch, sorted by lane, chroma sampling and size, so that the images of one call are alike
    rows: NDArray[np.intp]
    lanes: NDArray[np.int8]  # (M,): a Lane for each
    offset: NDArray[np.uint64]  # (M,): first byte in the arena
    pitch: NDArray[np.int32]  # (M,): bytes from one row of pixels to the next
    staged: NDArray[np.uint64]  # (M,): first compressed byte in staging memory; unused for pinned sources


@dataclass(frozen=True, eq=False)
class SentPixels:
    """Images of one output that are sent to the device as pixels, in one copy."""

    program: int
    rows: NDArray[np.intp]  # (M,): rows of the batch
    where: Any  # the same as an index: a slice for all rows, which numpy copies several times as fast
    height: NDArray[np.int32]  # (M,): size of the pixels that are sent
    width: NDArray[np.int32]
    within: NDArray[np.uint64]  # (M,): first byte within the copy
    pitch: NDArray[np.int32]  # (M,): bytes from one row to the next; of crops a multiple of 32, for the kernel's speed
    nbytes: int  # of the copy
    offset: int  # of the copy in the arena
    staged: int  # of the copy in staging memory
    is_finished: bool  # made by the CPU, with final size and paints; otherwise crops

    def gathers(self, job: ImageJob, arena: int) -> NDArray[np.void]:  # (M,) GATHER
        """Describe the copy of each crop from pinned memory to the arena."""
        rows = np.zeros(len(self.rows), GATHER)
        width, draws = job.width[self.where].astype(np.int64), job.draws[self.where]
        first = (draws[:, TOP] * width + draws[:, LEFT]) * 3
        rows["source"] = job.address[self.where] + first.astype(np.uint64)
        rows["target"] = self.within + np.uint64(arena + self.offset)
        rows["source_pitch"], rows["target_pitch"] = 3 * width, self.pitch
        rows["row_bytes"], rows["rows"] = 3 * self.width, self.height
        return rows


@dataclass(frozen=True, eq=False)
class MemoryLayout:
    """Offsets of all images of a batch."""

    lanes: list[NDArray[np.int8]]  # for each output (N,), a Lane for each image
    decoded: list[DecodedImages]  # none is empty
    sent: list[SentPixels]
    arena_nbytes: int  # with room at the end: kernels read 16 bytes at a time, also past the last image
    staging_nbytes: int

    def pictures(self, program: int, job: ImageJob, sources: Sequence[int], arena: int) -> NDArray[np.void]:
        """Describe the images of one output for the kernels: PICTURE (N,)."""
        pictures = np.zeros(len(job.address), PICTURE)
        # Those with a negative row are made otherwise.
        pictures["row"] = np.arange(len(pictures))
        pictures["row"][self.lanes[program] == _OWN] = -1
        for own in self.decoded:
            if own.program == sources[program]:
                rows = own.rows
                pictures["address"][rows], pictures["pitch"][rows] = own.offset + np.uint64(arena), own.pitch
                pictures["height"][rows], pictures["width"][rows] = job.height[rows], job.width[rows]
                pictures["is_guarded"][rows] = 1
        for one in self.sent:
            if one.program == program:
                rows, address = one.where, one.within + np.uint64(arena + one.offset)
                pictures["address"][rows], pictures["pitch"][rows] = address, one.pitch
                pictures["height"][rows], pictures["width"][rows] = one.height, one.width
        return pictures

    def draws(self, program: int, job: ImageJob) -> NDArray[np.int32]:  # (N, columns) int32
        """Return the draws of one output, changed for images of which only the crop, or the finished image, is sent."""
        draws = job.draws
        for one in self.sent:
            if one.program == program:
                draws = draws.copy() if draws is job.draws else draws
                draws[one.where, TOP] = draws[one.where, LEFT] = 0
                if one.is_finished:
                    draws[one.where, HEIGHT], draws[one.where, WIDTH] = one.height, one.width
                    draws[one.where, FLIP : NUM_PAINTS + 1] = 0
        return np.ascontiguousarray(draws, np.int32)


def lay_out_batch(
    programs: Sequence[ImageProgram],
    jobs: Sequence[ImageJob],
    sources: Sequence[int],
    lanes: Sequence[NDArray[np.int8]],
    samplings: Sequence[NDArray[np.int32]],
) -> MemoryLayout:
    """Lay out a batch; outputs with the same source share its decoded images."""
    decoded: list[DecodedImages] = []
    sent: list[SentPixels] = []
    arena = staging = 0
    for number, (program, job) in enumerate(zip(programs, jobs, strict=True)):
        own = lanes[number]
        # Most batches take one lane.
        taken = np.bincount(own, minlength=len(Lane)).tolist()
        if sources[number] == number and (taken[_HARDWARE] or taken[_LIBRARY]):
            rows = np.flatnonzero((own == _HARDWARE) | (own == _LIBRARY))
            rows = rows[np.lexsort((-job.size[rows].astype(np.int64), samplings[number][rows], own[rows]))]
            layout = lay_out_images(job.height[rows], job.width[rows], start=arena)
            size = aligned(job.size[rows]) * (not job.is_pinned)
            stop = staging + np.cumsum(size)
            staged = (stop - size).astype(np.uint64)
            decoded.append(DecodedImages(number, rows, own[rows], layout.offset, layout.pitch, staged))
            arena, staging = layout.nbytes, round_up(int(stop[-1]))
        for lane in (_BYTES, _CPU):
            if not taken[lane]:
                continue
            (rows,) = (own == lane).nonzero()
            where, is_finished = slice(None) if len(rows) == len(own) else rows, lane == _CPU
            height = np.full(len(rows), program.height, np.int32) if is_finished else job.draws[where, HEIGHT]
            width = np.full(len(rows), program.width, np.int32) if is_finished else job.draws[where, WIDTH]
            layout = lay_out_images(height, width, is_tight=is_finished)
            sent.append(SentPixels(number, rows, where, height, width, *layout, arena, staging, is_finished))
            arena += layout.nbytes
            staging += layout.nbytes
    return MemoryLayout(list(lanes), decoded, sent, arena + ALIGNMENT, max(staging, 1))
