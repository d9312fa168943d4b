"""Memory layout: offsets of a batch's images in staging memory and in the arena on the device; pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton._gpu.device_structs import GATHER, PICTURE
from gpubeton._plan.draw_rows import LEFT, TOP
from gpubeton._plan.jpeg_parts import aligned
from gpubeton._plan.lanes import Lane
from gpubeton._plan.pixel_places import ALIGNMENT, lay_out_images, place_pixels, round_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._plan.image_executor import ImageJob


# Plain numbers: a member of an IntEnum takes numpy longer to compare than a batch of small images.
_HARDWARE, _CPU, _BYTES = map(int, (Lane.HARDWARE, Lane.CPU, Lane.BYTES))
_NONE = np.zeros(0, np.intp)


class DecodedImages(NamedTuple):
    """Images of one field that are decoded into the arena, for all outputs that use them."""

    program: int  # the first output that uses them
    # (M,): rows of the batch, sorted by lane, chroma sampling and size, so that the images of one call are alike
    rows: NDArray[np.intp]
    lanes: NDArray[np.int8]  # (M,): a Lane for each
    offset: NDArray[np.uint64]  # (M,): first byte in the arena
    pitch: NDArray[np.int32]  # (M,): bytes from one row of pixels to the next
    staged: NDArray[np.uint64]  # (M,): first compressed byte in staging memory; unused for pinned sources


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


class MemoryLayout:
    """Offsets of all images of a batch."""

    def __init__(self) -> None:
        self.decoded: list[DecodedImages] = []  # none is empty
        self.sent: list[SentPixels] = []  # of each output that has any
        self.pictures: list[NDArray[np.void]] = []  # of each output: PICTURE (N,), complete after `place`
        self.draws: list[NDArray[np.int32]] = []  # of each output: (N, columns), changed for images that are sent
        self.arena_nbytes = 0  # with room at the end: kernels read 16 bytes at a time, also past the last image
        self.staging_nbytes = 0

    def place(self, jobs: Sequence[ImageJob], sources: Sequence[int], arena: int) -> None:
        """Complete the pictures, as the kernels need them, for an arena at this address."""
        for one in self.sent:
            self.pictures[one.program]["address"] = one.within + np.uint64(arena + one.offset)
        for own in self.decoded:
            for job, source, pictures in zip(jobs, sources, self.pictures, strict=True):
                if source == own.program:
                    rows = own.rows
                    pictures["address"][rows], pictures["pitch"][rows] = own.offset + np.uint64(arena), own.pitch
                    pictures["height"][rows], pictures["width"][rows] = job.height[rows], job.width[rows]
                    pictures["is_guarded"][rows] = 1

    def gathers(self, one: SentPixels, job: ImageJob) -> NDArray[np.void]:  # (M,) GATHER
        """Describe the copy of each crop of an output from pinned memory to the arena."""
        pictures, width, draws = self.pictures[one.program][one.crops], job.width[one.crops], job.draws[one.crops]
        rows, pitch = np.zeros(len(pictures), GATHER), 3 * width.astype(np.int64)
        first = draws[:, TOP] * pitch + 3 * draws[:, LEFT]
        rows["source"] = job.address[one.crops] + first.astype(np.uint64)
        rows["target"], rows["source_pitch"], rows["target_pitch"] = pictures["address"], pitch, pictures["pitch"]
        rows["row_bytes"], rows["rows"] = 3 * pictures["width"], pictures["height"]
        return rows


def lay_out_batch(
    programs: Sequence[Any],  # `ImageProgram`s, or what else has their height and width
    jobs: Sequence[ImageJob],
    sources: Sequence[int],
    lanes: Sequence[NDArray[np.int8]],
    samplings: Sequence[NDArray[np.int32]],
) -> MemoryLayout:
    """Lay out a batch; outputs with the same source share its decoded images."""
    made = MemoryLayout()
    arena = staging = 0
    for number, (program, job, own) in enumerate(zip(programs, jobs, lanes, strict=True)):
        count = len(own)
        pictures, draws = np.zeros(count, PICTURE), job.draws.copy()
        within, pitch = np.zeros(count, np.uint64), np.zeros(count, np.int32)
        words = pictures.view(np.int32)
        crops, stop_of_crops, nbytes = place_pixels(own, program.height, program.width, draws, words, within, pitch)
        made.pictures.append(pictures)
        made.draws.append(draws)
        if sources[number] == number and crops < count:
            rows = np.flatnonzero(own == _HARDWARE)
            if len(rows):
                rows = rows[np.lexsort((-job.size[rows].astype(np.int64), samplings[number][rows], own[rows]))]
                layout = lay_out_images(job.height[rows], job.width[rows], start=arena)
                size = aligned(job.size[rows]) * (not job.is_pinned)
                stop = staging + np.cumsum(size)
                staged = (stop - size).astype(np.uint64)
                made.decoded.append(DecodedImages(number, rows, own[rows], layout.offset, layout.pitch, staged))
                arena, staging = layout.nbytes, round_up(int(stop[-1]))
        if nbytes:
            where = slice(None) if crops == count else np.flatnonzero(own == _BYTES)
            finished = np.flatnonzero(own == _CPU) if nbytes > stop_of_crops else _NONE
            made.sent.append(SentPixels(number, where, finished, within, pitch, stop_of_crops, nbytes, arena, staging))
            arena += nbytes
            staging += nbytes
    made.arena_nbytes, made.staging_nbytes = arena + ALIGNMENT, round_up(max(staging, 1))
    return made
