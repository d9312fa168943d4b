"""Feeder: the thread that puts batches into the GPU's queues."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._gpu.launch import gather, write_canaries
from gpubeton._plan.draw_rows import HEIGHT, WIDTH
from gpubeton._plan.routes import cut
from gpubeton.errors import LoaderClosedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubeton._gpu.batch import Batch, DecodedImages
    from gpubeton._gpu.cpu_images import CpuImages
    from gpubeton._gpu.cuda import Event, Stream
    from gpubeton._gpu.entry_decoder import EntryDecoder
    from gpubeton._gpu.gpu_resources import GpuResources
    from gpubeton._plan.image_job import CpuServices

# Most bytes of staging memory that the calling thread fills itself.
_SHORT = 1 << 20


class Feeder:
    """The thread that puts batches into the GPU's queues, one after another."""

    # It waits for busy decoders and for much memory to be copied, so that `submit` need not. The caller puts in small
    # batches: waking the thread costs more.

    def __init__(self, resources: GpuResources, cpu: CpuServices, cpu_images: CpuImages) -> None:
        self._resources, self._device, self._cpu = resources, resources.device, cpu
        self._cpu_images = cpu_images
        self._canaries_written = self._device.make_event()
        self._sent = self._device.make_event()
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._issuing = threading.Lock()  # of the last batch
        self._failure: BaseException | None = None  # of the first batch that failed; no later one is put in
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="gpubeton-feeder", daemon=True)
        self._thread.start()

    def put(self, batch: Batch) -> None:
        """Take a batch; returns soon."""
        waits = batch.decoded or batch.entry_images or batch.finished or batch.staging_nbytes > _SHORT
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

    def _take(self, batch: Batch, active: Any) -> None:
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

    def _issue(self, batch: Batch) -> None:
        """Put one batch into the queues."""
        streams, slot = self._resources.streams, batch.slot
        self._find_damage(batch)
        decoder = self._resources.entry_decoder
        if decoder is not None and batch.entry_images:
            decoder.reserve(max(images.scratch_nbytes for images in batch.entry_images.values()), streams.augment)
            for number, entry_images in batch.entry_images.items():
                decoder.describe(entry_images, batch.jobs[number], slot.table, batch.arena)
        slot.table.send(streams.send)
        self._write_canaries(batch)
        self._send_crops(batch)
        for decoded in batch.decoded:
            batch.decoding += self.decode(batch, decoded)
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
        self.augment(batch, streams.augment, decoder)
        slot.done.record(streams.augment)

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

    def _find_damage(self, batch: Batch) -> None:
        """Compare the bytes of all images with their checksums; the CPU gives the reasons."""
        for number, job in enumerate(batch.jobs):
            if job.checksums is None or batch.sources[number] != number:
                continue
            is_damaged = np.zeros(len(job.address), np.bool_)
            if self._cpu.find_damage(job.address, job.size, job.checksums, is_damaged):
                batch.damaged.update((number, row) for row in np.flatnonzero(is_damaged).tolist())

    def decode(self, batch: Batch, decoded: DecodedImages, again: Any = None) -> Iterator[Event]:
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

    def augment(self, batch: Batch, stream: Stream, decoder: EntryDecoder | None = None) -> None:
        """Make all outputs of a batch, in the stream's order; without a decoder, images with entry points are made."""
        batch.status = []
        # Our decoder first: it works beside the engines.
        if decoder is not None:
            self._decode_entries(batch, stream, decoder)
        for end in batch.decoding:
            stream.wait(end)  # wait point: images decoded
        for number, images in enumerate(batch.images):
            entry_images = batch.entry_images.get(number)
            if entry_images is None or len(entry_images.rows) < images.count:
                images.resample(self._device, stream)
            images.carry_out_steps(self._device, stream, is_repeat=decoder is None)
            batch.status.append(batch.slot.table.bring_back((number, "status"), stream))

    def _decode_entries(self, batch: Batch, stream: Stream, decoder: EntryDecoder) -> None:
        """Let our decoder make its images."""
        for number, entry_images in batch.entry_images.items():
            images = batch.images[number]
            decoder.launch(entry_images, images.program, images.resampled, stream)
            flags = batch.slot.table.bring_back((number, "jpeg status"), stream)
            batch.flagged.append((batch.sources[number], entry_images.rows, flags))
