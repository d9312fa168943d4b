"""GpuExecutor: makes the images of planned batches on a GPU."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._gpu.cpu_images import CpuImages
from gpubeton._gpu.feeder import Feeder
from gpubeton._gpu.launch import mix_images, program_constants
from gpubeton._gpu.planner import BatchPlanner, image_identity
from gpubeton.errors import LoaderClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._gpu.batch import Batch
    from gpubeton._gpu.entry_decoder import ResidentJpegs
    from gpubeton._gpu.gpu_resources import GpuResources
    from gpubeton._gpu.options import GpuOptions
    from gpubeton._plan.image_job import BadImage, CpuServices, ImageJob, Usage
    from gpubeton._plan.program import ImageProgram

_CLOSED = "the loader was closed while a batch was being made. Begin a new iteration"


class GpuExecutor:
    """Makes the images of batches on a GPU; batches go in and come out in order."""

    # The life of a batch:
    # 1. `submit` takes a free slot: the host has waited for the batch that used it before. The planner chooses a decode
    #    route for each image, lays out the slot's memory and describes the batch to the kernels.
    # 2. The CPU's workers begin with their images.
    # 3. The feeder writes canaries into the arena and waits for them; copies compressed bytes to pinned memory, call by
    #    call, and gives them to the decoders; copies the crops of raw-stored images to the device. The kernels wait on
    #    the device for all of that, write the batch, and report the canaries that are left.
    # 4. `collect` waits on the host. Images with a canary left are decoded once more; the CPU makes the missing ones.

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
        self._device = device = resources.device
        self._programs = list(programs)
        self._give_back = give_back
        self._submitted = 0
        self._batches: deque[Batch] = deque()
        self._is_closed = False
        with device.active():
            sending = resources.constants, resources.streams.send
            self._constants = [program_constants(program, *sending) for program in programs]
            self._handed_out = device.make_event()
            self._mixed = device.make_event()
            self._planner = BatchPlanner(resources, self._programs, self._constants, cpu, options, resident)
            self._cpu_images = CpuImages(resources, self._programs, self._constants, cpu)
            self._feeder = Feeder(resources, cpu, self._cpu_images)

    # --- batches ------------------------------------------------------------------------------------------------------

    def take(self, program: int, count: int) -> Any:
        """Make a tensor (count, height, width, 3) for a batch, not initialized; for the stream of batch operations."""
        output, stream = self._programs[program], self._resources.streams.batch_ops
        with self._device.active():
            return self._device.empty((count, output.height, output.width, 3), output.pass_dtype, stream)

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        """Begin a batch: a job for each program. Never waits."""
        if self._is_closed:
            raise LoaderClosedError(_CLOSED)
        slots, streams = self._resources.slots, self._resources.streams
        if len(self._batches) == len(slots):
            raise RuntimeError(f"all {len(slots)} batches are in flight")
        with self._device.active():
            batch = self._planner.plan(jobs, slots[self._submitted % len(slots)])
            # Torch may have reused memory whose earlier batch operations are not done.
            self._handed_out.record(streams.batch_ops)
            streams.augment.wait(self._handed_out)  # wait point: batch memory free
            if batch.finished:
                self._cpu_images.submit(batch)
            self._submitted += 1
            self._batches.append(batch)
            self._feeder.put(batch)

    def collect(self) -> list[BadImage]:
        """Wait for the oldest batch; return the images that could not be made."""
        if not self._batches:
            raise LoaderClosedError(_CLOSED) if self._is_closed else RuntimeError("no batch is in flight")
        batch = self._batches[0]
        batch.wait()  # wait point: batch issued
        if batch.has_failed:
            raise self._feeder.take_failure()
        with self._device.active():
            # Not only for the images: the next batch writes to the slot, and the JPEG engines do so before their
            # stream's turn.
            batch.slot.done.synchronize()  # wait point: batch done
            bad_images = batch.bad if batch.is_complete else [*batch.bad, *self._repair(batch)]
        self._batches.popleft()
        return bad_images

    def decode(self, program: int, job: ImageJob) -> list[BadImage]:
        """Make the images of one job in the caller's thread, on the CPU."""
        with self._device.active():
            return self._cpu_images.make(program, job, range(len(job.address)))

    @property
    def usage(self) -> Usage:
        """How busy the CPU's workers were until now, all together."""
        return self._cpu_images.usage

    def close(self) -> None:
        """End the thread and return the resources, when nothing is under way. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        with self._device.active():
            self._feeder.close()
            # Workers write to the slots' memory, also for batches that are no longer collected.
            self._cpu_images.close()
            try:
                # Raises after an error in one of the streams: these resources are not used again.
                self._resources.settle()  # wait point: executor closing
            finally:
                self._batches.clear()
                del self._planner  # it holds the resident images
            self._give_back(self._resources)

    # --- repairs ------------------------------------------------------------------------------------------------------

    def _repair(self, batch: Batch) -> list[BadImage]:
        """Make the images that were not decoded: by their decoder once more if it left them out, then by the CPU."""
        missing = batch.left_out
        if missing - batch.failed:
            self.decode_again(batch)
            missing = batch.left_out
        missing |= batch.failed
        # Bytes that were damaged on their way may come again.
        self._resources.refused |= {image_identity(batch.jobs[source], row) for source, row in missing - batch.damaged}
        bad_images = []
        for number, (job, source) in enumerate(zip(batch.jobs, batch.sources, strict=True)):
            rows = sorted(row for first, row in missing if first == source)
            bad_images += self._cpu_images.make(number, job, rows)
        return bad_images

    def decode_again(self, batch: Batch) -> None:
        """Decode the images that have a canary left, and make the outputs of the batch again."""
        # So chance does not decide which decoder makes an image: the result is the same in every run.
        left_out, stream = batch.left_out - batch.failed, self._resources.streams.batch_ops
        for decoded in batch.decoded:
            is_missing = np.isin(decoded.rows, [row for source, row in left_out if source == decoded.program])
            for event in self._feeder.decode(batch, decoded, is_missing):
                event.synchronize()  # wait point: decoded again
        for status in batch.status:
            status[...] = 0
        batch.slot.table.send(stream)
        self._feeder.augment(batch, stream)
        stream.synchronize()  # wait point: made again

    # --- operations on whole batches ----------------------------------------------------------------------------------

    @contextmanager
    def batch_ops(self) -> Iterator[None]:
        """Let torch work for a while on the stream of batch operations, where finished batches are ready."""
        with self._device.active(), self._device.using(self._resources.streams.batch_ops):
            yield

    def mix(
        self,
        program: int,
        levels: Any,
        rows: NDArray[np.int32],  # (N, MIX_COLUMNS) int32
    ) -> Any:
        """Mix the images of a complete batch with each other, on the stream of batch operations."""
        output, stream = self._programs[program], self._resources.streams.batch_ops
        out = self._device.empty((len(rows), output.height, output.width, 3), output.dtype, stream)
        # The copy of the previous batch's rows may not be done.
        self._mixed.synchronize()  # wait point: mix table free
        addresses = self._resources.mixes.fill({"rows": rows})
        self._resources.mixes.send(stream)
        size, inputs = (len(rows), output.height, output.width), (levels.data_ptr(), addresses["rows"])
        mix_images(self._device, size, *inputs, *self._constants[program].mixed, out.data_ptr(), stream)
        self._mixed.record(stream)
        return out

    def fetch(self, tensor: Any) -> Any:
        """Copy a tensor of the device to the host; waits."""
        return self._device.fetch(tensor, self._resources.streams.batch_ops)

    def arrival(self, tensors: Sequence[Any]) -> Callable[[], None]:
        """Mark the end of the stream of batch operations; return a function that lets the consumer's stream wait."""
        device, ready = self._device, self._device.make_event()
        ready.record(self._resources.streams.batch_ops)

        def arrive() -> None:
            with device.active():
                device.hand_over(tensors, ready)  # wait point: handed over

        return arrive
