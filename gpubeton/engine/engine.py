"""Engine: carries planned batches through storage, crew and tails."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.engine.bad_images import MAX_TRIES, BadSample, OnError, Successors, bad_image_error
from gpubeton.engine.batch import Batch
from gpubeton.engine.branch_output import BranchOutput
from gpubeton.engine.crews import Crews, MakeGpuCrew
from gpubeton.engine.drawn_output import DrawnOutput
from gpubeton.engine.image_output import ImageOutput
from gpubeton.engine.notes import listed
from gpubeton.engine.staged import Staged
from gpubeton.engine.stages import Stages
from gpubeton.pipeline.noting import noting
from gpubeton.plan.image_job import BadImage, ImageJob
from gpubeton.plan.shared import Shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from gpubeton.engine.arrays import ArrayPool
    from gpubeton.engine.image_crew import MakeCrew
    from gpubeton.engine.plan import BatchPlan, Plan
    from gpubeton.storage.fetch import Storage

READS_AHEAD = 2
"""Batches whose bytes are fetched before the crew has room for them."""


@dataclass(frozen=True)
class EngineOptions:
    """How an engine works.

    Parameters
    ----------
    path : str
        The file or files, named in errors.
    num_workers : int
        Threads that decode.
    num_in_flight : int
        Batches that the crew may have at once.
    on_error : {"raise", "skip", "replace"}
        What happens to samples with a bad image.
    origin : callable
        Says of a sample, by its id, in which file it is, where there are several; "" where there is one.
    """

    path: str
    num_workers: int
    num_in_flight: int
    on_error: OnError
    origin: Callable[[int], str] = lambda _: ""


class Engine:
    """The line that makes the batches of one epoch, for a `gpubeton.prefetch.Prefetcher` to move.

    Used by one thread. The bytes of `READS_AHEAD` batches are on their way before the crew gets them.

    Parameters
    ----------
    plan : Plan
        What is to be done.
    storage : Storage
        Brings the bytes; the engine closes it.
    make_crew : MakeCrew
        Starts the workers that decode images on the CPU; not called if no output has any.
    pool : ArrayPool
        Memory for the batches.
    indices : ndarray of uint64, shape (N,)
        The samples that may stand in for bad ones.
    options : EngineOptions
        How it works.
    first_batch : int
        Batches before this one are left out.
    make_gpu_crew : MakeGpuCrew, optional
        Begins the epoch on a GPU, where some outputs are made.
    stages : Stages, optional
        Where is added up what everything takes.
    """

    def __init__(
        self,
        plan: Plan,
        storage: Storage,
        make_crew: MakeCrew,
        pool: ArrayPool,
        *,
        indices: NDArray[np.uint64],
        options: EngineOptions,
        first_batch: int = 0,
        make_gpu_crew: MakeGpuCrew | None = None,
        stages: Stages | None = None,
    ) -> None:
        self._plan = plan
        self._stages = stages or Stages()
        self._storage = storage
        self._options = options
        self._successors = Successors(indices)
        self._sources = plan.sources
        self._parents_first = plan.parents_first
        self._images = [output for output in plan.outputs if isinstance(output, ImageOutput)]
        self._pool = pool
        self._crews = Crews(
            self._images,
            make_crew,
            make_gpu_crew,
            pool,
            batch_size=plan.batches.batch_size,
            num_workers=options.num_workers,
            num_in_flight=options.num_in_flight,
        )
        self._next_to_read = first_batch
        self._reading: deque[_Job] = deque()
        self._in_flight: deque[_Job] = deque()

    @property
    def has_more(self) -> bool:
        """Whether there are batches that were not started."""
        return bool(self._reading) or self._next_to_read < len(self._plan)

    @property
    def num_in_flight(self) -> int:
        """Number of batches that were started and not collected."""
        return len(self._in_flight)

    def start(self, *, may_wait: bool) -> bool:
        """Give the next batch to the crew, if it has room and the bytes are there.

        Parameters
        ----------
        may_wait : bool
            Whether to wait for the bytes.

        Returns
        -------
        bool
            Whether the batch was started.
        """
        if len(self._in_flight) >= self._options.num_in_flight:
            return False
        self._read_ahead()
        if not may_wait and not self._reading[0].staged.is_ready:
            return False
        job = self._reading[0]
        with self._noting(job.plan):
            with self._stages.read:
                job.staged.wait()
            with self._stages.submit:
                for number, output in enumerate(self._images):
                    job.arrays[output.name] = self._crews.take(number, len(job.samples))
                self._crews.submit([self._image_job(job, output) for output in self._images])
        self._in_flight.append(self._reading.popleft())
        self._read_ahead()
        return True

    def collect(self) -> _Job:
        """Wait for the crew to have done the oldest batch."""
        job = self._in_flight[0]
        with self._noting(job.plan), self._stages.decode:
            job.bad = self._crews.collect()
        self._stages.usage = self._crews.usage
        return self._in_flight.popleft()

    def complete(self, collected: _Job) -> Batch:
        """See to bad images, and make the outputs.

        Parameters
        ----------
        collected : object
            What `collect` returned.

        Returns
        -------
        Batch
            It belongs to whoever receives it.

        Raises
        ------
        BadImageError
            If there are bad images and they are not to be skipped, or nothing can replace them.
        """
        try:
            self._stages.stored_bytes += collected.staged.nbytes
            with self._noting(collected.plan), self._stages.tail, self._crews.tail():
                bad = self._see_to_bad_images(collected)
                outputs = self._make_outputs(collected) if len(collected.samples) else None
                arrival = None if outputs is None else self._crews.arrival(outputs)
        finally:
            collected.staged.release()
        return Batch(collected.plan.number, collected.samples, outputs, bad, arrival)

    def close(self) -> None:
        """End the crew, then the storage; may be called twice."""
        try:
            self._crews.close()
            self._stages.usage = self._crews.usage
        finally:
            for job in (*self._reading, *self._in_flight):
                job.staged.release()
            self._storage.close()

    def _read_ahead(self) -> None:
        while len(self._reading) < READS_AHEAD and self._next_to_read < len(self._plan):
            with self._stages.plan:
                plan = self._plan[self._next_to_read]
                with self._noting(plan):
                    staged = Staged(self._storage, self._sources, plan.samples)
            self._reading.append(_Job(plan, staged, plan.samples, {}))
            self._next_to_read += 1

    def _image_job(self, job: _Job, output: ImageOutput) -> ImageJob:
        images = job.plan.images[output.name]
        return ImageJob(
            address=job.staged.address(output.source)[0],
            size=job.staged.size(output.source)[0],
            height=images.height,
            width=images.width,
            mode=images.mode,
            draws=images.draws,
            colours=images.colours,
            out=job.arrays[output.name],
            keep=job.staged,
            samples=job.samples,
            source=output.source.name,
            is_pinned=self._storage.is_pinned,
        )

    def _make_outputs(self, job: _Job) -> tuple[Any, ...]:
        seed, epoch = self._plan.seed, self._plan.epoch
        outputs: dict[str, Any] = {}
        shared = Shared(self._pool.take)
        for output in self._parents_first:
            with noting(f"in the pipeline of {output.name!r}"):
                if isinstance(output, ImageOutput):
                    mixes = output.program.draw_mixes(seed, epoch, job.samples)
                    array = self._crews.finished(self._images.index(output), job.arrays[output.name], mixes)
                    outputs[output.name] = output.program.finish(array, seed, epoch, job.samples, shared)
                elif isinstance(output, BranchOutput):
                    outputs[output.name] = output.make(job.samples, seed, epoch, shared)
                elif isinstance(output, DrawnOutput):
                    outputs[output.name] = output.make(job.samples, seed, epoch)
                else:
                    outputs[output.name] = output.make(job.samples, job.staged, seed, epoch, self._pool, shared)
        return tuple(outputs[output.name] for output in self._plan.outputs)

    def _see_to_bad_images(self, job: _Job) -> tuple[BadSample, ...]:
        """Raise, leave samples out, or replace them; return those that are not in the batch any more."""
        if not job.bad:
            return ()
        # Of several views of one image, the first speaks for those that say the same.
        reasons: dict[int, dict[tuple[str, str], str]] = {}
        for image in sorted(job.bad, key=lambda image: (image.row, image.program)):
            output = self._images[image.program]
            said = reasons.setdefault(image.row, {})
            said.setdefault((output.source.name, image.reason), f"{output.name}: {image.reason}")
        bad = tuple(self._bad_sample(int(job.samples[row]), list(said.values())) for row, said in reasons.items())
        match self._options.on_error:
            case "raise":
                advice = 'Pass on_error="skip" or "replace" to go on without such images.'
                raise bad_image_error(self._where(job.plan), bad, advice)
            case "skip":
                job.keep_rows(np.setdiff1d(np.arange(len(job.samples)), list(reasons)))
            case "replace":
                job.samples = job.samples.copy()
                for row, own in zip(reasons, bad, strict=True):
                    self._replace(job, row, own)
        return bad

    def _bad_sample(self, sample: int, reasons: list[str]) -> BadSample:
        origin = self._options.origin(sample)
        return BadSample(sample, f"{origin}: {'; '.join(reasons)}" if origin else "; ".join(reasons))

    def _replace(self, job: _Job, row: int, bad: BadSample) -> None:
        """Put the next sample with good images into a row."""
        for candidate in self._successors.of(bad.sample):
            plan = self._plan.of(np.array([candidate], np.uint64), job.plan.number)
            staged = Staged(self._storage, self._sources, plan.samples)
            staged.wait()
            # The crew writes right into the batch.
            arrays = {name: array[row : row + 1] for name, array in job.arrays.items()}
            if self._is_decoded(_Job(plan, staged, plan.samples, arrays)):
                job.samples[row] = candidate
                job.staged.replace_row(row, staged)
                return
            staged.release()
        advice = f"Nor could up to {MAX_TRIES} samples after it be decoded. Is the file damaged?"
        raise bad_image_error(self._where(job.plan), [bad], advice)

    def _is_decoded(self, job: _Job) -> bool:
        return not any(
            self._crews.decode(number, self._image_job(job, output)) for number, output in enumerate(self._images)
        )

    def _where(self, plan: BatchPlan) -> str:
        return f"{self._options.path}: batch {plan.number} of epoch {self._plan.epoch}"

    @contextmanager
    def _noting(self, plan: BatchPlan) -> Iterator[None]:
        with noting(f"{self._where(plan)}, samples {listed(plan.samples)}"):
            yield


@dataclass(eq=False)
class _Job:
    """A batch on the line."""

    plan: BatchPlan
    staged: Staged
    samples: NDArray[np.uint64]
    arrays: dict[str, NDArray[Any]]
    bad: Sequence[BadImage] = ()

    def keep_rows(self, rows: NDArray[np.intp]) -> None:
        """Forget all samples but those in these rows."""
        self.samples = self.samples[rows]
        self.arrays = {name: array[rows] for name, array in self.arrays.items()}
        self.staged.keep_rows(rows)
