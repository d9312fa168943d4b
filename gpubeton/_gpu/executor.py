"""GpuExecutor: makes the images of planned batches on a GPU."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.image_batch import as_nhwc
from gpubeton._batch.step_rows import KEEP, step_kinds
from gpubeton._gpu.cpu_images import CpuImages
from gpubeton._gpu.feeder import CLOSED, Feeder
from gpubeton._gpu.launch import carry_out_steps, gather, mix_images, program_constants, write_canaries
from gpubeton._gpu.planner import BatchPlanner, image_identity
from gpubeton._plan.arena_layout import steps_nbytes
from gpubeton._plan.draw_rows import HEIGHT, WIDTH
from gpubeton._plan.routes import cut
from gpubeton.errors import LoaderClosedError
from gpubeton.pipeline.pixel_type import dtype_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._gpu.batch import Batch, DecodedImages
    from gpubeton._gpu.cuda import Event, Stream
    from gpubeton._gpu.entry_decoder import EntryDecoder, ResidentJpegs
    from gpubeton._gpu.gpu_resources import GpuResources
    from gpubeton._gpu.options import GpuOptions
    from gpubeton._plan.image_job import BadImage, CpuServices, ImageJob, Usage
    from gpubeton._plan.program import ImageProgram


class GpuExecutor:
    """Makes the images of batches on a GPU; batches go in and come out in order."""

    # The life of a batch:
    # 1. `submit` takes a free slot: the host has waited for the batch that used it before. The planner chooses a decode
    #    route for each image, lays out the slot's memory and describes the batch to the kernels. The CPU's workers
    #    begin with their images.
    # 2. `_issue`, in the feeder's thread, writes canaries into the arena and waits for them; copies compressed bytes to
    #    pinned memory, call by call, and gives them to the decoders; copies the crops of raw-stored images to the
    #    device. The kernels wait on the device for all of that, write the batch, and report the canaries that are left.
    # 3. `collect` waits on the host. Images with a canary left are decoded once more; the CPU makes the missing ones.

    def __init__(
        self,
        resources: GpuResources,
        programs: Sequence[ImageProgram],
        cpu: CpuServices,
        options: GpuOptions,
        give_back: Callable[[GpuResources], None],
        resident: Mapping[str, ResidentJpegs],  # by field
    ) -> None:
        self._resources, self._cpu = resources, cpu
        self._device = device = resources.device
        self._programs = list(programs)
        self._give_back = give_back
        self._submitted = 0
        self._batches: deque[Batch] = deque()
        self._is_closed = False
        with device.active():
            sending = resources.constants, resources.streams.send
            self._constants = [program_constants(program, *sending) for program in programs]
            self._handed_out, self._canaries_written, self._sent, self._mixed = (device.make_event() for _ in range(4))
            self._planner = BatchPlanner(resources, self._programs, self._constants, cpu, options, resident)
            self._cpu_images = CpuImages(resources, self._programs, self._constants, cpu)
            self._feeder: Feeder[Batch] = Feeder(self._issue, device.active)

    # --- 1. planned ---------------------------------------------------------------------------------------------------

    def take(self, program: int, count: int) -> Any:
        """Make a tensor (count, height, width, 3) for a batch, not initialized; for the stream of batch operations."""
        output, stream = self._programs[program], self._resources.streams.batch_ops
        with self._device.active():
            return self._device.empty((count, output.height, output.width, 3), output.pass_dtype, stream)

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        """Begin a batch: a job for each program. Never waits."""
        if self._is_closed:
            raise LoaderClosedError(CLOSED)
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

    # --- 2. put into the queues ---------------------------------------------------------------------------------------

    def _issue(self, batch: Batch) -> None:
        """Put one batch into the queues."""
        streams, slot, decoder = self._resources.streams, batch.slot, self._resources.entry_decoder
        self._find_damage(batch)
        if decoder is not None and batch.entry_images:
            decoder.reserve(max(images.scratch_nbytes for images in batch.entry_images.values()), streams.augment)
            for number, entry_images in batch.entry_images.items():
                decoder.describe(entry_images, batch.jobs[number], slot.table, batch.arena)
        slot.table.send(streams.send)
        self._write_canaries(batch)
        self._send_crops(batch)
        for decoded in batch.decoded:
            batch.decoding += self._decode(batch, decoded)
        if decoder is not None:
            for number, entry_images in batch.entry_images.items():
                job, addresses = batch.jobs[number], (batch.staging, batch.arena)
                decoder.send(entry_images, job, *addresses, self._cpu, streams.send)
        if finished := batch.finished:
            batch.bad += self._cpu_images.collect_cpu_images(batch)  # wait point: cpu images made
            for pixels in finished.values():
                start, nbytes = pixels.crops_nbytes, pixels.nbytes - pixels.crops_nbytes
                target, source = batch.arena + pixels.offset + start, batch.staging + pixels.staged + start
                self._device.copy(target, source, nbytes, streams.send)
        self._sent.record(streams.send)
        streams.augment.wait(self._sent)  # wait point: pixels sent
        self._augment(batch, streams.augment, decoder)
        slot.done.record(streams.augment)

    def _find_damage(self, batch: Batch) -> None:
        """Compare the bytes of all images with their checksums; the CPU gives the reasons."""
        for number, job in enumerate(batch.jobs):
            if job.checksums is None or batch.sources[number] != number:
                continue
            is_damaged = np.zeros(len(job.address), np.bool_)
            if self._cpu.find_damage(job.address, job.size, job.checksums, is_damaged):
                batch.damaged.update((number, row) for row in np.flatnonzero(is_damaged).tolist())

    def _write_canaries(self, batch: Batch) -> None:
        """Write canaries into the images that are decoded, and wait for them."""
        stream = self._resources.streams.send
        for decoded in batch.decoded:
            images = batch.images[decoded.program]
            write_canaries(self._device, images.pictures, images.count, batch.nonce, stream)
        if batch.decoded:
            self._canaries_written.record(stream)
            # The engines of Hopper write when they are called. Unless the host has waited for the canaries, they could
            # be written later, over the image.
            self._canaries_written.synchronize()  # wait point: canaries written

    def _send_crops(self, batch: Batch) -> None:
        """Copy the crops of raw-stored images to the device."""
        stream = self._resources.streams.send
        for pixels in batch.sent:
            job, crops, nbytes = batch.jobs[pixels.program], pixels.crops, pixels.crops_nbytes
            if gathers := batch.slot.table.addresses.get((pixels.program, "gathers")):
                sizes = batch.draws[pixels.program][crops, HEIGHT : WIDTH + 1].astype(np.int64)
                gather(self._device, gathers, len(sizes), int(3 * sizes.prod(axis=1).max()), stream)
            elif nbytes:
                target, pitch = pixels.within[crops] + np.uint64(batch.staging + pixels.staged), pixels.pitch[crops]
                self._cpu.pack_crops(job.address[crops], job.width[crops], job.draws[crops], target, pitch)
                self._device.copy(batch.arena + pixels.offset, batch.staging + pixels.staged, nbytes, stream)

    def _decode(self, batch: Batch, decoded: DecodedImages, again: Any = None) -> Iterator[Event]:
        """Begin to decode the images of one field, call by call, or (M,) some of them once more; give each end."""
        job = batch.jobs[decoded.program]
        for route, backend in self._resources.backends.items():
            is_taken = decoded.routes == route
            chosen = np.flatnonzero(is_taken if again is None else again & is_taken)
            for piece in cut(len(chosen), backend.most):
                images = decoded.take(chosen[piece])
                if again is None and not job.is_pinned:
                    self._cpu.pack_regions(job.address[images.rows], images.size, images.address)
                end, refused = backend.begin(images)
                batch.refused.update((decoded.program, int(images.rows[number])) for number in refused)
                if end is not None:
                    yield end

    def _augment(self, batch: Batch, stream: Stream, decoder: EntryDecoder | None = None) -> None:
        """Make all outputs of a batch, in the stream's order; without a decoder, images with entry points are made."""
        batch.status = []
        if decoder is not None:  # first: it works beside the engines
            for number, entry_images in batch.entry_images.items():
                decoder.launch(entry_images, batch.images[number].program, batch.images[number].resampled, stream)
                flags = batch.slot.table.bring_back((number, "jpeg status"), stream)
                batch.flagged.append((batch.sources[number], entry_images.rows, flags))
        for end in batch.decoding:
            stream.wait(end)  # wait point: images decoded
        for number, images in enumerate(batch.images):
            entries = batch.entry_images.get(number)
            if entries is None or len(entries.rows) < images.count:
                images.resample(self._device, stream)
            images.carry_out_steps(self._device, stream, is_repeat=decoder is None)
            batch.status.append(batch.slot.table.bring_back((number, "status"), stream))

    # --- 3. collected -------------------------------------------------------------------------------------------------

    def collect(self) -> list[BadImage]:
        """Wait for the oldest batch; return the images that could not be made."""
        if not self._batches:
            raise LoaderClosedError(CLOSED) if self._is_closed else RuntimeError("no batch is in flight")
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

    def _repair(self, batch: Batch) -> list[BadImage]:
        """Make the images that were not decoded: by their decoder once more if it left them out, then by the CPU."""
        missing = batch.left_out
        if missing - batch.failed:
            self._decode_again(batch)
            missing = batch.left_out
        missing |= batch.failed
        # Bytes that were damaged on their way may come again.
        self._resources.refused |= {image_identity(batch.jobs[source], row) for source, row in missing - batch.damaged}
        bad_images = []
        for number, (job, source) in enumerate(zip(batch.jobs, batch.sources, strict=True)):
            rows = sorted(row for first, row in missing if first == source)
            bad_images += self._cpu_images.make(number, job, rows)
        return bad_images

    def _decode_again(self, batch: Batch) -> None:
        """Decode the images that have a canary left, and make the outputs of the batch again."""
        # So chance does not decide which decoder makes an image: the result is the same in every run.
        left_out, stream = batch.left_out - batch.failed, self._resources.streams.batch_ops
        for decoded in batch.decoded:
            is_missing = np.isin(decoded.rows, [row for source, row in left_out if source == decoded.program])
            for event in self._decode(batch, decoded, is_missing):
                event.synchronize()  # wait point: decoded again
        for status in batch.status:
            status[...] = 0
        batch.slot.table.send(stream)
        self._augment(batch, stream)
        stream.synchronize()  # wait point: made again

    def decode(self, program: int, job: ImageJob) -> list[BadImage]:
        """Make the images of one job in the caller's thread, on the CPU."""
        with self._device.active():
            return self._cpu_images.make(program, job, range(len(job.address)))

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

    def carry_out(self, batch: Any, rows: Callable[[], NDArray[np.int32]]) -> bool:
        """Carry out step rows on a finished batch, in place, if it is one of RGB levels on the device."""
        if not (self._device.holds(batch) and dtype_name(batch.dtype) == "uint8" and as_nhwc(batch).shape[3] == 3):
            return False
        images, steps, stream = as_nhwc(batch), rows(), self._resources.streams.batch_ops
        kinds = frozenset(step_kinds(steps).ravel().tolist())
        if kinds <= {KEEP}:
            return True
        is_dense = images.is_contiguous()  # as a rule
        dense = images if is_dense else self._device.empty(tuple(images.shape), "uint8", stream).copy_(images)
        _, *nbytes = steps_nbytes(dense.numel(), kinds)
        memory = self._device.empty((max(sum(nbytes), 1),), "uint8", stream)
        table, sent = self._resources.steps_table()
        addresses = table.fill({"rows": steps})
        table.send(stream)
        size, inputs = tuple(dense.shape[:3]), (dense.data_ptr(), addresses["rows"], steps.shape[1])
        carry_out_steps(self._device, size, *inputs, memory.data_ptr(), nbytes, stream)
        sent.record(stream)
        if not is_dense:
            images.copy_(dense)
        return True

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

    # --- the end ------------------------------------------------------------------------------------------------------

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
