"""Engine: carries planned batches through storage, image executors and the operations on whole batches."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gpubeton._cpu.epilogue import mix_and_store
from gpubeton._cpu.jpeg.entries import JpegReader
from gpubeton._cpu.jpeg.markers import probe_jpegs
from gpubeton._cpu.stored_bytes import find_damage, pack_crops, pack_regions
from gpubeton._engine.outputs import ImageOutput, Inputs, RowOutput
from gpubeton._engine.run_batch_ops import Shared
from gpubeton._engine.sources import READS_AHEAD, FetchedRegions
from gpubeton._engine.timing import StageTimers
from gpubeton._plan.image_job import BadImage, CpuServices, Usage
from gpubeton.errors import BadImageError, add_error_note
from gpubeton.pipeline.draw_ids import sample_ids
from gpubeton.pipeline.pixel_type import pixel_type
from gpubeton.pipeline.ragged import tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._engine.batch_plan import BatchPlan, Plan
    from gpubeton._engine.buffers import ArrayPool
    from gpubeton._engine.storage import Storage
    from gpubeton._gpu.executor import GpuExecutor
    from gpubeton._plan.image_job import ImageExecutor, ImageJob, StartExecutor
    from gpubeton._plan.order import IdRange
    from gpubeton._plan.program import ImageProgram

    StartGpuExecutor = Callable[[Sequence[ImageProgram], CpuServices], GpuExecutor]

OnError = Literal["raise", "skip", "replace"]

MAX_TRIES = 16
"""Samples that are tried as replacements of a bad one."""

_MAX_BAD_LISTED = 5  # by the text of an error; its attributes have all of them
_MAX_LISTED = 8  # by a note of an error

# The workers pass from one batch to the next without waiting for each other; a third keeps them busy while the first
# is being finished. The others of `batches_ahead` are ready, and need no memory but their own.
_MAX_IN_FLIGHT = 3

_OF_DAMAGE = (
    "The file is damaged: compare it with the original (gpubeton verify FILE). Or FILE.index has the checksums of an "
    "earlier version of the file: gpubeton index FILE --overwrite."
)


class BadSample(NamedTuple):
    """A sample with an image that could not be decoded."""

    sample: int  # sample id
    reason: str  # output and reason; with several files, first the file and the number there


class EpochConfig(NamedTuple):
    """The arguments of a loader that an epoch reads when it begins, besides its order and its batches."""

    indices: NDArray[np.uint64] | IdRange  # (N,) the samples that may replace bad ones
    num_workers: int
    batches_ahead: int
    on_error: OnError
    caches_all: bool = True  # whether the node's cache is for all pages

    @property
    def num_in_flight(self) -> int:
        """Number of batches that the executors have at once."""
        return min(self.batches_ahead, _MAX_IN_FLIGHT)


class Batch(NamedTuple):
    """A finished batch."""

    number: int  # in the epoch, from 0
    samples: NDArray[np.uint64]  # (N,) sample ids of its rows
    outputs: tuple[Any, ...] | None  # owned by the receiver; None if no sample is left
    bad: tuple[BadSample, ...]  # the samples that were left out or replaced
    # Called by the thread that receives the batch: makes torch's stream there wait for the GPU. None without a GPU.
    arrival: Callable[[], None] | None = None


@dataclass(eq=False)
class _InFlight:
    """A batch of the engine that is not complete: its bytes, and one job for each output with images."""

    plan: BatchPlan
    regions: FetchedRegions
    draw_ids: NDArray[np.uint64]  # (N,) of its samples; changes when bad ones are skipped or replaced
    jobs: list[ImageJob]  # in the order of the outputs
    bad: Sequence[BadImage] = ()

    @property
    def samples(self) -> NDArray[np.uint64]:
        """The sample ids, (N,)."""
        return sample_ids(self.draw_ids)

    def keep_rows(self, rows: NDArray[np.intp]) -> None:
        """Drop all samples but these rows."""
        self.draw_ids = self.draw_ids[rows]
        self.jobs = [job.rows(rows, job.out[rows]) for job in self.jobs]
        self.regions.keep_rows(rows)


class Engine:
    """Makes the batches of one epoch; driven by a `gpubeton._engine.prefetch.Prefetcher`."""

    # Used by one thread.

    def __init__(
        self,
        plan: Plan,
        storage: Storage,  # closed by the engine
        start_executor: StartExecutor,  # not called if no output has images for the CPU
        pool: ArrayPool,
        config: EpochConfig,
        *,
        title: str,  # names the files in errors
        origin: Callable[[int], str] = lambda _: "",  # the file of a sample id, if there are several files
        first_batch: int = 0,
        start_gpu_executor: StartGpuExecutor | None = None,
        resident: Mapping[str, Callable[[NDArray[Any]], NDArray[np.bool_]]] | None = None,  # see `FetchedRegions`
        # by field: (samples of the files,) whether each was compared with its checksums; others are never compared
        verified: Mapping[str, NDArray[np.bool_]] | None = None,
        timers: StageTimers | None = None,
    ) -> None:
        self._plan = plan
        self._timers = timers or StageTimers()
        self._storage = storage
        self._resident = resident or {}
        self._config, self._title, self._origin = config, title, origin
        self._successors = Successors(config.indices)
        self._region_rows = plan.region_rows
        self._making_order = plan.making_order
        self._num_batches = len(plan)
        self._images = [output for output in plan.outputs if isinstance(output, ImageOutput)]
        # Of the fields that no executor reads.
        self._rows = [output for output in plan.outputs if isinstance(output, RowOutput)]
        self._read: list[ImageOutput | RowOutput] = [*self._images, *self._rows]
        read = {output.source.name: output.source for output in self._read}
        self._unverified = [
            (source, verified[name])
            for name, source in read.items()
            if verified and source.has_checksums and not verified[name].all()
        ]
        self._pool = pool
        self._executors = ImageExecutors(
            self._images,
            start_executor,
            start_gpu_executor,
            pool,
            batch_size=plan.batches.batch_size,
            num_workers=config.num_workers,
            num_in_flight=config.num_in_flight,
        )
        self._next_to_read = first_batch
        self._planned: deque[BatchPlan] = deque()
        self._reading: deque[_InFlight] = deque()
        self._in_flight: deque[_InFlight] = deque()
        self._errors: list[BaseException] = []  # of the batch that is to be read next; raised after those before it

    @property
    def has_more(self) -> bool:
        """Whether there are batches that were not started."""
        return bool(self._reading) or self._next_to_read < self._num_batches

    def start(self, *, may_wait: bool) -> bool:
        """Start the next batch if the executors have room and its bytes are there; return whether it was started."""
        if len(self._in_flight) >= self._config.num_in_flight:
            return False
        if not self._reading:
            self._read_ahead()
        if not self._reading:
            raise self._errors.pop()  # the engine is in its traceback
        batch = self._reading[0]
        if not may_wait and not batch.regions.is_ready:
            return False
        try:
            with self._timers.read:
                batch.regions.wait()
            with self._timers.submit:
                arrays = [self._executors.take(number, len(batch.samples)) for number in range(len(self._images))]
                batch.jobs = self._jobs(batch.plan, batch.regions, arrays)
                self._executors.submit(batch.jobs)
        except Exception as error:
            self._note(error, batch.plan)
            raise
        self._in_flight.append(self._reading.popleft())
        self._read_ahead()
        return True

    def collect(self) -> _InFlight:
        """Wait until the executors have made the oldest batch."""
        batch = self._in_flight[0]
        try:
            with self._timers.decode:
                batch.bad = self._executors.collect()
        except Exception as error:
            self._note(error, batch.plan)
            raise
        for output, job in zip(self._images, batch.jobs, strict=True):
            points = output.source.entry_points
            if points is not None and job.num_entries is not None and job.num_entries.min(initial=0) < 0:
                points.leave_out(batch.samples[job.num_entries < 0])
        self._timers.usage = self._executors.usage
        return self._in_flight.popleft()

    def complete(self, collected: _InFlight) -> Batch:
        """Handle bad images (raises BadImageError if they are to be raised) and make the outputs."""
        try:
            self._timers.stored_bytes += collected.regions.nbytes
            self._timers.verified_bytes += collected.regions.verified_nbytes if self._unverified else 0
            with self._timers.tail, self._executors.torch_context():
                bad = self._handle_bad_images(collected)
                if not self._storage.is_remote:  # bytes that come again may be others
                    for _, verified in self._unverified:
                        verified[collected.samples] = True
                outputs = self._make_outputs(collected) if len(collected.samples) else None
                arrival = None if outputs is None else self._executors.arrival(outputs)
        except Exception as error:
            self._note(error, collected.plan)
            raise
        finally:
            collected.regions.release()
        return Batch(collected.plan.number, collected.samples, outputs, bad, arrival)

    def interrupt(self) -> None:
        """End the waiting for bytes, with an error; called from any thread."""
        self._storage.interrupt()
        for output in self._images:
            if output.source.entry_points is not None:
                output.source.entry_points.interrupt()

    def close(self) -> None:
        """Close the executors, then the storage; may be called twice."""
        try:
            self._executors.close()
            self._timers.usage = self._executors.usage
        finally:
            for batch in (*self._reading, *self._in_flight):
                batch.regions.release()
            self._errors.clear()
            self._storage.close()

    def _read_ahead(self) -> None:
        try:
            while len(self._reading) < READS_AHEAD and self._next_to_read < self._num_batches and not self._errors:
                with self._timers.plan:
                    self._read_next()
        except BaseException as error:  # noqa: BLE001  `start` raises it
            self._errors.append(error)

    def _read_next(self) -> None:
        if not self._planned:
            try:
                self._planned.extend(self._plan.ahead(self._next_to_read))
            except Exception as error:
                add_error_note(error, self._where(self._next_to_read))
                raise
        plan = self._planned.popleft()
        try:
            regions = FetchedRegions(
                self._storage,
                plan.samples,
                plan.places,
                self._region_rows,
                self._resident,
                plan.number,
                self._unverified,
            )
        except Exception as error:
            self._note(error, plan)
            raise
        self._reading.append(_InFlight(plan, regions, plan.draw_ids, []))
        self._next_to_read += 1

    def _jobs(self, plan: BatchPlan, regions: FetchedRegions, arrays: Sequence[Any]) -> list[ImageJob]:
        """Complete the planned images of each output: where they are read, and where they are written."""
        jobs = [plan.images[output.name] for output in self._images]
        for output, job, array in zip(self._images, jobs, arrays, strict=True):
            job.address, job.size = regions.address(output.source)[0], regions.size(output.source)[0]
            job.checksums = regions.checksums(output.source)[0] if self._unverified else None
            job.out, job.keep, job.is_pinned = array, (regions, job.keep), self._storage.is_pinned
        return jobs

    def _make_outputs(self, batch: _InFlight) -> tuple[Any, ...]:
        def images(output: ImageOutput, mixes: NDArray[np.int32] | None) -> Any:
            number = self._images.index(output)
            return self._executors.finished(number, batch.jobs[number].out, mixes)

        shared = Shared(self._pool.take, self._executors.carry_out)
        inputs = Inputs(self._plan.seed, self._plan.epoch, batch.draw_ids, batch.regions, images, self._pool, shared)
        outputs: dict[str, Any] = {}
        for output in self._making_order:
            name = output.name
            try:
                outputs[name] = output.make(inputs)
            except Exception as error:
                add_error_note(error, f"in the pipeline of {name!r}")
                raise
        return tuple([outputs[output.name] for output in self._plan.outputs])

    def _handle_bad_images(self, batch: _InFlight) -> tuple[BadSample, ...]:
        """Raise, skip or replace bad samples; return those that are no longer in the batch."""
        images = [*batch.bad, *self._damaged_values(batch.regions)]
        if not images:
            return ()
        names = [(output.name, output.source.name) for output in self._read]
        rows = bad_rows(images, names, batch.samples, self._origin)
        batch.draw_ids = batch.draw_ids.copy()
        for row in {image.row for image in images if image.is_damaged}:
            # Damaged on its way, as a rule, if it comes from another machine.
            if self._storage.reload(*batch.regions.places(row)) and self._remake(batch, row, int(batch.draw_ids[row])):
                del rows[row]
        bad = tuple(rows.values())
        match self._config.on_error:
            case "raise" if bad:
                advice = 'Pass on_error="skip" or "replace" to go on without such samples.'
                if any(image.is_damaged for image in images):
                    advice = f"{_OF_DAMAGE} {advice}"
                raise bad_image_error(self._where(batch.plan.number), bad, advice)
            case "skip":
                batch.keep_rows(np.setdiff1d(np.arange(len(batch.samples)), list(rows)))
            case "replace":
                for row, sample in rows.items():
                    self._replace(batch, row, sample)
        return bad

    def _damaged_values(self, regions: FetchedRegions) -> list[BadImage]:
        """List the values that differ from their checksums, of fields that no executor reads."""
        return [
            BadImage(number, row, reason, is_damaged=True)
            for number, output in enumerate(self._rows if self._unverified else (), len(self._images))
            for row, reason in regions.find_damage(output.source)
        ]

    def _replace(self, batch: _InFlight, row: int, bad: BadSample) -> None:
        """Put the next sample with good images into a row."""
        if not any(self._remake(batch, row, candidate) for candidate in self._successors.of(bad.sample)):
            advice = f"Nor could up to {MAX_TRIES} samples after it be decoded. Is the file damaged?"
            raise bad_image_error(self._where(batch.plan.number), [bad], advice)

    def _remake(self, batch: _InFlight, row: int, draw_id: int) -> bool:
        """Put a sample that is loaded by itself into a row; return False if it is bad."""
        plan = self._plan.of(np.array([draw_id], np.uint64), batch.plan.number)
        regions = FetchedRegions(
            self._storage, plan.samples, plan.places, self._region_rows, unverified=self._unverified
        )
        regions.wait()
        # The executor writes into the row of the batch.
        jobs = self._jobs(plan, regions, [job.out[row : row + 1] for job in batch.jobs])
        if any(self._executors.decode(number, job) for number, job in enumerate(jobs)) or self._damaged_values(regions):
            regions.release()
            return False
        batch.draw_ids[row] = draw_id
        batch.regions.replace_row(row, regions)
        return True

    def _where(self, batch: int) -> str:
        return f"{self._title}: batch {batch} of epoch {self._plan.epoch}"

    def _note(self, error: Exception, plan: BatchPlan) -> None:
        add_error_note(error, f"{self._where(plan.number)}, samples {listed(plan.samples)}")


def bad_image_error(where: str, bad: Sequence[BadSample], advice: str) -> BadImageError:
    """Make the error that names bad samples; `where` is the file, batch and epoch."""
    named = "; ".join(f"sample {sample}: {reason}" for sample, reason in bad[:_MAX_BAD_LISTED])
    more = f"; and {len(bad) - _MAX_BAD_LISTED} more" if len(bad) > _MAX_BAD_LISTED else ""
    return BadImageError(
        f"{where}: {named}{more}. {advice}", [sample for sample, _ in bad], [reason for _, reason in bad]
    )


def bad_rows(
    images: Iterable[BadImage],
    names: Sequence[tuple[str, str]],  # of each program: its output and its field
    samples: NDArray[np.uint64],  # (N,) ids of the batch's samples
    origin: Callable[[int], str],  # the file and the number there of a sample, with several files
) -> dict[int, BadSample]:
    """Find the rows of a batch whose images are bad, and the reasons. The executors decide which images are."""
    # Several outputs of one image may give the same reason: only the first is named.
    reasons: dict[int, dict[tuple[str, str], str]] = {}
    for image in sorted(images, key=lambda image: (image.row, image.program)):
        output, field = names[image.program]
        reasons.setdefault(image.row, {}).setdefault((field, image.reason), f"{output}: {image.reason}")
    rows = {}
    for row, texts in reasons.items():
        sample, reason = int(samples[row]), "; ".join(texts.values())
        rows[row] = BadSample(sample, f"{origin(sample)}: {reason}" if origin(sample) else reason)
    return rows


def listed(samples: NDArray[np.uint64]) -> str:
    """Format sample ids, (N,), for a note: the first few of many."""
    text = ", ".join(map(str, samples[:_MAX_LISTED].tolist()))
    return text if len(samples) <= _MAX_LISTED else f"{text}, ... ({len(samples)} in all)"


class Successors:
    """Finds replacements of bad samples: those that follow in the loader's indices; the first follows the last."""

    def __init__(self, indices: NDArray[np.uint64] | IdRange) -> None:  # (N,)
        self._ids = indices
        self._by_id: NDArray[np.intp] | None = None

    def of(self, sample: int) -> Iterator[int]:
        """Yield the ids of up to `MAX_TRIES` other samples to try."""
        if len(self._ids) == 0:
            return
        if self._by_id is None:  # sorted at the first bad image: mostly there is none
            self._indices = np.asarray(self._ids, np.uint64)
            self._by_id = np.argsort(self._indices, kind="stable")
        # A user's order may have samples that are not among the indices: then the next greater id.
        at = np.searchsorted(self._indices, np.uint64(sample), sorter=self._by_id) % len(self._indices)
        position = self._by_id[at]
        seen = {sample}
        for step in range(len(self._indices)):
            candidate = int(self._indices[(position + step) % len(self._indices)])
            if candidate not in seen:
                yield candidate
                seen.add(candidate)
            if len(seen) > MAX_TRIES:
                return


class ImageExecutors:
    """Sends the images of each output to the executor that makes them."""

    def __init__(
        self,
        outputs: Sequence[ImageOutput],
        start_executor: StartExecutor,  # not called if no output is made on the CPU
        start_gpu_executor: StartGpuExecutor | None,  # not called if no output is made on a GPU
        pool: ArrayPool,
        *,
        batch_size: int,
        num_workers: int,
        num_in_flight: int,
    ) -> None:
        self._outputs = list(outputs)
        self._pool = pool
        self._gpu: GpuExecutor | None = None
        self._on_gpu = [number for number, output in enumerate(outputs) if output.program.device != "cpu"]
        on_cpu = [number for number, output in enumerate(outputs) if output.program.device == "cpu"]
        self._executors: list[tuple[ImageExecutor, list[int]]] = []  # with the numbers of their outputs, the GPU first

        def start(programs: Sequence[ImageProgram]) -> ImageExecutor:
            return start_executor(programs, batch_size, num_workers, num_in_flight)

        with ExitStack() as undo:
            if on_cpu:
                cpu = start([outputs[number].program for number in on_cpu])
                undo.callback(cpu.close)
                self._executors.append((cpu, on_cpu))
            if self._on_gpu and start_gpu_executor is not None:
                host = CpuServices(probe_jpegs, pack_regions, pack_crops, find_damage, start, num_workers, JpegReader())
                self._gpu = start_gpu_executor([outputs[number].program for number in self._on_gpu], host)
                self._executors.insert(0, (self._gpu, self._on_gpu))
            undo.pop_all()

    def take(self, number: int, count: int) -> Any:
        """Take uninitialized memory for images: an array or tensor of shape (count, height, width, channels)."""
        if self._gpu is not None and number in self._on_gpu:
            return self._gpu.take(self._on_gpu.index(number), count)
        return self._outputs[number].take_array(self._pool, count)

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        """Begin a batch: a job for each output."""
        for executor, numbers in self._executors:
            executor.submit([jobs[number] for number in numbers])

    def collect(self) -> list[BadImage]:
        """Wait for the oldest batch; `BadImage.program` is the number of the output."""
        return [
            replace(bad, program=numbers[bad.program])
            for executor, numbers in self._executors
            for bad in executor.collect()
        ]

    def decode(self, number: int, job: ImageJob) -> list[BadImage]:
        """Make the images of one output in the caller's thread."""
        executor, numbers = next(pair for pair in self._executors if number in pair[1])
        return executor.decode(numbers.index(number), job)

    def torch_context(self) -> Any:
        """Return the context in which torch works on finished batches."""
        return nullcontext() if self._gpu is None else self._gpu.batch_ops()

    def finished(self, number: int, array: Any, mixes: NDArray[np.int32] | None) -> Any:
        """Mix the images of an output by `mixes`, (N, MIX_COLUMNS), and move them to the CPU if they return there."""
        if self._gpu is None or number not in self._on_gpu:
            return (
                array if mixes is None else mix_and_store(self._outputs[number].program, array, mixes, self._pool.take)
            )
        if mixes is not None:
            array = self._gpu.mix(self._on_gpu.index(number), array, mixes)
        if not self._outputs[number].program.returns_to_cpu:
            return array
        tensor = self._gpu.fetch(array)
        return pixel_type(tensor.dtype).array(tensor)

    def carry_out(self, batch: Any, rows: Callable[[], NDArray[np.int32]]) -> bool:
        """Carry out step rows on a finished batch where it is, if that is a GPU that takes it."""
        return self._gpu is not None and self._gpu.carry_out(batch, rows)

    def arrival(self, outputs: Sequence[Any]) -> Callable[[], None] | None:
        """Mark that a batch is ready; the thread that receives the batch calls the result, unless it is None."""
        return None if self._gpu is None else self._gpu.arrival(tensors_in(outputs))

    @property
    def usage(self) -> Usage:
        """Total usage of the CPU's workers until now."""
        return sum((executor.usage for executor, _ in self._executors), Usage())

    def close(self) -> None:
        """Close all executors; may be called twice."""
        with ExitStack() as all_of_them:  # the GPU's, the last to be added, is closed first
            for executor, _ in reversed(self._executors):
                all_of_them.callback(executor.close)
