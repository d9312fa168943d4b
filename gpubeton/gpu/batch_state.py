"""BatchState: one batch on its way through the GPU."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.gpu.device_structs import KernelImages, describe_images, image_arrays

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from gpubeton.gpu.batch_memory import Slot
    from gpubeton.gpu.memory_layout import MemoryLayout
    from gpubeton.plan.image_executor import BadImage, ImageJob
    from gpubeton.plan.program import ImageProgram


@dataclass(eq=False)
class BatchState:
    """One batch on its way through the GPU.

    Parameters
    ----------
    slot : Slot
        Its memory.
    jobs : sequence of ImageJob
        A job for each program.
    sources : sequence of int
        For each program the first one with the same stored images.
    placement : Placement
        Where everything lies in the slot.
    nonce : int
        What its sentinels are made of.
    sends_levels : bool
        Whether workers of the CPU make some of its images.

    Attributes
    ----------
    images : list of Images
        Its images as the kernels find them.
    gathers : dict of int to int
        Where on the device it is written what is copied from pinned memory, for programs that need it.
    status : list of ndarray of int32, shape (N,)
        For each program what the kernels say of each image; 0 is well.
    refused : dict of (int, int) to str
        Images that a decoder refused: the first program with these stored images, the row, and why.
    bad : list of BadImage
        Images that cannot be made.
    error : BaseException or None
        What went wrong with the batch as a whole.
    is_issued : threading.Event
        Set when all of it is in the streams' queues, or something went wrong.
    """

    slot: Slot
    jobs: Sequence[ImageJob]
    sources: Sequence[int]
    placement: MemoryLayout
    nonce: int
    needs_cpu: bool
    images: list[KernelImages] = field(default_factory=list)
    gathers: dict[int, int] = field(default_factory=dict)
    status: list[NDArray[np.int32]] = field(default_factory=list)
    refused: dict[tuple[int, int], str] = field(default_factory=dict)
    bad: list[BadImage] = field(default_factory=list)
    error: BaseException | None = None
    is_issued: threading.Event = field(default_factory=threading.Event)

    def describe(self, programs: Sequence[ImageProgram], arena: int) -> None:
        """Write down for the kernels what is to be done, in the slot's table.

        Parameters
        ----------
        programs : sequence of ImageProgram
            The programs.
        arena : int
            Address of the slot's arena.
        """
        arrays: dict[Hashable, NDArray[Any]] = {}
        for number, (program, job) in enumerate(zip(programs, self.jobs, strict=True)):
            pictures = self.placement.pictures(number, job, self.sources, arena)
            draws = self.placement.draws(number, job)
            arrays |= image_arrays(number, program, pictures, draws, job.colours)
            for one in self.placement.sent:
                if one.program == number and not one.is_finished and job.is_pinned:
                    arrays[number, "gathers"] = one.gathers(job, arena)
        places = self.slot.table.fill(arrays)
        self.images = [
            describe_images(number, program, job, places, self.nonce)
            for number, (program, job) in enumerate(zip(programs, self.jobs, strict=True))
        ]
        numbers = range(len(self.jobs))
        self.gathers = {number: places[number, "gathers"] for number in numbers if (number, "gathers") in places}

    @property
    def missing(self) -> set[tuple[int, int]]:
        """Images that nvJPEG did not decode: the first program with these stored images, and the row."""
        found = set(self.refused)
        for number, status in enumerate(self.status):
            found.update((self.sources[number], row) for row in np.flatnonzero(status).tolist())
        return found


def shared_sources(jobs: Sequence[ImageJob]) -> list[int]:
    """Find jobs that are made of the same stored images.

    Parameters
    ----------
    jobs : sequence of ImageJob
        The jobs of a batch.

    Returns
    -------
    list of int
        For each the first job with the same source; itself if the source has no name.
    """
    first: dict[str, int] = {}
    return [number if not job.source else first.setdefault(job.source, number) for number, job in enumerate(jobs)]
