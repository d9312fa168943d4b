"""GpuExecutor: makes the images of planned batches on a GPU; Gpu: keeps its resources between epochs."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import DeviceError, LoaderClosedError
from gpubeton.format import ImageMode
from gpubeton.gpu.batch_memory import Slot, Table
from gpubeton.gpu.batch_state import BatchState, shared_sources
from gpubeton.gpu.device_structs import most_taps
from gpubeton.gpu.feeder import Feeder
from gpubeton.gpu.gpu_resources import EpochStreams, GpuResources
from gpubeton.gpu.launch import Augmenter
from gpubeton.gpu.memory_layout import lay_out_batch
from gpubeton.gpu.retry import PerImageRetry
from gpubeton.plan.draws import NUM_PAINTS
from gpubeton.plan.image_executor import Usage
from gpubeton.plan.lanes import SAMPLING, SURVEY_COLUMNS, Lane, choose_lanes, raw_lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from gpubeton.gpu.decode_backend import DecodeBackends
    from gpubeton.gpu.device import Device
    from gpubeton.gpu.gpu_options import GpuOptions
    from gpubeton.gpu.gpu_resources import CpuServices
    from gpubeton.plan.image_executor import BadImage, ImageExecutor, ImageJob
    from gpubeton.plan.program import ImageProgram


class GpuExecutor:
    """Makes the images of batches on a GPU; batches go in and come out in order.

    The way of a batch: its slot's memory is free, because the host has waited for whoever used it last. Sentinels are
    written into the arena, and waited for. Compressed bytes are copied to pinned memory, micro-batch by micro-batch,
    and given to the decoders; crops of raw-stored images are copied to the device. The kernels wait, on the device, for
    all of that, write the batch, and say which sentinels are still there. `collect` waits on the host; what was not
    decoded is decoded again, image by image, and then by the CPU.

    Parameters
    ----------
    equipment : Equipment
        The GPU's lanes, queues and memory; returned by `close`.
    programs : sequence of ImageProgram
        What is made, at least one.
    host : Host
        What the CPU does.
    options : GpuOptions
        How to decode.
    give_back : callable
        Called with the equipment when it is no longer used.
    """

    def __init__(
        self,
        resources: GpuResources,
        programs: Sequence[ImageProgram],
        host: CpuServices,
        options: GpuOptions,
        give_back: Callable[[GpuResources], None],
    ) -> None:
        self._resources = resources
        self._device = resources.device
        self._programs = list(programs)
        self._cpu_programs = [
            replace(program, table=None, mean_std=None, dtype="uint8", device="cpu", colours=(), mixing=None)
            for program in programs
        ]
        self._host = host
        self._raw = raw_lane(options.raw, host.num_workers)
        self._give_back = give_back
        self._cpu_executor: ImageExecutor | None = None
        self._submitted = 0
        self._batches: deque[BatchState] = deque()
        self._is_closed = False
        with self._device.active():
            self._augmenter = Augmenter(self._device, programs, resources.streams.canary)
            self._handed_out = self._device.make_event()
            self._mixed = self._device.make_event()
            self._mixes = Table(self._device)
            self._feeder = Feeder(resources, self._augmenter, host, self)

    # --- batches ------------------------------------------------------------------------------------------------------

    def take(self, program: int, count: int) -> Any:
        """Make a tensor for a batch.

        Parameters
        ----------
        program : int
            Number of the program.
        count : int
            Images.

        Returns
        -------
        torch.Tensor, shape (count, height, width, 3)
            On the device, not initialised; for use on the stream of tails, and behind what is there now. Levels, if
            they are to be mixed.
        """
        own = self._programs[program]
        with self._device.active():
            return self._device.empty((count, own.height, own.width, 3), own.pass_dtype, self._resources.streams.tail)

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        """Begin a batch: a job for each program. Never waits.

        Parameters
        ----------
        jobs : sequence of ImageJob
            All of the same length; `ImageJob.out` is what `take` gave.

        Raises
        ------
        RuntimeError
            If all slots are in use: collect first.
        LoaderClosedError
            If the crew is closed.
        """
        if self._is_closed:
            raise LoaderClosedError("the loader was closed while a batch was being made")
        jobs = [_with_early_paints(job, program) for job, program in zip(jobs, self._programs, strict=True)]
        slots = self._resources.slots
        if len(self._batches) == len(slots):
            raise RuntimeError(f"all {len(slots)} batches are in flight")
        with self._device.active():
            work = self._plan(jobs, self._submitted % len(slots))
            # The memory of a batch may have been somebody's before, whose work on the stream of tails is not done.
            self._handed_out.record(self._resources.streams.tail)
            self._resources.streams.augment.wait(self._handed_out)  # wait point: batch memory free
            if work.needs_cpu:
                self._start_cpu_images(work)
        self._submitted += 1
        self._batches.append(work)
        self._feeder.put(work)

    def collect(self) -> list[BadImage]:
        """Wait for the oldest batch.

        Returns
        -------
        list of BadImage
            What could not be made; all else of the batch is complete.
        """
        if not self._batches:
            raise RuntimeError("no batch is in flight")
        work = self._batches[0]
        work.is_issued.wait()  # wait point: batch issued
        if work.error is not None:
            raise work.error
        with self._device.active():
            # Not only for the images: the slot's memory is written to again by whoever comes next, the JPEG engines
            # without regard to any stream.
            work.slot.done.synchronize()  # wait point: batch done
            bad = [*work.bad, *self._repair(work)]
        self._batches.popleft()
        return bad

    def decode(self, program: int, job: ImageJob) -> list[BadImage]:
        """Carry one job out in the caller's thread, image by image.

        Parameters
        ----------
        program : int
            Number of the program.
        job : ImageJob
            The images.

        Returns
        -------
        list of BadImage
            What could not be made.
        """
        bad = []
        job = _with_early_paints(job, self._programs[program])
        with self._device.active():
            for row in range(len(job.address)):
                one = job.rows(np.array([row]), job.out[row : row + 1])
                bad += [replace(found, row=row) for found in self._make_one([program], [one])]
        return bad

    @property
    def usage(self) -> Usage:
        """How busy the CPU's workers were until now, all together."""
        return Usage() if self._cpu_executor is None else self._cpu_executor.usage

    def close(self) -> None:
        """End the thread and give the equipment back, when nothing is under way. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        with ExitStack() as last:
            last.enter_context(self._device.active())
            last.callback(self._augmenter.free)
            last.callback(self._mixes.free)
            self._feeder.close()
            if self._cpu_executor is not None:
                # Workers write to the slots' memory, also for batches that nobody waits for any more.
                self._cpu_executor.close()
            # Equipment with an error in one of its streams is given up: this raises then.
            self._resources.settle()  # wait point: executor closing
            self._batches.clear()
            self._give_back(self._resources)

    # --- tails --------------------------------------------------------------------------------------------------------

    @contextmanager
    def tail(self) -> Iterator[None]:
        """Let torch work on the stream of tails for a while, where finished batches are ready."""
        with self._device.active(), self._device.using(self._resources.streams.tail):
            yield

    def mix(self, program: int, levels: Any, rows: NDArray[np.int32]) -> Any:
        """Mix the images of a complete batch with each other, on the stream of tails.

        Parameters
        ----------
        program : int
            Number of the program.
        levels : torch.Tensor of uint8, shape (N, height, width, 3)
            The batch as it was made.
        rows : ndarray of int32, shape (N, MIX_COLUMNS)
            See `ImageProgram.draw_mixes`.

        Returns
        -------
        torch.Tensor, shape (N, height, width, 3)
            Of the program's type.
        """
        own, tail = self._programs[program], self._resources.streams.tail
        out = self._device.empty((len(rows), own.height, own.width, 3), own.dtype, tail)
        # The rows of the batch before may still be on their way.
        self._mixed.synchronize()  # wait point: mix table free
        places = self._mixes.fill({"rows": rows})
        self._mixes.send(tail)
        self._augmenter.mix(program, len(rows), levels.data_ptr(), places["rows"], out.data_ptr(), tail)
        self._mixed.record(tail)
        return out

    def fetch(self, tensor: Any) -> Any:
        """Copy a tensor of the device to the host; waits."""
        return self._device.fetch(tensor, self._resources.streams.tail)

    def arrival(self, tensors: Sequence[Any]) -> Callable[[], None]:
        """Mark what is on the stream of tails now.

        Parameters
        ----------
        tensors : sequence of torch.Tensor
            What is handed over.

        Returns
        -------
        callable
            Called in the consumer's thread, lets its current stream wait for that mark.
        """
        ready = self._device.make_event()
        ready.record(self._resources.streams.tail)
        device = self._device

        def arrive() -> None:
            with device.active():
                device.hand_over(tensors, ready)  # wait point: handed over

        return arrive

    # --- inside -------------------------------------------------------------------------------------------------------

    def _plan(self, jobs: Sequence[ImageJob], number: int) -> BatchState:
        """Decide where everything goes, have the memory for it, and describe it to the kernels."""
        slot = self._resources.slots[number]
        sources = shared_sources(jobs)
        lanes, samplings = zip(*(self._survey(job) for job in jobs), strict=True)
        placement = lay_out_batch(self._programs, jobs, sources, lanes, samplings)
        arena = slot.arena.reserve(placement.arena_nbytes).address
        slot.staging.reserve(placement.staging_nbytes)
        slot.taps.reserve(
            max(
                self._augmenter.taps_nbytes(program, len(job.address), most_taps(job.draws, self._programs[program]))
                for program, job in enumerate(jobs)
            )
        )
        slot.levels.reserve(
            max(self._augmenter.resampled_nbytes(program, len(job.address)) for program, job in enumerate(jobs))
        )
        needs_cpu = any(one.is_finished for one in placement.sent)
        work = BatchState(slot, jobs, sources, placement, self._resources.next_nonce(), needs_cpu)
        work.describe(self._programs, arena)
        return work

    def _survey(self, job: ImageJob) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
        """Choose a lane for each image of a job; tell how its chroma is sampled."""
        survey = np.zeros((len(job.address), SURVEY_COLUMNS), np.int32)
        is_jpeg = job.mode == ImageMode.JPG
        if is_jpeg.all():
            self._host.survey(job.address, job.size, survey)
        elif is_jpeg.any():
            found = survey[is_jpeg]
            self._host.survey(job.address[is_jpeg], job.size[is_jpeg], found)
            survey[is_jpeg] = found
        lanes = choose_lanes(
            job.mode, job.size, job.height, job.width, survey, available=self._resources.lanes.keys(), raw=self._raw
        )
        if self._resources.fallbacks:
            lanes[:] = [self._resources.fallbacks.get(_identity(job, row), lane) for row, lane in enumerate(lanes)]
        return lanes, survey[:, SAMPLING]

    def _start_cpu_images(self, work: BatchState) -> None:
        """Let the CPU's workers make their images of a batch, right into the staging memory."""
        array = work.slot.staging.reserve(0).array
        jobs = []
        for number, (program, job) in enumerate(zip(self._programs, work.jobs, strict=True)):
            rows, start = np.zeros(0, np.intp), 0
            for one in work.placement.sent:
                if one.program == number and one.is_finished:
                    rows, start = one.rows, one.staged
            shape = (len(rows), program.height, program.width, 3)
            out = array[start : start + int(np.prod(shape))].reshape(shape)
            jobs.append(replace(job.rows(rows, out), colours=None))  # those are changed on the GPU
        self._workers().submit(jobs)

    def collect_cpu_images(self, work: BatchState) -> list[BadImage]:
        """Wait for the images that the CPU's workers make of a batch.

        Parameters
        ----------
        work : Work
            The batch.

        Returns
        -------
        list of BadImage
            Those that cannot be made, with their rows in the batch.
        """
        rows = {one.program: one.rows for one in work.placement.sent if one.is_finished}
        return [replace(bad, row=int(rows[bad.program][bad.row])) for bad in self._workers().collect()]

    def _workers(self) -> ImageExecutor:
        if self._cpu_executor is None:
            self._cpu_executor = self._host.start_executor(self._cpu_programs)
        return self._cpu_executor

    def _repair(self, work: BatchState) -> list[BadImage]:
        """Make the images that nvJPEG did not decode with the others."""
        bad = []
        for source, row in sorted(work.missing):
            programs = [number for number, own in enumerate(work.sources) if own == source]
            jobs = [work.jobs[number] for number in programs]
            place_of = np.array([row])
            ones = [job.rows(place_of, job.out[row : row + 1]) for job in jobs]
            bad += [replace(found, row=row) for found in self._make_one(programs, ones)]
        return bad

    def _make_one(self, programs: Sequence[int], jobs: Sequence[ImageJob]) -> list[BadImage]:
        """Make one stored image for some programs: by its own lane, by nvJPEG's other one, or by the CPU."""
        resources, single, job = self._resources, self._resources.single, jobs[0]
        chosen = Lane(self._survey(job)[0][0])
        if chosen in resources.lanes:
            own = [(number, self._programs[number]) for number in programs]
            for lane in dict.fromkeys([chosen, Lane.HYBRID]):
                decoder = resources.lanes.get(lane)
                if decoder is not None and not single.decode(
                    decoder, own, jobs, self._augmenter, resources.next_nonce()
                ):
                    if lane is not chosen:
                        resources.fallbacks[_identity(job, 0)] = lane
                    return []
            resources.fallbacks[_identity(job, 0)] = Lane.CPU
        bad: list[BadImage] = []
        for number, one in zip(programs, jobs, strict=True):
            program = self._programs[number]
            levels = np.empty((1, program.height, program.width, 3), np.uint8)
            found = self._workers().decode(number, replace(one, out=levels))
            bad += found
            if not found:
                single.finish(number, program, one, levels, self._augmenter)
        return bad


def _identity(job: ImageJob, row: int) -> tuple[str, int]:
    """Name a stored image: its field, and its sample or where it lies."""
    return job.source, int(job.address[row] if job.samples is None else job.samples[row])


def _with_early_paints(job: ImageJob, program: ImageProgram) -> ImageJob:
    """Leave paints that come behind changes of colour to the kernel that paints them."""
    if program.early_paints == program.max_paints:
        return job
    draws = job.draws.copy()
    draws[:, NUM_PAINTS] = program.early_paints
    return replace(job, draws=draws)


class Gpu:
    """One GPU as a loader uses it: keeps decoders and memory from one epoch to the next.

    Parameters
    ----------
    device : Device
        The GPU.
    options : GpuOptions
        How to decode.
    open_lanes : callable
        Opens the ways to decode, once for each epoch that is under way at once.
    num_slots : int
        Batches that may be under way in one epoch.

    Attributes
    ----------
    notes : dict of Lane to str
        What there is to say of each lane.
    """

    def __init__(
        self, device: Device, options: GpuOptions, open_lanes: Callable[[Device], DecodeBackends], *, num_slots: int
    ) -> None:
        self.device = device
        self.options = options
        self._open_backends = open_lanes
        self._num_slots = num_slots
        self._lock = threading.Lock()
        self._is_closed = False
        # What cannot be opened is told at once, and not in the loop.
        first, self.notes = self._make()
        self._free = [first]

    def crew(self, programs: Sequence[ImageProgram], host: CpuServices) -> GpuExecutor:
        """Begin an epoch.

        Parameters
        ----------
        programs : sequence of ImageProgram
            What is made.
        host : Host
            What the CPU does for it.

        Returns
        -------
        GpuExecutor
            To be closed.
        """
        with self._lock:
            resources = self._free.pop() if self._free else None
        if resources is None:
            resources, _ = self._make()
        try:
            return GpuExecutor(resources, programs, host, self.options, self._take_back)
        except BaseException:
            self._take_back(resources)
            raise

    def close(self) -> None:
        """Free what no epoch uses; the rest is freed when its epoch ends. May be called twice."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for resources in free:
            # An error that is stuck in the GPU was raised where it appeared. Nothing can be freed any more then, and
            # whoever closes has other things to close.
            with suppress(DeviceError):
                resources.close()

    def _make(self) -> tuple[GpuResources, dict[Lane, str]]:
        with self.device.active():
            streams = EpochStreams(self.device)
            lanes = self._open_backends(self.device)
            resources = GpuResources(
                device=self.device,
                lanes=lanes.lanes,
                slots=[Slot(self.device) for _ in range(self._num_slots)],
                streams=streams,
                single=PerImageRetry(self.device, streams.repair),
                is_deterministic=self.options.deterministic,
            )
        return resources, dict(lanes.notes)

    def _take_back(self, resources: GpuResources) -> None:
        with self._lock:
            if not self._is_closed:
                self._free.append(resources)
                return
        resources.close()
