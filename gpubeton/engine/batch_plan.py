"""Plan: everything decided about each batch of an epoch, before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, overload

import numpy as np

from gpubeton.engine.output_graph import dependencies_first
from gpubeton.engine.outputs import BranchOutput, ImageOutput
from gpubeton.plan.image_executor import ImageJob
from gpubeton.plan.ranges import RangePlan, plan_ranges
from gpubeton.storage import MAX_GAP, MAX_READ

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.engine.output_graph import Output
    from gpubeton.engine.sources import Source
    from gpubeton.plan.order import EpochBatches


SAMPLES_AHEAD = 1024
"""Samples that are planned together, if batches are smaller."""


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """Everything decided about one batch."""

    number: int  # in the epoch, from 0
    samples: NDArray[np.uint64]  # (N,) sample ids
    images: dict[str, ImageJob]  # of each output with images, without memory yet
    sources: tuple[Source, ...]  # the fields whose bytes are needed

    def ranges(self, *, max_gap: int = MAX_GAP, max_read: int = MAX_READ) -> RangePlan:
        """Decide which bytes are read, as offsets in the file or, of several files, as `gpubeton.format` joins them."""
        # The samples of the plan are all regions of the first field, then of the next one.
        regions = [regions for source in self.sources for regions in source.regions]
        empty = np.zeros(0, np.uint64)
        offset = np.concatenate([empty, *(own.offset[self.samples] for own in regions)])
        size = np.concatenate([empty, *(own.size[self.samples] for own in regions)])
        return plan_ranges(offset, size, max_gap=max_gap, max_read=max_read)


@dataclass(frozen=True, eq=False)
class Plan(Sequence[BatchPlan]):
    """The plans of an epoch's batches, made on request: a pure function of metadata, pipelines, seed and epoch."""

    outputs: tuple[Output, ...]
    batches: EpochBatches
    seed: int
    epoch: int

    @property
    def sources(self) -> tuple[Source, ...]:
        """The fields that the outputs are made of, each once."""
        return tuple({output.source.name: output.source for output in self.outputs}.values())

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
            return [self[one] for one in range(*number.indices(len(self)))]
        number += len(self) if number < 0 else 0
        return self.of(self.batches.samples(number), number)

    def ahead(self, first: int) -> list[BatchPlan]:
        """Plan a batch, and small ones after it together with it: numpy's calls cost more than their work."""
        count = SAMPLES_AHEAD // self.batches.batch_size if self._is_ours else 1
        samples = [self.batches.samples(number) for number in range(first, min(first + count, len(self)))]
        if len(samples) < 2:
            return [self[first]]
        whole, plans, stop = self.of(np.concatenate(samples), first), [], 0
        for number, own in enumerate(samples, start=first):
            start, stop = stop, stop + len(own)
            images = {name: job.rows(slice(start, stop), None) for name, job in whole.images.items()}
            plans.append(BatchPlan(number, own, images, whole.sources))
        return plans

    @cached_property
    def _is_ours(self) -> bool:
        """Whether all draws are the library's: those of users' classes and functions may depend on the batch."""
        programs = [output.program for output in self.outputs if isinstance(output, ImageOutput)]
        drawing = [own for program in programs for own in program.drawing]
        # A PixelOperation is the library's, and its function `draws` the user's.
        return all(
            type(own).__module__.startswith("gpubeton.") and getattr(own, "draws", None) is None for own in drawing
        )

    def of(self, samples: NDArray[np.uint64], number: int) -> BatchPlan:
        """Plan for any samples, (N,); the plan of a sample does not depend on its batch."""
        images = {
            output.name: self._plan_images(output, samples)
            for output in self.outputs
            if isinstance(output, ImageOutput)
        }
        return BatchPlan(number, samples, images, self.sources)

    def _plan_images(self, output: ImageOutput, samples: NDArray[np.uint64]) -> ImageJob:
        source, program = output.source, output.program
        height, width = (source.column[side][samples].astype(np.int32) for side in ("height", "width"))
        job = ImageJob(
            height=height,
            width=width,
            mode=source.column["mode"][samples],
            draws=program.draw(self.seed, self.epoch, samples, height, width),
            colors=program.draw_colors(self.seed, self.epoch, samples),
            samples=samples,
            source=source.name,
        )
        if source.entry_points is not None:
            job.entries, job.num_entries, job.seals = source.entry_points.of(samples)
        return job
