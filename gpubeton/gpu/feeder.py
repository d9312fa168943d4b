"""Feeder: the thread that puts batches into the GPU's queues; LoadBalancer: shares images between backends."""

from __future__ import annotations

import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from gpubeton.errors import LoaderClosedError
from gpubeton.gpu.decode_backend import DecodeRequest
from gpubeton.gpu.launch import gather
from gpubeton.plan.lanes import Lane, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

    from gpubeton.gpu.batch_state import BatchState
    from gpubeton.gpu.device import Event
    from gpubeton.gpu.gpu_resources import CpuServices, GpuResources
    from gpubeton.gpu.launch import Augmenter
    from gpubeton.gpu.memory_layout import DecodedImages, SentPixels
    from gpubeton.plan.image_executor import BadImage

# Weight of a new measurement in the running mean.
_NEWEST = 0.2

# Shrink the estimate of a lane that was not chosen by this factor, so that it is tried again: its last time may be old.
_OLDER = 0.99


class _Running(NamedTuple):
    nbytes: int
    event: Event
    seconds: float


class LoadBalancer:
    """Chooses a lane for the next images, so that all lanes finish a batch at the same time."""

    # The time of a byte is measured for each lane while it works. A lane that was never tried is tried as soon as the
    # first choice is busy.

    def __init__(self, lanes: Collection[Lane], clock: Callable[[], float] = time.perf_counter) -> None:
        self._lanes = list(lanes)
        self._clock = clock
        self._begun: dict[Lane, deque[_Running]] = {lane: deque() for lane in self._lanes}
        self._seconds_per_byte: dict[Lane, float] = {}
        self._last_done: dict[Lane, float] = {}
        self._last_look = clock()

    def choose(self, nbytes: dict[Lane, int], remaining: int) -> Lane:
        """Choose the lane of the next request, by the compressed bytes of each lane's request and of the rest."""
        # Requests differ in size, so the lane that finishes first is not the right one. Take the lane that can begin
        # first, of those that finish the request before any other lane could finish all that remains.
        self._look()
        candidates = [lane for lane in self._lanes if lane in nbytes]
        preferred = candidates[0]
        unknown = [lane for lane in candidates if lane not in self._seconds_per_byte]
        if unknown:
            untried = [lane for lane in unknown if not self._begun[lane] and lane is not preferred]
            return untried[0] if untried and self._begun[preferred] else preferred
        in_time = [
            lane
            for lane in candidates
            if all(self._end(lane, nbytes[lane]) <= self._end(other, remaining) for other in candidates)
        ]
        if in_time:
            chosen = min(in_time, key=lambda lane: self._end(lane, 0))
        else:
            chosen = min(candidates, key=lambda lane: self._end(lane, nbytes[lane]))
        for lane in candidates:
            if lane is not chosen and not self._begun[lane]:
                self._seconds_per_byte[lane] *= _OLDER
        return chosen

    def begun(self, lane: Lane, nbytes: int, event: Event) -> None:
        """Record that a lane was given a request; the event marks its end."""
        self._begun[lane].append(_Running(nbytes, event, self._clock()))

    def _end(self, lane: Lane, nbytes: int) -> float:
        """Estimate the seconds until a lane is done with its work and so many bytes more."""
        waiting = sum(one.nbytes for one in self._begun[lane])
        return (waiting + nbytes) * self._seconds_per_byte[lane]

    def _look(self) -> None:
        """Measure the requests that are done."""
        now = self._clock()
        for lane in self._lanes:
            self._measure(lane, now)
        self._last_look = now

    def _measure(self, lane: Lane, now: float) -> None:
        begun = self._begun[lane]
        nbytes, first = 0, 0.0
        while begun and begun[0].event.is_done:
            request = begun.popleft()
            first = first if nbytes else request.seconds
            nbytes += request.nbytes
        if nbytes == 0:
            return
        # The batch began when the request was given, or when the request before it was done; it ended between the last
        # look and this one. After a long pause of the loop these bounds are wide, and change the mean little.
        start = max(first, self._last_done.get(lane, first))
        self._last_done[lane] = now
        least, most = max(self._last_look - start, 0.0) / nbytes, max(now - start, 1e-6) / nbytes
        known = self._seconds_per_byte.get(lane, most)
        self._seconds_per_byte[lane] = known + _NEWEST * (min(max(known, least), most) - known)


class Levels(Protocol):
    """Gives the images that the CPU's workers make."""

    def collect_cpu_images(self, batch: BatchState) -> list[BadImage]:
        """Wait for those of a batch; return the bad ones."""
        ...


class Feeder:
    """The thread that puts batches into the GPU's queues, one after another."""

    # It waits for busy decoders, so that `submit` need not.

    def __init__(self, resources: GpuResources, augmenter: Augmenter, cpu: CpuServices, levels: Levels) -> None:
        self._resources = resources
        self._device = resources.device
        self._augmenter = augmenter
        self._cpu = cpu
        self._levels = levels
        self._canaries_written = self._device.make_event()
        self._sent = self._device.make_event()
        shared = [lane for lane in (Lane.HARDWARE, Lane.SM) if lane in resources.backends]
        self._balancer = LoadBalancer(shared)
        self._shares = len(shared) > 1 and not resources.is_deterministic
        self._batches: SimpleQueue[BatchState | None] = SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="gpubeton-feeder", daemon=True)
        self._thread.start()

    def put(self, batch: BatchState) -> None:
        """Take a batch; returns at once."""
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
            batch.is_issued.set()

    def _issue(self, batch: BatchState) -> None:
        """Put one batch into the queues."""
        streams, slot = self._resources.streams, batch.slot
        slot.table.send(streams.canary)
        for own in batch.layout.decoded:
            images = batch.images[own.program]
            self._augmenter.write_canaries(images.pictures, images.count, batch.nonce, streams.canary)
        self._canaries_written.record(streams.canary)
        # The engines of Hopper write when they are called. Unless the host has waited for the canaries, they could be
        # written later, over the image.
        self._canaries_written.synchronize()  # wait point: canaries written
        arena, staging = slot.arena.reserve(0).address, slot.staging.reserve(0).address
        for one in batch.layout.sent:
            if one.is_finished:
                continue
            if one.program in batch.gathers:
                gather(self._device, batch.gathers[one.program], one, streams.send)
            else:
                self._pack_crops(batch, one, staging)
                self._send(one, arena, staging)
        for own in batch.layout.decoded:
            self._decode(batch, own, arena, staging)
        if batch.needs_cpu:
            batch.bad += self._levels.collect_cpu_images(batch)  # wait point: cpu images made
            for one in batch.layout.sent:
                if one.is_finished:
                    self._send(one, arena, staging)
        self._sent.record(streams.send)
        streams.augment.wait(self._sent)  # wait point: pixels sent
        taps, levels = slot.taps.reserve(0).address, slot.resampled.reserve(0).address
        for number, images in enumerate(batch.images):
            self._augmenter.augment(number, images, taps, levels, streams.augment)
            batch.status.append(slot.table.bring_back((number, "status"), streams.augment))
        slot.done.record(streams.augment)

    def _pack_crops(self, batch: BatchState, one: SentPixels, staging: int) -> None:
        job, rows = batch.jobs[one.program], one.rows
        target = one.within + np.uint64(staging + one.staged)
        self._cpu.pack_crops(job.address[rows], job.width[rows], job.draws[rows], target, one.pitch)

    def _send(self, one: SentPixels, arena: int, staging: int) -> None:
        self._device.copy(arena + one.offset, staging + one.staged, one.nbytes, self._resources.streams.send)

    def _decode(self, batch: BatchState, own: DecodedImages, arena: int, staging: int) -> None:
        """Give the images of one field to the decoders."""
        job, rows = batch.jobs[own.program], own.rows
        request = DecodeRequest(
            address=job.address[rows] if job.is_pinned else own.staged + np.uint64(staging),
            size=job.size[rows],
            target=own.offset + np.uint64(arena),
            pitch=own.pitch,
            height=job.height[rows],
            width=job.width[rows],
        )
        source = job.address[rows]
        for lane in (Lane.HARDWARE, Lane.SM, Lane.HYBRID):
            places = np.flatnonzero(own.lanes == lane)
            if len(places) == 0:
                continue
            if self._shares and lane is Lane.HARDWARE:
                self._decode_shared(batch, own, request, source, places)
                continue
            for part in cut(len(places), self._resources.backends[lane].most):
                self._begin(batch, own, request, source, places[part], lane)

    def _decode_shared(
        self,
        batch: BatchState,
        own: DecodedImages,
        request: DecodeRequest,
        source: NDArray[np.uint64],
        places: NDArray[np.intp],
    ) -> None:
        """Let engines and processors share images, by the load of each."""
        size = request.size.astype(np.int64)
        while len(places):
            parts: dict[Lane, int] = {}
            for lane in (Lane.HARDWARE, Lane.SM):
                if lane is Lane.HARDWARE or len(places) >= self._resources.backends[lane].least:
                    parts[lane] = min(len(places), self._resources.backends[lane].most)
            nbytes = {lane: int(size[places[:count]].sum()) for lane, count in parts.items()}
            chosen = self._balancer.choose(nbytes, int(size[places].sum()))
            now, places = places[: parts[chosen]], places[parts[chosen] :]
            self._begin(batch, own, request, source, now, chosen)

    def _begin(
        self,
        batch: BatchState,
        own: DecodedImages,
        request: DecodeRequest,
        source: NDArray[np.uint64],
        places: NDArray[np.intp],
        lane: Lane,
    ) -> None:
        """Copy the bytes of some images to staging memory, and begin to decode."""
        part = request.part(places)
        if not batch.jobs[own.program].is_pinned:
            self._cpu.pack_regions(source[places], part.size, part.address)
        begun = self._resources.backends[lane].begin(part)
        for place, reason in begun.failed.items():
            batch.refused[own.program, int(own.rows[places[place]])] = reason
        if begun.event is not None:
            self._resources.streams.augment.wait(begun.event)  # wait point: images decoded
            if self._shares and lane is not Lane.HYBRID:
                self._balancer.begun(lane, int(part.size.sum()), begun.event)
