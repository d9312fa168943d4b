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
    from gpubeton.gpu.cuda import Event
    from gpubeton.gpu.decode_backend import DecodeHandle, DecodeRequest
    from gpubeton.gpu.entry_decoder import EntryImages
    from gpubeton.gpu.memory_layout import MemoryLayout
    from gpubeton.plan.image_executor import BadImage, ImageJob
    from gpubeton.plan.program import ImageProgram


@dataclass(eq=False)
class BatchState:
    """One batch on its way through the GPU."""

    slot: Slot
    jobs: Sequence[ImageJob]  # for each program
    sources: Sequence[int]  # for each program the first one with the same stored images
    layout: MemoryLayout  # of the slot
    nonce: int  # the seed of its canaries
    needs_cpu: bool  # whether the CPU's workers make some of its images
    levels: Sequence[int]  # for each program, offset of its levels
    # by program: images that our decoder makes
    entry_images: dict[int, EntryImages] = field(default_factory=dict)
    own_span: tuple[Event, Event] | None = None  # when our decoder begins and ends, if that is measured
    decoding: list[DecodeHandle] = field(default_factory=list)  # what the decoders were asked
    images: list[KernelImages] = field(default_factory=list)  # addresses for the kernels
    # by program: device address of the GATHER rows of crops in pinned memory
    gathers: dict[int, int] = field(default_factory=dict)
    status: list[NDArray[np.int32]] = field(default_factory=list)  # for each program (N,) int32, 0 for success
    # for each program whose images are decoded, what the decoders were asked
    requests: dict[int, DecodeRequest] = field(default_factory=dict)
    # images that a decoder refused: the first program with these stored images, and the row
    refused: set[tuple[int, int]] = field(default_factory=set)
    # the first program, the rows (M,) and the decoder's flags (M,), which are read when the batch is done
    flagged: list[tuple[int, NDArray[np.intp], NDArray[np.int32]]] = field(default_factory=list)
    bad: list[BadImage] = field(default_factory=list)  # images that cannot be made
    error: BaseException | None = None  # of the batch as a whole
    is_issued: threading.Event = field(default_factory=threading.Event)  # all of it is queued, or an error was raised

    def describe(self, programs: Sequence[ImageProgram], taps: Sequence[int], arena: int) -> None:
        """Fill the slot's table with the description of the batch for the kernels."""
        arrays: dict[Hashable, NDArray[Any]] = {}
        for number, (program, job) in enumerate(zip(programs, self.jobs, strict=True)):
            pictures = self.layout.pictures(number, job, self.sources, arena)
            draws = self.layout.draws(number, job)
            arrays |= image_arrays(number, program, pictures, draws, job.colors)
            for one in self.layout.sent:
                if one.program == number and not one.is_finished and job.is_pinned:
                    arrays[number, "gathers"] = one.gathers(job, arena)
            if number in self.entry_images:
                arrays |= self.entry_images[number].arrays(job)
        places = self.slot.table.fill(arrays)
        self.images = [
            describe_images(number, job, taps[number], places, self.nonce) for number, job in enumerate(self.jobs)
        ]
        for own in self.entry_images.values():
            own.places = places
        numbers = range(len(self.jobs))
        self.gathers = {number: places[number, "gathers"] for number in numbers if (number, "gathers") in places}

    @property
    def times(self) -> tuple[float, float] | None:
        """Milliseconds of the engines and of our decoder, when the batch is done; None unless both were measured."""
        if self.own_span is None or not self.entry_images or not self.decoding:
            return None
        (began, ended), engines = self.own_span, self.decoding[-1].event
        started = self.decoding[0].started
        if engines is None or started is None:
            return None
        return engines.milliseconds_since(started), ended.milliseconds_since(began)

    @property
    def failed(self) -> set[tuple[int, int]]:
        """Images that a decoder could not decode: the first program with these stored images, and the row."""
        found = set(self.refused)
        for source, rows, flags in self.flagged:
            found.update((source, int(row)) for row in rows[flags != 0])
        return found

    @property
    def left_out(self) -> set[tuple[int, int]]:
        """Images that the kernels found not to be decoded: the first program with these stored images, and the row."""
        found: set[tuple[int, int]] = set()
        for number, status in enumerate(self.status):
            found.update((self.sources[number], row) for row in np.flatnonzero(status).tolist())
        return found


def shared_sources(jobs: Sequence[ImageJob]) -> list[int]:
    """For each job, find the first one with the same stored images; itself if its source has no name."""
    first: dict[str, int] = {}
    return [number if not job.source else first.setdefault(job.source, number) for number, job in enumerate(jobs)]
