"""GpuExecutor: makes the images of planned batches on a GPU; Gpu: keeps its resources between epochs."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._gpu.batch_state import BatchState, DecodeRequest
from gpubeton._gpu.device_structs import PICTURE
from gpubeton._gpu.feeder import Feeder
from gpubeton._gpu.gpu_resources import GpuResources
from gpubeton._gpu.launch import describe_images, image_arrays, mix_images, program_constants
from gpubeton._gpu.memory_layout import lay_out_batch
from gpubeton._plan.draw_rows import DRAW_COLUMNS, NUM_PAINTS, identity_draws
from gpubeton._plan.image_executor import Usage, shared_sources
from gpubeton._plan.lanes import (
    KIND,
    SAMPLING,
    SURVEY_COLUMNS,
    TABLES,
    JpegKind,
    Lane,
    assign_lanes,
    lanes_by_kind,
    raw_lane,
)
from gpubeton._plan.pixel_places import ALIGNMENT, round_up, taps_nbytes
from gpubeton.errors import DeviceError, LoaderClosedError
from gpubeton.format import ImageMode

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._gpu.batch_state import Slot
    from gpubeton._gpu.cuda import Device
    from gpubeton._gpu.entry_decoder import EntryImages, ResidentJpegs
    from gpubeton._gpu.gpu_options import GpuOptions
    from gpubeton._gpu.nvjpeg_backends import DecodeBackends
    from gpubeton._plan.cpu_services import CpuServices
    from gpubeton._plan.image_executor import BadImage, ImageExecutor, ImageJob
    from gpubeton._plan.program import ImageProgram


class GpuExecutor:
    """Makes the images of batches on a GPU; batches go in and come out in order."""

    # The path of a batch:
    # 1. Take a free slot: the host has waited for the batch that used it before.
    # 2. Write canaries into the arena, and wait for them.
    # 3. Copy compressed bytes to pinned memory, micro-batch by micro-batch, and give them to the decoders. Copy the
    #    crops of raw-stored images to the device.
    # 4. The kernels wait on the device for all of that, write the batch, and report the canaries that are left.
    # 5. `collect` waits on the host. Images with a canary left are decoded once more; the CPU makes the missing ones.

    def __init__(
        self,
        resources: GpuResources,
        programs: Sequence[ImageProgram],
        cpu: CpuServices,
        options: GpuOptions,
        give_back: Callable[[GpuResources], None],
        resident: Mapping[str, ResidentJpegs],  # by field
    ) -> None:
        self._resources = resources
        self._device = resources.device
        self._programs = list(programs)
        self._cpu_programs = [
            replace(program, table=None, mean_std=None, dtype="uint8", device="cpu", colors=(), mixing=None)
            for program in programs
        ]
        self._cpu = cpu
        self._by_kind = lanes_by_kind(resources.backends.keys())
        self._raw = int(raw_lane(options.raw, cpu.num_workers))
        self._give_back = give_back
        self._resident = resident
        self._cpu_executor: ImageExecutor | None = None
        self._submitted = 0
        self._batches: deque[BatchState] = deque()
        self._most_taps = [1] * len(self._programs)  # of an output pixel of each program, until now
        self._is_closed = False
        with self._device.active():
            sending = resources.constants, resources.streams.send
            self.constants = [program_constants(program, *sending) for program in programs]
            self._handed_out = self._device.make_event()
            self._mixed = self._device.make_event()
            self._feeder = Feeder(resources, cpu, self)

    # --- batches ------------------------------------------------------------------------------------------------------

    def take(self, program: int, count: int) -> Any:
        """Make a tensor (count, height, width, 3) for a batch, not initialized; for use on the tail stream."""
        own = self._programs[program]
        with self._device.active():
            return self._device.empty((count, own.height, own.width, 3), own.pass_dtype, self._resources.streams.tail)

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        """Begin a batch: a job for each program. Never waits."""
        if self._is_closed:
            raise LoaderClosedError("the loader was closed while a batch was being made")
        jobs = [_with_early_paints(job, program) for job, program in zip(jobs, self._programs, strict=True)]
        slots = self._resources.slots
        if len(self._batches) == len(slots):
            raise RuntimeError(f"all {len(slots)} batches are in flight")
        with self._device.active():
            batch = self._plan(jobs, self._submitted % len(slots))
            # Torch may have reused memory whose earlier work on the tail stream is not done.
            self._handed_out.record(self._resources.streams.tail)
            self._resources.streams.augment.wait(self._handed_out)  # wait point: batch memory free
            if batch.finished:
                self._start_cpu_images(batch)
            self._submitted += 1
            self._batches.append(batch)
            self._feeder.put(batch)

    def collect(self) -> list[BadImage]:
        """Wait for the oldest batch; return the images that could not be made."""
        if not self._batches:
            raise RuntimeError("no batch is in flight")
        batch = self._batches[0]
        batch.wait()  # wait point: batch issued
        if batch.has_failed:
            raise self._feeder.take_failure()
        with self._device.active():
            # Not only for the images: the next batch writes to the slot, and the JPEG engines do so before their
            # stream's turn.
            batch.slot.done.synchronize()  # wait point: batch done
            bad = batch.bad if batch.is_complete else [*batch.bad, *self._repair(batch)]
        self._batches.popleft()
        return bad

    def decode(self, program: int, job: ImageJob) -> list[BadImage]:
        """Make the images of one job in the caller's thread, on the CPU."""
        job = _with_early_paints(job, self._programs[program])
        with self._device.active():
            return self._make_on_cpu(program, job, range(len(job.address)))

    @property
    def usage(self) -> Usage:
        """How busy the CPU's workers were until now, all together."""
        return Usage() if self._cpu_executor is None else self._cpu_executor.usage

    def close(self) -> None:
        """End the thread and return the resources, when nothing is under way. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        with self._device.active():
            self._feeder.close()
            if self._cpu_executor is not None:
                # Workers write to the slots' memory, also for batches that are no longer collected.
                self._cpu_executor.close()
            try:
                # Raises after an error in one of the streams: these resources are not used again.
                self._resources.settle()  # wait point: executor closing
            finally:
                # The feeder refers to this object, whose memory would wait for a full garbage collection.
                del self._feeder
                self._batches.clear()
                self._resident = {}
            self._give_back(self._resources)

    # --- operations on whole batches ----------------------------------------------------------------------------------

    @contextmanager
    def tail(self) -> Iterator[None]:
        """Let torch work on the tail stream for a while, where finished batches are ready."""
        with self._device.active(), self._device.using(self._resources.streams.tail):
            yield

    def mix(
        self,
        program: int,
        levels: Any,
        rows: NDArray[np.int32],  # (N, MIX_COLUMNS) int32
    ) -> Any:
        """Mix the images of a complete batch with each other, on the tail stream."""
        own, tail = self._programs[program], self._resources.streams.tail
        out = self._device.empty((len(rows), own.height, own.width, 3), own.dtype, tail)
        # The copy of the previous batch's rows may not be done.
        self._mixed.synchronize()  # wait point: mix table free
        places = self._resources.mixes.fill({"rows": rows})
        self._resources.mixes.send(tail)
        size, addresses = (len(rows), own.height, own.width), (levels.data_ptr(), places["rows"])
        mix_images(self._device, size, *addresses, *self.constants[program].mixed, out.data_ptr(), tail)
        self._mixed.record(tail)
        return out

    def fetch(self, tensor: Any) -> Any:
        """Copy a tensor of the device to the host; waits."""
        return self._device.fetch(tensor, self._resources.streams.tail)

    def arrival(self, tensors: Sequence[Any]) -> Callable[[], None]:
        """Mark the end of the tail stream; return a function that lets the consumer's stream wait for it."""
        device, ready = self._device, self._device.make_event()
        ready.record(self._resources.streams.tail)

        def arrive() -> None:
            with device.active():
                device.hand_over(tensors, ready)  # wait point: handed over

        return arrive

    # --- inside -------------------------------------------------------------------------------------------------------

    def _plan(self, jobs: Sequence[ImageJob], number: int) -> BatchState:
        """Decide where everything goes, reserve the memory, and describe it to the kernels."""
        slot = self._resources.slots[number]
        sources = shared_sources(jobs)
        lanes, samplings, found = zip(*(self._survey(number, job) for number, job in enumerate(jobs)), strict=True)
        layout = lay_out_batch(self._programs, jobs, sources, lanes, samplings)
        entry_images = {own.number: own for own in found if own is not None}
        for own in entry_images.values():
            own.offset, own.staged = layout.arena_nbytes, layout.staging_nbytes
            layout.arena_nbytes += round_up(own.nbytes)
            layout.staging_nbytes += round_up(own.nbytes)
        arena = slot.arena.reserve(layout.arena_nbytes).address
        slot.staging.reserve(layout.staging_nbytes)
        batch = BatchState(slot, jobs, sources, layout, next(self._resources.nonces) & 0xFFFFFFFF, entry_images)
        places = slot.table.fill(batch.arrays(self.constants, arena))
        self._prepare_launches(slot, jobs, places)
        batch.images = [own.begin(job.out.data_ptr(), batch.nonce) for own, job in zip(slot.images, jobs, strict=True)]
        return batch

    def _prepare_launches(self, slot: Slot, jobs: Sequence[ImageJob], places: Mapping[Hashable, int]) -> None:
        """Reserve memory for the kernels and prepare their launches, unless the slot's last batch had the same."""
        drawn = zip(self._most_taps, self.constants, jobs, strict=True)
        most = self._most_taps = [max(one, own.most_taps(job.draws)) for one, own, job in drawn]
        needed = [self.constants, slot.table.kinds, places, *most]  # addresses alone may be those of other shapes
        if slot.prepared_for == needed:
            return
        slot.prepared_for = []
        largest, levels = 0, [0]
        for i, (own, job) in enumerate(zip(self.constants, jobs, strict=True)):
            largest = max(largest, sum(taps_nbytes(len(job.address), own.side, most[i])))
            levels.append(levels[-1] + round_up(len(job.address) * own.levels_nbytes))
        taps, first = slot.taps.reserve(largest).address, slot.resampled.reserve(levels[-1]).address
        slot.images = [
            describe_images(i, own, job, places, most_taps=most[i], taps=taps, levels=first + levels[i])
            for i, (own, job) in enumerate(zip(self.constants, jobs, strict=True))
        ]
        slot.prepared_for = needed

    def _survey(self, number: int, job: ImageJob) -> tuple[NDArray[np.int8], NDArray[np.int32], EntryImages | None]:
        """Choose a lane for each image of a job; read its chroma sampling, and what our decoder needs."""
        lanes, survey = np.empty(len(job.mode), np.int8), np.zeros((len(job.mode), SURVEY_COLUMNS), np.int32)
        choice = job.mode, job.size, job.height, job.width, survey, self._by_kind, self._raw, lanes
        if assign_lanes(*choice) == 0:
            return lanes, survey[:, SAMPLING], None
        backends, decoder, is_jpeg = self._resources.backends, self._resources.entry_decoder, job.mode == ImageMode.JPG
        resident = self._resident.get(job.source)
        is_known = np.zeros(len(survey), bool) if decoder is None else decoder.knows(job, resident)
        # Nothing of these images is read, not even a header. Other decoders may get those of which ours makes no image.
        if resident is not None or not backends:
            is_jpeg &= ~is_known
        if is_jpeg.any():
            found = survey[is_jpeg]
            self._cpu.survey(job.address[is_jpeg], job.size[is_jpeg], found)
            survey[is_jpeg] = found
            assign_lanes(*choice)
        is_refused, refused = np.zeros(len(lanes), bool), self._resources.refused
        if refused:
            is_refused[:] = [_identity(job, row) in refused for row in range(len(lanes))]
        own = None
        if decoder is not None:
            is_baseline = is_jpeg & (survey[:, KIND] == JpegKind.BASELINE)
            rows = np.flatnonzero((is_known | is_baseline if resident is None else is_known) & ~is_refused)
            own = decoder.plan(number, self.constants[number], job, rows, self._cpu, is_known, resident)
        if own is not None:
            lanes[own.rows] = Lane.OWN
        for lane, backend in backends.items():
            rows = np.flatnonzero(lanes == lane)
            if len(rows):
                request = DecodeRequest.of(job, rows, np.zeros(len(rows)), np.zeros(len(rows)))
                takes = backend.takes(request, survey[rows, TABLES], survey[rows, SAMPLING])
                lanes[rows[~takes]] = Lane.CPU
        lanes[is_refused & (lanes < Lane.CPU)] = Lane.CPU
        return lanes, survey[:, SAMPLING], own

    def _start_cpu_images(self, batch: BatchState) -> None:
        """Let the CPU's workers write their images of a batch into the staging memory."""
        array, jobs = batch.slot.staging.reserve(0).array, []
        for number, (program, job) in enumerate(zip(self._programs, batch.jobs, strict=True)):
            one = batch.finished.get(number)
            rows, start = (np.zeros(0, np.intp), 0) if one is None else (one.finished, one.staged + one.crops_nbytes)
            shape = (len(rows), program.height, program.width, 3)
            out = array[start : start + int(np.prod(shape))].reshape(shape)
            jobs.append(replace(job.rows(rows, out), colors=None))  # the GPU changes them
        self._workers().submit(jobs)

    def collect_cpu_images(self, batch: BatchState) -> list[BadImage]:
        """Wait for the images of a batch that the CPU makes; return the bad ones."""
        finished, found = batch.finished, self._workers().collect()
        return [replace(bad, row=int(finished[bad.program].finished[bad.row])) for bad in found]

    def _workers(self) -> ImageExecutor:
        if self._cpu_executor is None:
            self._cpu_executor = self._cpu.start_executor(self._cpu_programs)
        return self._cpu_executor

    def _repair(self, batch: BatchState) -> list[BadImage]:
        """Make the images that were not decoded: by their decoder once more if it left them out, then by the CPU."""
        missing = batch.left_out
        if missing - batch.failed:
            self.decode_again(batch)
            missing = batch.left_out
        missing |= batch.failed
        if not missing:
            return []
        # Bytes that were damaged on their way may come again.
        self._resources.refused |= {_identity(batch.jobs[source], row) for source, row in missing - batch.damaged}
        bad = []
        for number, (job, source) in enumerate(zip(batch.jobs, batch.sources, strict=True)):
            bad += self._make_on_cpu(number, job, sorted(row for own, row in missing if own == source))
        return bad

    def decode_again(self, batch: BatchState) -> None:
        """Decode the images that have a canary left, and make the outputs of the batch again."""
        # So chance does not decide which decoder makes an image: the result is the same in every run.
        left_out, tail = batch.left_out - batch.failed, self._resources.streams.tail
        for own in batch.layout.decoded:
            is_missing = np.isin(own.rows, [row for source, row in left_out if source == own.program])
            for begun in self._feeder.decode(batch, own, is_missing):
                if begun.event is not None:
                    begun.event.synchronize()  # wait point: decoded again
        for status in batch.status:
            status[...] = 0
        batch.slot.table.send(tail)
        self._feeder.augment(batch, tail)
        tail.synchronize()  # wait point: made again

    def _make_on_cpu(self, number: int, job: ImageJob, rows: Sequence[int]) -> list[BadImage]:
        """Make some images of a job for one program: the CPU decodes and resizes them, the GPU does the rest."""
        program, bad = self._programs[number], []
        for row in rows:
            one = job.rows(np.array([row]), job.out[row : row + 1])
            levels = np.empty((1, program.height, program.width, 3), np.uint8)
            found = self._workers().decode(number, replace(one, out=levels, colors=None))
            bad += [replace(own, row=row) for own in found]
            if not found:
                self.finish(number, one, levels[0])
        return bad

    def finish(
        self,
        number: int,
        job: ImageJob,  # of one image
        levels: NDArray[np.uint8],  # (height, width, 3), of the output's size
    ) -> None:
        """Send an image that the CPU has made to the device, change its colors and store it there; waits."""
        program, slot, stream = self._programs[number], self._resources.repair_slot, self._resources.streams.tail
        staging = slot.staging.reserve(levels.nbytes)
        arena = slot.arena.reserve(levels.nbytes + ALIGNMENT).address
        staging.array[: levels.nbytes] = levels.reshape(-1)
        picture = np.array([(arena, 3 * program.width, program.height, program.width, 0, 0, 0)], PICTURE)
        draws = identity_draws(program.height, program.width, job.draws.shape[1])
        draws[:, DRAW_COLUMNS:] = job.draws[:, DRAW_COLUMNS:]  # the CPU leaves paints after changes of color
        whole = replace(job, draws=draws)
        own = self.constants[number]
        most = own.most_taps(whole.draws)
        places = slot.table.fill(image_arrays(number, own, picture, whole.draws, whole.colors))
        slot.table.send(stream)
        self._device.copy(arena, staging.address, levels.nbytes, stream)
        taps = slot.taps.reserve(sum(taps_nbytes(1, own.side, most))).address
        resampled = slot.resampled.reserve(own.levels_nbytes).address
        images = describe_images(number, own, whole, places, most_taps=most, taps=taps, levels=resampled)
        images.begin(job.out.data_ptr(), nonce=0)
        images.resample(self._device, stream)
        images.change_colors(self._device, stream)
        stream.synchronize()  # wait point: repair finished


def _identity(job: ImageJob, row: int) -> tuple[str, int]:
    """Identify a stored image by its field and its sample, or its address."""
    return job.source, int(job.address[row] if job.samples is None else job.samples[row])


def _with_early_paints(job: ImageJob, program: ImageProgram) -> ImageJob:
    """Leave paints after changes of color to the kernel."""
    if program.early_paints == program.max_paints:
        return job
    draws = job.draws.copy()
    draws[:, NUM_PAINTS] = program.early_paints
    return replace(job, draws=draws)


class Gpu:
    """One GPU as a loader uses it: keeps decoders and memory from one epoch to the next."""

    def __init__(
        self, device: Device, options: GpuOptions, open_backends: Callable[[Device], DecodeBackends], *, num_slots: int
    ) -> None:
        self.device = device
        self.options = options
        self._open_backends = open_backends
        self._num_slots = num_slots
        self._lock = threading.Lock()
        self._is_closed = False
        self.resident: Mapping[str, ResidentJpegs] = {}  # by field; executors that begin use it
        # Errors of opening are raised at once, and not in the loop.
        first, opened = self._make()
        self.notes, self.warning = dict(opened.notes), opened.warning
        self.takes_entries = opened.takes_entries
        self.takes_entries_only = opened.takes_entries and not opened.backends
        self._free = [first]

    def crew(self, programs: Sequence[ImageProgram], host: CpuServices) -> GpuExecutor:
        """Begin an epoch; the executor has to be closed."""
        with self._lock:
            resources = self._free.pop() if self._free else None
        if resources is None:
            resources, _ = self._make()
        try:
            return GpuExecutor(resources, programs, host, self.options, self._take_back, self.resident)
        except BaseException:
            self._take_back(resources)
            raise

    def close(self) -> None:
        """Free what no epoch uses; the rest is freed when its epoch ends. May be called twice."""
        self.resident = {}
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for resources in free:
            # After an error of the GPU, which was raised where it appeared, nothing can be freed; the caller has other
            # things to close.
            with suppress(DeviceError):
                resources.close()

    def _make(self) -> tuple[GpuResources, DecodeBackends]:
        with self.device.active():
            backends = self._open_backends(self.device)
            made = GpuResources(self.device, backends.backends, self._num_slots, takes_entries=backends.takes_entries)
            return made, backends

    def _take_back(self, resources: GpuResources) -> None:
        with self._lock:
            if not self._is_closed:
                self._free.append(resources)
                return
        resources.close()
