"""Feeder: the thread that puts batches into the GPU's queues."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._gpu.batch_state import DecodeRequest
from gpubeton._gpu.launch import gather, write_canaries
from gpubeton._plan.draw_rows import HEIGHT, WIDTH
from gpubeton._plan.lanes import cut
from gpubeton.errors import LoaderClosedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubeton._gpu.batch_state import BatchState, DecodeHandle
    from gpubeton._gpu.cuda import Stream
    from gpubeton._gpu.entry_decoder import EntryDecoder
    from gpubeton._gpu.gpu_resources import GpuResources
    from gpubeton._gpu.memory_layout import DecodedImages
    from gpubeton._plan.cpu_services import CpuServices

# Most bytes of staging memory that the calling thread fills itself.
_SHORT = 1 << 20


class Feeder:
    """The thread that puts batches into the GPU's queues, one after another."""

    # It waits for busy decoders and for much memory to be copied, so that `submit` need not. To wake it up takes longer
    # than to put in a batch without either.

    def __init__(self, resources: GpuResources, cpu: CpuServices, executor: Any) -> None:
        self._resources, self._device, self._cpu = resources, resources.device, cpu
        self._executor = executor  # the GpuExecutor: has the constants, and gives the images of the CPU's workers
        self._canaries_written = self._device.make_event()
        self._sent = self._device.make_event()
        self._batches: SimpleQueue[BatchState | None] = SimpleQueue()
        self._issuing = threading.Lock()  # of the last batch
        self._failure: BaseException | None = None  # of the first batch that failed; no later one is put in
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="gpubeton-feeder", daemon=True)
        self._thread.start()

    def put(self, batch: BatchState) -> None:
        """Take a batch; returns soon."""
        waits = batch.layout.decoded or batch.entry_images or batch.finished or batch.layout.staging_nbytes > _SHORT
        if not waits and not self._issuing.locked():
            self._take(batch, nullcontext())  # the device is active
        else:
            batch.issuing.acquire()
            self._batches.put(batch)
        self._issuing = batch.issuing

    def close(self) -> None:
        """End the thread; batches that it has not begun get a LoaderClosedError."""
        self._is_closed = True
        self._batches.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()  # wait point: feeder ended

    def _serve(self) -> None:
        """Body of the thread."""
        while (batch := self._batches.get()) is not None:
            if self._is_closed:
                self._failure = self._failure or LoaderClosedError("the loader was closed while a batch was being made")
            self._take(batch, self._device.active())
            batch.issuing.release()

    def _take(self, batch: BatchState, active: Any) -> None:
        """Put a batch into the queues, unless one failed before."""
        if self._failure is None:
            try:
                with active:
                    self._issue(batch)
            except BaseException as error:  # noqa: BLE001 - any error has to reach the user's loop
                self._failure = error
        batch.has_failed = self._failure is not None

    def take_failure(self) -> BaseException:
        """Give the error of the batch that failed first, and forget it: its traceback refers to this object."""
        failure, self._failure = self._failure, LoaderClosedError("an earlier batch failed")
        return failure or self._failure

    def _issue(self, batch: BatchState) -> None:
        """Put one batch into the queues."""
        streams, slot = self._resources.streams, batch.slot
        self._find_damage(batch)
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
            job, where, nbytes = batch.jobs[one.program], one.crops, one.crops_nbytes
            if gathers := slot.table.places.get((one.program, "gathers")):
                sizes = batch.layout.draws[one.program][where, HEIGHT : WIDTH + 1].astype(np.int64)
                gather(self._device, gathers, len(sizes), int(3 * sizes.prod(axis=1).max()), streams.send)
            elif nbytes:
                target = one.within[where] + np.uint64(staging + one.staged)
                self._cpu.pack_crops(job.address[where], job.width[where], job.draws[where], target, one.pitch[where])
                self._device.copy(arena + one.offset, staging + one.staged, nbytes, streams.send)
        for own in decoded:
            job, rows = batch.jobs[own.program], own.rows
            address = None if job.is_pinned else own.staged + np.uint64(staging)
            batch.requests[own.program] = DecodeRequest.of(job, rows, own.offset + np.uint64(arena), own.pitch, address)
            batch.decoding += self.decode(batch, own)
        if decoder is not None:
            for number, entry_images in batch.entry_images.items():
                decoder.send(entry_images, batch.jobs[number], staging, arena, self._cpu, streams.send)
        if finished := batch.finished:
            batch.bad += self._executor.collect_cpu_images(batch)  # wait point: cpu images made
            for one in finished.values():
                start, nbytes = one.crops_nbytes, one.nbytes - one.crops_nbytes
                self._device.copy(arena + one.offset + start, staging + one.staged + start, nbytes, streams.send)
        self._sent.record(streams.send)
        streams.augment.wait(self._sent)  # wait point: pixels sent
        self.augment(batch, streams.augment, decoder)
        slot.done.record(streams.augment)

    def _find_damage(self, batch: BatchState) -> None:
        """Compare the bytes of all images with their checksums; the CPU gives the reasons."""
        for number, job in enumerate(batch.jobs):
            if job.checksums is None or batch.sources[number] != number:
                continue
            is_damaged = np.zeros(len(job.address), np.bool_)
            if self._cpu.find_damage(job.address, job.size, job.checksums, is_damaged):
                batch.damaged.update((number, row) for row in np.flatnonzero(is_damaged).tolist())

    def decode(self, batch: BatchState, own: DecodedImages, again: Any = None) -> Iterator[DecodeHandle]:
        """Begin to decode the images of one field, call by call, or (M,) some of them once more."""
        job, request = batch.jobs[own.program], batch.requests[own.program]
        for lane, backend in self._resources.backends.items():
            places = np.flatnonzero((own.lanes == lane) if again is None else again & (own.lanes == lane))
            for piece in cut(len(places), backend.most):
                part, taken = request.part(places[piece]), own.rows[places[piece]]
                if again is None and not job.is_pinned:
                    self._cpu.pack_regions(job.address[taken], part.size, part.address)
                begun = backend.begin(part)
                batch.refused.update((own.program, int(taken[place])) for place in begun.failed)
                yield begun

    def augment(self, batch: BatchState, stream: Stream, decoder: EntryDecoder | None = None) -> None:
        """Make all outputs of a batch, in the stream's order; without a decoder, images with entry points are made."""
        batch.status = []
        # Our decoder first: it works beside the engines.
        if decoder is not None:
            self._decode_entries(batch, stream, decoder)
        for begun in batch.decoding:
            if begun.event is not None:
                stream.wait(begun.event)  # wait point: images decoded
        for number, images in enumerate(batch.images):
            own = batch.entry_images.get(number)
            if own is None or len(own.rows) < images.count:
                images.resample(self._device, stream)
            images.change_colors(self._device, stream)
            batch.status.append(batch.slot.table.bring_back((number, "status"), stream))

    def _decode_entries(self, batch: BatchState, stream: Stream, decoder: EntryDecoder) -> None:
        """Let our decoder make its images."""
        for number, own in batch.entry_images.items():
            images = batch.images[number]
            decoder.launch(own, images.own, images.resampled, stream)
            flags = batch.slot.table.bring_back((number, "jpeg status"), stream)
            batch.flagged.append((batch.sources[number], own.rows, flags))
