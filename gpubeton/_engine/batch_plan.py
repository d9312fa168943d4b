"""Plan: everything decided about each batch of an epoch, before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from gpubeton._engine.output_graph import dependencies_first
from gpubeton._engine.outputs import BranchOutput, ImageOutput
from gpubeton._engine.sources import BATCHES_WITHOUT_ENTRIES, READS_AHEAD, Source
from gpubeton._engine.storage import MAX_GAP, MAX_READ
from gpubeton._plan.page_plan import RangePlan, plan_ranges
from gpubeton.pipeline.draw_ids import sample_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton._engine.output_graph import Output
    from gpubeton._plan.image_job import ImageJob
    from gpubeton._plan.order import EpochBatches


SAMPLES_AHEAD = 4096
"""Samples that are planned together, if batches are smaller."""


class BatchPlan(NamedTuple):
    """Everything decided about one batch."""

    number: int  # in the epoch, from 0
    samples: NDArray[np.uint64]  # (N,) sample ids
    images: dict[str, ImageJob]  # of each output with images, without memory yet
    places: NDArray[np.uint64]  # (2, R, N) offset and size of the regions of all fields whose bytes are needed
    draw_ids: NDArray[np.uint64]  # (N,) what random numbers are drawn for, see `gpubeton.pipeline.draw_ids`

    def rows(self, number: int, rows: slice) -> BatchPlan:
        """Give the plan of some of the samples, as batch `number`."""
        images = {name: job.rows(rows, None) for name, job in self.images.items()}
        return BatchPlan(number, self.samples[rows], images, self.places[:, :, rows], self.draw_ids[rows])

    def ranges(self, *, max_gap: int = MAX_GAP, max_read: int = MAX_READ) -> RangePlan:
        """Decide which bytes are read, as offsets in the file or, of several files, as `gpubeton.format` joins them."""
        offset, size = self.places.reshape(2, -1)
        return plan_ranges(offset, size, max_gap=max_gap, max_read=max_read)


@dataclass(frozen=True, eq=False)
class Plan(Sequence[BatchPlan]):
    """The plans of an epoch's batches, made on request: a pure function of metadata, pipelines, seed and epoch."""

    outputs: tuple[Output, ...]
    batches: EpochBatches
    seed: int
    epoch: int

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The fields that the outputs are made of, each once."""
        return tuple({output.source.name: output.source for output in self.outputs}.values())

    @cached_property
    def region_rows(self) -> dict[str, slice]:
        """The rows of `BatchPlan.places` with the regions of each field."""
        stops = [0, *accumulate(len(source.regions) for source in self.sources)]
        return {source.name: slice(*rows) for source, rows in zip(self.sources, pairwise(stops), strict=True)}

    @property
    def making_order(self) -> tuple[Output, ...]:
        """The outputs in an order in which they can be made."""
        by_name = {output.name: output for output in self.outputs}
        parents = {output.name: output.parent for output in self.outputs if isinstance(output, BranchOutput)}
        return tuple(by_name[name] for name in dependencies_first(list(by_name), parents))

    def __len__(self) -> int:
        return len(self.batches)

    @overload
    def __getitem__(self, number: int) -> BatchPlan: ...

    @overload
    def __getitem__(self, number: slice) -> list[BatchPlan]: ...

    def __getitem__(self, number: int | slice) -> BatchPlan | list[BatchPlan]:
        """Plan one batch, or several for a slice; raises IndexError after the last."""
        if isinstance(number, slice):
            return [self[index] for index in range(*number.indices(len(self)))]
        number += len(self) if number < 0 else 0
        return self.of(self.batches.draw_ids(number), number)

    def ahead(self, first: int) -> list[BatchPlan]:
        """Plan a batch, and small ones after it together with it: numpy's calls cost more than their work."""
        batch_size = self.batches.batch_size
        count = max(SAMPLES_AHEAD // batch_size, 1) if self._is_ours and not self._may_lack_entries(first) else 1
        whole = self.of(self.batches.draw_ids(first, count), first)
        starts = range(0, len(whole.samples), batch_size)
        return [whole.rows(number, slice(start, start + batch_size)) for number, start in enumerate(starts, first)]

    @cached_property
    def _is_ours(self) -> bool:
        """Whether all draws are the library's: those of users' classes may depend on the batch."""
        programs = [output.program for output in self.outputs if isinstance(output, ImageOutput)]
        drawing = [operation for program in programs for operation in program.drawing]
        return all(type(operation).__module__.startswith("gpubeton.") for operation in drawing)

    def _may_lack_entries(self, number: int) -> bool:
        """Whether a batch is one of the first, and some entry points come late."""
        late = (source.entry_points is not None and source.entry_points.comes_late for source in self.sources)
        return number < BATCHES_WITHOUT_ENTRIES and any(late)

    def of(self, draw_ids: NDArray[np.uint64], number: int) -> BatchPlan:
        """Plan for any samples, (N,); the plan of a sample does not depend on its batch, but for entry points."""
        samples = sample_ids(draw_ids)
        images = {
            output.name: self._plan_images(output, samples, draw_ids, number)
            for output in self.outputs
            if isinstance(output, ImageOutput)
        }
        regions = [stored for source in self.sources for stored in source.regions]
        places = np.empty((2, len(regions), len(samples)), np.uint64)
        for stored, (offset, size) in zip(regions, places.swapaxes(0, 1), strict=True):
            offset[:], size[:] = stored.offset[samples], stored.size[samples]
        return BatchPlan(number, samples, images, places, draw_ids)

    def _plan_images(
        self, output: ImageOutput, samples: NDArray[np.uint64], draw_ids: NDArray[np.uint64], number: int
    ) -> ImageJob:
        source = output.source
        sizes, mode = source.image_sizes(samples), source.column["mode"][samples]
        job = output.plan(self.seed, self.epoch, draw_ids, sizes, mode)
        points = source.entry_points
        if points is None:
            return job
        if points.comes_late and number < BATCHES_WITHOUT_ENTRIES and output.program.device == "cpu":
            if number >= READS_AHEAD:  # the bytes of the first batch are there
                points.prepare(samples)
        else:
            job.entries, job.num_entries, job.seals, job.keep = points.of(samples)
            job.comes_late = points.comes_late
        return job
