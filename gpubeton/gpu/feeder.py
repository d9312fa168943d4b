"""Feeder: the thread that puts batches into the GPU's queues."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import LoaderClosedError
from gpubeton.gpu.batch_state import DecodeRequest
from gpubeton.gpu.launch import gather, launch_colors, launch_resampling, write_canaries
from gpubeton.plan.lanes import cut

if TYPE_CHECKING:
    from gpubeton.gpu.batch_state import BatchState
    from gpubeton.gpu.cuda import Stream
    from gpubeton.gpu.entry_decoder import EntryDecoder
    from gpubeton.gpu.gpu_resources import GpuResources
    from gpubeton.gpu.memory_layout import DecodedImages, SentPixels
    from gpubeton.plan.cpu_services import CpuServices


class Feeder:
    """The thread that puts batches into the GPU's queues, one after another."""

    # It waits for busy decoders, so that `submit` need not.

    def __init__(self, resources: GpuResources, cpu: CpuServices, executor: Any) -> None:
        self._resources = resources
        self._device = resources.device
        self._cpu = cpu
        self._executor = executor  # the GpuExecutor: has the constants, and gives the images of the CPU's workers
        self._canaries_written = self._device.make_event()
        self._sent = self._device.make_event()
        self._batches: SimpleQueue[BatchState | None] = SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="gpubeton-feeder", daemon=True)
        self._thread.start()

    def put(self, batch: BatchState) -> None:
        """Take a batch; returns at once."""
        batch.issuing.acquire()
        self._batches.put(batch)

    def close(self) -> None:
        """End the thread; batches that it has not begun get a LoaderClosedError."""
        self._is_closed = True
        self._batches.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()  # wait point: feeder ended

    def _serve(self) -> None:
        """Body of the thread."""
        failure: BaseException | None = None
        while (batch := self._batches.get()) is not None:
            if self._is_closed:
                failure = failure or LoaderClosedError("the loader was closed while a batch was being made")
            if failure is None:
                try:
                    with self._device.active():
                        self._issue(batch)
                except BaseException as error:  # noqa: BLE001 - any error has to reach the user's loop
                    failure = error
            batch.error = failure
            batch.issuing.release()

    def _issue(self, batch: BatchState) -> None:
        """Put one batch into the queues."""
        streams, slot = self._resources.streams, batch.slot
        decoder = self._resources.entry_decoder
        if decoder is not None and batch.entry_images:
            decoder.reserve(max(own.scratch_nbytes for own in batch.entry_images.values()), streams.augment)
            for number, entry_images in batch.entry_images.items():
                decoder.describe(entry_images, batch.jobs[number], slot.table, slot.arena.reserve(0).address)
        slot.table.send(streams.send)
        decoded = batch.layout.decoded
        for own in decoded:
            images = batch.images[own.program]
            write_canaries(self._device, images.pictures, images.count, batch.nonce, streams.send)
        if decoded:
            self._canaries_written.record(streams.send)
            # The engines of Hopper write when they are called. Unless the host has waited for the canaries, they could
            # be written later, over the image.
            self._canaries_written.synchronize()  # wait point: canaries written
        arena, staging = slot.arena.reserve(0).address, slot.staging.reserve(0).address
        for one in batch.layout.sent:
            if one.is_finished:
                continue
            if gathers := slot.table.places.get((one.program, "gathers")):
                largest = int((3 * one.height.astype(np.int64) * one.width).max())
                gather(self._device, gathers, len(one.rows), largest, streams.send)
            else:
                job, where, target = batch.jobs[one.program], one.where, one.within + np.uint64(staging + one.staged)
                self._cpu.pack_crops(job.address[where], job.width[where], job.draws[where], target, one.pitch)
                self._send(one, arena, staging)
        for own in decoded:
            self._decode(batch, own, arena, staging)
        if decoder is not None:
            for number, entry_images in batch.entry_images.items():
                decoder.send(entry_images, batch.jobs[number], staging, arena, self._cpu, streams.send)
        if finished := batch.finished:
            batch.bad += self._executor.collect_cpu_images(batch)  # wait point: cpu images made
            for one in finished.values():
                self._send(one, arena, staging)
        self._sent.record(streams.send)
        streams.augment.wait(self._sent)  # wait point: pixels sent
        self.augment(batch, streams.augment, decoder)
        slot.done.record(streams.augment)

    def _send(self, one: SentPixels, arena: int, staging: int) -> None:
        self._device.copy(arena + one.offset, staging + one.staged, one.nbytes, self._resources.streams.send)

    def _decode(self, batch: BatchState, own: DecodedImages, arena: int, staging: int) -> None:
        """Copy the bytes of one field's images to staging memory, call by call, and begin to decode."""
        job, rows = batch.jobs[own.program], own.rows
        address = None if job.is_pinned else own.staged + np.uint64(staging)
        request = DecodeRequest.of(job, rows, own.offset + np.uint64(arena), own.pitch, address)
        batch.requests[own.program] = request
        for lane, backend in self._resources.backends.items():
            places = np.flatnonzero(own.lanes == lane)
            for piece in cut(len(places), backend.most):
                part, taken = request.part(places[piece]), rows[places[piece]]
                if not job.is_pinned:
                    self._cpu.pack_regions(job.address[taken], part.size, part.address)
                begun = backend.begin(part)
                batch.refused.update((own.program, int(taken[place])) for place in begun.failed)
                batch.decoding.append(begun)

    def augment(self, batch: BatchState, stream: Stream, decoder: EntryDecoder | None = None) -> None:
        """Make all outputs of a batch, in the stream's order; without a decoder, images with entry points are made."""
        batch.status = []
        # Our decoder first: it works beside the engines.
        if decoder is not None:
            self._decode_entries(batch, stream, decoder)
        for begun in batch.decoding:
            if begun.event is not None:
                stream.wait(begun.event)  # wait point: images decoded
        for number, (images, program) in enumerate(zip(batch.images, self._executor.constants, strict=True)):
            own = batch.entry_images.get(number)
            if own is None or len(own.rows) < images.count:
                launch_resampling(self._device, program, images, stream)
            launch_colors(self._device, program, images, stream)
            batch.status.append(batch.slot.table.bring_back((number, "status"), stream))

    def _decode_entries(self, batch: BatchState, stream: Stream, decoder: EntryDecoder) -> None:
        """Let our decoder make its images."""
        if batch.own_span is not None:
            batch.own_span[0].record(stream)
        for number, own in batch.entry_images.items():
            program, images = self._executor.constants[number], batch.images[number]
            decoder.launch(own, program, images.out if program.num_sums is None else images.levels, stream)
            flags = batch.slot.table.bring_back((number, "jpeg status"), stream)
            batch.flagged.append((batch.sources[number], own.rows, flags))
        if batch.own_span is not None:
            batch.own_span[1].record(stream)
