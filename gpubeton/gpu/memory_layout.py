"""Memory layout: offsets of a batch's images in staging memory and on the device; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton.gpu.device_structs import GATHER, PICTURE
from gpubeton.plan.draws import DRAW_COLUMNS, FLIP, HEIGHT, LEFT, NUM_PAINTS, SHIFT_X, SHIFT_Y, TOP, WIDTH
from gpubeton.plan.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.plan.image_executor import ImageJob
    from gpubeton.plan.program import ImageProgram

ALIGNMENT = 256
"""An image begins at a multiple of this, as memory of the device does."""

_PITCH = 32


class ArenaLayout(NamedTuple):
    """Places of images in an arena.

    Parameters
    ----------
    offset : ndarray of uint64, shape (N,)
        First byte of each.
    pitch : ndarray of int32, shape (N,)
        Bytes from one row to the next.
    nbytes : int
        Bytes of all.
    """

    offset: NDArray[np.uint64]
    pitch: NDArray[np.int32]
    nbytes: int


def lay_out_images(height: NDArray[Any], width: NDArray[Any], *, start: int = 0, is_tight: bool = False) -> ArenaLayout:
    """Place RGB images one behind another.

    Parameters
    ----------
    height, width : ndarray of integers, shape (N,)
        Their sizes in pixels.
    start : int
        Bytes in front of them.
    is_tight : bool
        True leaves nothing between rows, nor between images.

    Returns
    -------
    Layout
        Their places; `nbytes` counts from the arena's beginning.

    Examples
    --------
    >>> layout = lay_out_images(np.array([10, 4]), np.array([20, 5]))
    >>> layout.offset.tolist(), layout.pitch.tolist(), layout.nbytes
    ([0, 768], [64, 32], 1024)
    """
    row = 3 * width.astype(np.int64)
    pitch = row if is_tight else -(-row // _PITCH) * _PITCH
    size = pitch * height
    if not is_tight:
        size = -(-size // ALIGNMENT) * ALIGNMENT
    start = round_up(start)
    stop = start + np.cumsum(size)
    return ArenaLayout(
        (stop - size).astype(np.uint64), pitch.astype(np.int32), round_up(int(stop[-1])) if len(stop) else start
    )


def round_up(nbytes: int) -> int:
    """Round a number of bytes up to a multiple of `ALIGNMENT`.

    Parameters
    ----------
    nbytes : int
        A number of bytes.

    Returns
    -------
    int
        The next multiple.

    Examples
    --------
    >>> round_up(257)
    512
    """
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


# What nvJPEG reads starts at a multiple of this.
_STAGING_ALIGNMENT = 16


@dataclass(frozen=True, eq=False)
class DecodedImages:
    """Images of one field that nvJPEG decodes, for all the outputs that are made of it.

    Parameters
    ----------
    program : int
        The first output that is made of them.
    rows : ndarray of intp, shape (M,)
        Which images of the batch: those of one lane and one chroma sampling together, the largest first, so that the
        images of one call are alike.
    lanes : ndarray of int8, shape (M,)
        How each is decoded.
    offset : ndarray of uint64, shape (M,)
        First byte of each in the arena.
    pitch : ndarray of int32, shape (M,)
        Bytes from one row of pixels to the next.
    staged : ndarray of uint64, shape (M,)
        First byte of each one's compressed bytes in the staging memory; of no meaning if they are in pinned memory
        already.
    """

    program: int
    rows: NDArray[np.intp]
    lanes: NDArray[np.int8]
    offset: NDArray[np.uint64]
    pitch: NDArray[np.int32]
    staged: NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class SentPixels:
    """Images of one output that are sent to the device as pixels, in one copy.

    Parameters
    ----------
    program : int
        Which output.
    rows : ndarray of intp, shape (M,)
        Which images of the batch.
    height, width : ndarray of int32, shape (M,)
        Sizes of what is sent.
    within : ndarray of uint64, shape (M,)
        First byte of each within the copy.
    pitch : ndarray of int32, shape (M,)
        Bytes from one row of pixels to the next. Of crops a multiple of 32: the kernel is faster then.
    nbytes : int
        Bytes of the copy.
    offset : int
        Where it begins in the arena.
    staged : int
        Where it begins in the staging memory.
    is_finished : bool
        Whether they have their final size, and paints, already (made by the CPU); otherwise they are crops.
    """

    program: int
    rows: NDArray[np.intp]
    height: NDArray[np.int32]
    width: NDArray[np.int32]
    within: NDArray[np.uint64]
    pitch: NDArray[np.int32]
    nbytes: int
    offset: int
    staged: int
    is_finished: bool

    def gathers(self, job: ImageJob, arena: int) -> NDArray[np.void]:
        """Say what is copied from where to where, if the stored images are in pinned memory.

        Parameters
        ----------
        job : ImageJob
            The images of the output.
        arena : int
            Address of the arena.

        Returns
        -------
        ndarray of GATHER, shape (M,)
            The rows of each crop.
        """
        rows = np.zeros(len(self.rows), GATHER)
        width, draws = job.width[self.rows].astype(np.int64), job.draws[self.rows]
        first = (draws[:, TOP] * width + draws[:, LEFT]) * 3
        rows["source"] = job.address[self.rows] + first.astype(np.uint64)
        rows["target"] = self.within + np.uint64(arena + self.offset)
        rows["source_pitch"], rows["target_pitch"] = 3 * width, self.pitch
        rows["row_bytes"], rows["rows"] = 3 * self.width, self.height
        return rows


@dataclass(frozen=True, eq=False)
class MemoryLayout:
    """Where everything of a batch will lie.

    Parameters
    ----------
    lanes : list of ndarray of int8, shape (N,)
        For each output, how each image is decoded.
    decoded : list of Decoded
        Images that nvJPEG decodes.
    sent : list of Sent
        Images that are sent as pixels.
    arena_nbytes, staging_nbytes : int
        Memory that is needed; kernels read the arena in pieces of 16 bytes, which may reach behind the last image.
    """

    lanes: list[NDArray[np.int8]]
    decoded: list[DecodedImages]
    sent: list[SentPixels]
    arena_nbytes: int
    staging_nbytes: int

    def pictures(self, program: int, job: ImageJob, sources: Sequence[int], arena: int) -> NDArray[np.void]:
        """Describe the images of one output for the kernels.

        Parameters
        ----------
        program : int
            Which output.
        job : ImageJob
            Its images.
        sources : sequence of int
            For each output the first one with the same stored images.
        arena : int
            Address of the arena.

        Returns
        -------
        ndarray of PICTURE, shape (N,)
            In the batch's order.
        """
        pictures = np.zeros(len(job.address), PICTURE)
        pictures["row"] = np.arange(len(pictures))
        for own in self.decoded:
            if own.program == sources[program]:
                rows = own.rows
                pictures["address"][rows] = own.offset + np.uint64(arena)
                pictures["pitch"][rows] = own.pitch
                pictures["height"][rows], pictures["width"][rows] = job.height[rows], job.width[rows]
                pictures["is_guarded"][rows] = 1
        for one in self.sent:
            if one.program == program:
                rows = one.rows
                pictures["address"][rows] = one.within + np.uint64(arena + one.offset)
                pictures["pitch"][rows] = one.pitch
                pictures["height"][rows], pictures["width"][rows] = one.height, one.width
        return pictures

    def draws(self, program: int, job: ImageJob) -> NDArray[np.int32]:
        """Give the draws of one output, changed where a crop, or the finished image, is all that is sent.

        Parameters
        ----------
        program : int
            Which output.
        job : ImageJob
            Its images.

        Returns
        -------
        ndarray of int32, shape (N, columns)
            See `gpubeton.plan.draws`.
        """
        draws = job.draws
        for one in self.sent:
            if one.program == program and len(one.rows):
                draws = draws.copy() if draws is job.draws else draws
                draws[one.rows, TOP] = draws[one.rows, LEFT] = 0
                if one.is_finished:
                    draws[one.rows, HEIGHT], draws[one.rows, WIDTH] = one.height, one.width
                    for column in (FLIP, SHIFT_Y, SHIFT_X, NUM_PAINTS):
                        draws[one.rows, column] = 0
        return np.ascontiguousarray(draws, np.int32)


def lay_out_batch(
    programs: Sequence[ImageProgram],
    jobs: Sequence[ImageJob],
    sources: Sequence[int],
    lanes: Sequence[NDArray[np.int8]],
    samplings: Sequence[NDArray[np.int32]],
) -> MemoryLayout:
    """Decide where everything of a batch will lie.

    Parameters
    ----------
    programs : sequence of ImageProgram
        The outputs.
    jobs : sequence of ImageJob
        Their images.
    sources : sequence of int
        For each output the first one with the same stored images; these are decoded once.
    lanes : sequence of ndarray of int8, shape (N,)
        For each output, how each image is decoded.
    samplings : sequence of ndarray of int32, shape (N,)
        For each output, how the chroma of each image is sampled.

    Returns
    -------
    Placement
        Offsets from the beginnings of arena and staging memory.
    """
    decoded: list[DecodedImages] = []
    sent: list[SentPixels] = []
    arena = staging = 0
    for number, (program, job) in enumerate(zip(programs, jobs, strict=True)):
        own = lanes[number]
        if sources[number] == number:
            one = _place_decoded(number, job, own, samplings[number], arena, staging)
            decoded.append(one.decoded)
            arena, staging = one.arena, one.staging
        for lane in (Lane.BYTES, Lane.CPU):
            rows = np.flatnonzero(own == lane)
            if len(rows) == 0:
                continue
            is_finished = lane is Lane.CPU
            height = np.full(len(rows), program.height, np.int32) if is_finished else job.draws[rows, HEIGHT]
            width = np.full(len(rows), program.width, np.int32) if is_finished else job.draws[rows, WIDTH]
            layout = lay_out_images(height, width, is_tight=is_finished)
            sent.append(
                SentPixels(
                    number, rows, height, width, layout.offset, layout.pitch, layout.nbytes, arena, staging, is_finished
                )
            )
            arena += layout.nbytes
            staging += layout.nbytes
    return MemoryLayout(list(lanes), decoded, sent, arena + ALIGNMENT, max(staging, 1))


class _Placed(NamedTuple):
    decoded: DecodedImages
    arena: int
    staging: int


def _place_decoded(
    number: int, job: ImageJob, lanes: NDArray[np.int8], sampling: NDArray[np.int32], arena: int, staging: int
) -> _Placed:
    """Place what nvJPEG decodes behind `arena` and `staging`; return that and the new ends of both."""
    rows = np.flatnonzero(lanes <= Lane.HYBRID)
    size = job.size[rows].astype(np.int64)
    rows = rows[np.lexsort((-size, sampling[rows], lanes[rows]))]
    layout = lay_out_images(job.height[rows], job.width[rows], start=arena)
    size = -(-job.size[rows].astype(np.int64) // _STAGING_ALIGNMENT) * _STAGING_ALIGNMENT * (not job.is_pinned)
    stop = staging + np.cumsum(size)
    staged = (stop - size).astype(np.uint64)
    decoded = DecodedImages(number, rows, lanes[rows], layout.offset, layout.pitch, staged)
    return _Placed(decoded, layout.nbytes, round_up(int(stop[-1])) if len(rows) else staging)


def identity_draws(height: int, width: int, columns: int = DRAW_COLUMNS) -> NDArray[np.int32]:
    """Give the draws of one image that is copied as it is.

    Parameters
    ----------
    height, width : int
        Its size in pixels.
    columns : int
        Numbers in a row of draws.

    Returns
    -------
    ndarray of int32, shape (1, columns)
        A crop of everything.
    """
    draws = np.zeros((1, columns), np.int32)
    draws[0, HEIGHT], draws[0, WIDTH] = height, width
    return draws
