"""Plan: what will be done for each batch of an epoch, decided and not yet done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np

from gpubeton.engine.branch_output import BranchOutput
from gpubeton.engine.branches import parents_first
from gpubeton.engine.image_output import ImageOutput
from gpubeton.plan.image_executor import ImageJob
from gpubeton.plan.ranges import RangePlan, plan_ranges
from gpubeton.storage.reads import MAX_GAP, MAX_READ

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.engine.outputs import Output
    from gpubeton.engine.sources import Source
    from gpubeton.plan.epoch import EpochPlan


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """What will be done for one batch.

    Parameters
    ----------
    number : int
        Which batch of the epoch, from 0.
    samples : ndarray of uint64, shape (N,)
        Sample ids.
    images : dict of str to ImageJob
        For each image output, by its name, without memory.
    sources : tuple of Source
        The fields whose bytes are needed.
    """

    number: int
    samples: NDArray[np.uint64]
    images: dict[str, ImageJob]
    sources: tuple[Source, ...]

    def ranges(self, *, max_gap: int = MAX_GAP, max_read: int = MAX_READ) -> RangePlan:
        """Decide which bytes are read.

        Parameters
        ----------
        max_gap : int
            Bytes between two regions that are read along.
        max_read : int
            Longest range in bytes.

        Returns
        -------
        RangePlan
            The ranges, in the file's order, as places (see `gpubeton.format.data_files`: offsets, if there is one
            file); its samples are all regions of the first field, then the next one's.
        """
        regions = [regions for source in self.sources for regions in source.regions]
        empty = np.zeros(0, np.uint64)
        offset = np.concatenate([empty, *(own.offset[self.samples] for own in regions)])
        size = np.concatenate([empty, *(own.size[self.samples] for own in regions)])
        return plan_ranges(offset, size, max_gap=max_gap, max_read=max_read)


@dataclass(frozen=True, eq=False)
class Plan(Sequence[BatchPlan]):
    """What will be done for each batch of an epoch: a sequence of `BatchPlan`, each made when it is asked for.

    A pure function of the file's metadata, the pipelines, the seed and the epoch; opens no file.

    Parameters
    ----------
    outputs : tuple of Output
        What a batch consists of.
    batches : EpochPlan
        Which samples each batch holds.
    seed, epoch : int
        The loader's seed and the number of the epoch.
    """

    outputs: tuple[Output, ...]
    batches: EpochPlan
    seed: int
    epoch: int

    @property
    def sources(self) -> tuple[Source, ...]:
        """The fields that the outputs are made of, each once."""
        return tuple({output.source.name: output.source for output in self.outputs}.values())

    @property
    def parents_first(self) -> tuple[Output, ...]:
        """The outputs in an order in which they can be made."""
        by_name = {output.name: output for output in self.outputs}
        parents = {output.name: output.parent for output in self.outputs if isinstance(output, BranchOutput)}
        return tuple(by_name[name] for name in parents_first(list(by_name), parents))

    def __len__(self) -> int:
        return len(self.batches)

    @overload
    def __getitem__(self, number: int) -> BatchPlan: ...

    @overload
    def __getitem__(self, number: slice) -> list[BatchPlan]: ...

    def __getitem__(self, number: int | slice) -> BatchPlan | list[BatchPlan]:
        """Plan one batch, or several for a slice; raises IndexError beyond the end."""
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        number += len(self) if number < 0 else 0
        return self.of(self.batches.samples(number), number)

    def of(self, samples: NDArray[np.uint64], number: int) -> BatchPlan:
        """Plan for any samples.

        Parameters
        ----------
        samples : ndarray of uint64, shape (N,)
            Sample ids.
        number : int
            The batch that they are for.

        Returns
        -------
        BatchPlan
            The same for each sample, whatever batch it is in.
        """
        images = {
            output.name: self._plan_images(output, samples)
            for output in self.outputs
            if isinstance(output, ImageOutput)
        }
        return BatchPlan(number, samples, images, self.sources)

    def _plan_images(self, output: ImageOutput, samples: NDArray[np.uint64]) -> ImageJob:
        source, program = output.source, output.program
        height, width = (source.column[side][samples].astype(np.int32) for side in ("height", "width"))
        return ImageJob(
            height=height,
            width=width,
            mode=source.column["mode"][samples],
            draws=program.draw(self.seed, self.epoch, samples, height, width),
            colours=program.draw_colours(self.seed, self.epoch, samples),
            samples=samples,
            source=source.name,
        )
