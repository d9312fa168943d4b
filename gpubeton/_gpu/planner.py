"""BatchPlanner: decides how the images of a batch are decoded and where they go, and describes them to the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._gpu.batch import lay_out_batch
from gpubeton._gpu.launch import describe_images
from gpubeton._plan.arena_layout import taps_nbytes
from gpubeton._plan.image_job import shared_sources
from gpubeton._plan.routes import (
    KIND,
    PROBE_COLUMNS,
    SAMPLING,
    TABLES,
    DecodeRoute,
    JpegKind,
    assign_routes,
    raw_route,
    routes_by_kind,
)
from gpubeton.format import ImageMode

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._gpu.batch import Batch, Slot
    from gpubeton._gpu.entry_decoder import EntryImages, ResidentJpegs
    from gpubeton._gpu.gpu_resources import GpuResources
    from gpubeton._gpu.launch import ProgramConstants
    from gpubeton._gpu.options import GpuOptions
    from gpubeton._plan.image_job import CpuServices, ImageJob
    from gpubeton._plan.program import ImageProgram


class BatchPlanner:
    """Plans the batches of an epoch; nothing of it waits."""

    def __init__(
        self,
        resources: GpuResources,
        programs: Sequence[ImageProgram],
        constants: Sequence[ProgramConstants],  # of the programs
        cpu: CpuServices,
        options: GpuOptions,
        resident: Mapping[str, ResidentJpegs],  # by field
    ) -> None:
        self._resources = resources
        self._programs = programs
        self._constants = constants
        self._cpu = cpu
        self._by_kind = routes_by_kind(resources.backends.keys())
        self._raw = int(raw_route(options.raw, cpu.num_workers))
        self._resident = resident
        self._most_taps = [1] * len(programs)  # of an output pixel of each program, until now

    def plan(self, jobs: Sequence[ImageJob], slot: Slot) -> Batch:
        """Choose routes, lay out the memory, reserve it, and describe the batch to the kernels."""
        routes, samplings, entry_images = zip(
            *(self._choose_routes(number, job) for number, job in enumerate(jobs)), strict=True
        )
        batch = lay_out_batch(self._programs, jobs, shared_sources(jobs), routes, samplings)
        batch.entry_images = {images.number: images for images in entry_images if images is not None}
        batch.reserve(slot, next(self._resources.nonces) & 0xFFFFFFFF)
        addresses = slot.table.fill(batch.arrays())
        self._prepare_launches(slot, jobs, addresses)
        batch.images = [
            images.begin(job.out.data_ptr(), batch.nonce) for images, job in zip(slot.images, jobs, strict=True)
        ]
        return batch

    def _choose_routes(
        self, number: int, job: ImageJob
    ) -> tuple[NDArray[np.int8], NDArray[np.int32], EntryImages | None]:
        """Choose a route for each image of a job; read its chroma sampling, and what the entry decoder needs."""
        routes, probes = np.empty(len(job.mode), np.int8), np.zeros((len(job.mode), PROBE_COLUMNS), np.int32)
        choice = job.mode, job.size, job.height, job.width, probes, self._by_kind, self._raw, routes
        if assign_routes(*choice) == 0:
            return routes, probes[:, SAMPLING], None
        backends, decoder, is_jpeg = self._resources.backends, self._resources.entry_decoder, job.mode == ImageMode.JPG
        resident = self._resident.get(job.source)
        has_header = np.zeros(len(probes), bool) if decoder is None else decoder.knows(job, resident)
        # Nothing of these images is read, not even a header. Other decoders may get those of which ours makes no image.
        if resident is not None or not backends:
            is_jpeg &= ~has_header
        if is_jpeg.any():
            columns = probes[is_jpeg]
            self._cpu.probe(job.address[is_jpeg], job.size[is_jpeg], columns)
            probes[is_jpeg] = columns
            assign_routes(*choice)
        is_refused, refused = np.zeros(len(routes), bool), self._resources.refused
        if refused:
            is_refused[:] = [image_identity(job, row) in refused for row in range(len(routes))]
        entry_images = None
        if decoder is not None:
            is_baseline = is_jpeg & (probes[:, KIND] == JpegKind.BASELINE)
            rows = np.flatnonzero((has_header | is_baseline if resident is None else has_header) & ~is_refused)
            entry_images = decoder.plan(number, self._constants[number], job, rows, self._cpu, has_header, resident)
        if entry_images is not None:
            routes[entry_images.rows] = DecodeRoute.ENTRIES
        for route, backend in backends.items():
            rows = np.flatnonzero(routes == route)
            if len(rows):
                takes = backend.takes(job.rows(rows, None), probes[rows, TABLES], probes[rows, SAMPLING])
                routes[rows[~takes]] = DecodeRoute.CPU
        routes[is_refused & (routes < DecodeRoute.CPU)] = DecodeRoute.CPU
        return routes, probes[:, SAMPLING], entry_images

    def _prepare_launches(self, slot: Slot, jobs: Sequence[ImageJob], addresses: Mapping[Hashable, int]) -> None:
        """Reserve memory for the kernels and prepare their launches, unless the slot's last batch had the same."""
        drawn = zip(self._most_taps, self._constants, jobs, strict=True)
        most = self._most_taps = [max(before, program.most_taps(job.draws)) for before, program, job in drawn]
        needed: list[Any] = [self._constants, slot.table.kinds, addresses, *most]  # addresses may be of other shapes
        if slot.prepared_for == needed:
            return
        slot.prepared_for = []
        largest, levels = 0, [0]
        for i, (program, job) in enumerate(zip(self._constants, jobs, strict=True)):
            largest = max(largest, sum(taps_nbytes(len(job.address), program.side, most[i])))
            levels.append(levels[-1] + sum(program.steps_nbytes(len(job.address))))
        taps, first = slot.taps.reserve(largest).address, slot.resampled.reserve(levels[-1]).address
        slot.images = [
            describe_images(i, program, job, addresses, most_taps=most[i], taps=taps, levels=first + levels[i])
            for i, (program, job) in enumerate(zip(self._constants, jobs, strict=True))
        ]
        slot.prepared_for = needed


def image_identity(job: ImageJob, row: int) -> tuple[str, int]:
    """Identify a stored image by its field and its sample, or its address."""
    return job.source, int(job.address[row] if job.samples is None else job.samples[row])
