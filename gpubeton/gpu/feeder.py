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

# Part of a new measurement in the running mean.
_NEWEST = 0.2

# A lane that nobody chooses is not measured either, and what is known of it gets old: by this much it is thought to be
# faster each time that it is passed over, until it is tried again.
_OLDER = 0.99


class _Running(NamedTuple):
    nbytes: int
    event: Event
    seconds: float


class LoadBalancer:
    """Chooses a lane for the next images, so that all lanes come to the end of a batch together.

    What every lane takes for a byte is measured while it works. A lane that was never tried is tried as soon as the
    first choice has something to do.

    Parameters
    ----------
    lanes : collection of Lane
        Lanes to choose from, in the order of preference.
    clock : callable
        Gives seconds.
    """

    def __init__(self, lanes: Collection[Lane], clock: Callable[[], float] = time.perf_counter) -> None:
        self._lanes = list(lanes)
        self._clock = clock
        self._begun: dict[Lane, deque[_Running]] = {lane: deque() for lane in self._lanes}
        self._seconds_per_byte: dict[Lane, float] = {}
        self._last_done: dict[Lane, float] = {}
        self._last_look = clock()

    def choose(self, nbytes: dict[Lane, int], remaining: int) -> Lane:
        """Choose who gets the next piece.

        Pieces differ in size, so that the one that is done first is not the right one: it goes to the lane that can
        begin first, of those that do not take longer for it than the others for all that remains.

        Parameters
        ----------
        nbytes : dict of Lane to int
            Compressed bytes of the piece that each lane would get; lanes that are missing are not to be chosen.
        remaining : int
            Compressed bytes of all that remains of the batch, the piece included.

        Returns
        -------
        Lane
            Who gets it.
        """
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
        """Note that a lane was given a piece.

        Parameters
        ----------
        lane : Lane
            Who got it.
        nbytes : int
            Its compressed bytes.
        event : Event
            Behind its decoding, and never recorded again.
        """
        self._begun[lane].append(_Running(nbytes, event, self._clock()))

    def _end(self, lane: Lane, nbytes: int) -> float:
        """Seconds until a lane would be done with what it has and so many bytes more."""
        waiting = sum(one.nbytes for one in self._begun[lane])
        return (waiting + nbytes) * self._seconds_per_byte[lane]

    def _look(self) -> None:
        """See which pieces are done."""
        now = self._clock()
        for lane in self._lanes:
            self._measure(lane, now)
        self._last_look = now

    def _measure(self, lane: Lane, now: float) -> None:
        begun = self._begun[lane]
        nbytes, first = 0, 0.0
        while begun and begun[0].event.is_done:
            piece = begun.popleft()
            first = first if nbytes else piece.seconds
            nbytes += piece.nbytes
        if nbytes == 0:
            return
        # It began when it was given the piece, or when it was done with the one before; it was done between the look
        # before and this one. If that is long ago, because the loop has kept all waiting, little is learnt.
        start = max(first, self._last_done.get(lane, first))
        self._last_done[lane] = now
        least, most = max(self._last_look - start, 0.0) / nbytes, max(now - start, 1e-6) / nbytes
        known = self._seconds_per_byte.get(lane, most)
        self._seconds_per_byte[lane] = known + _NEWEST * (min(max(known, least), most) - known)


class Levels(Protocol):
    """Where the images come from that workers of the CPU make."""

    def collect_cpu_images(self, work: BatchState) -> list[BadImage]:
        """Wait for those of a batch; return those that cannot be made."""
        ...


class Feeder:
    """The thread that puts batches into the GPU's queues, one after another.

    It waits for decoders that have enough to do, so that whoever submits batches need not.

    Parameters
    ----------
    equipment : Equipment
        The GPU's lanes and queues.
    augmenter : Augmenter
        Launches the kernels.
    host : Host
        Copies bytes.
    levels : Levels
        Gives the images that the CPU makes.
    """

    def __init__(self, resources: GpuResources, augmenter: Augmenter, host: CpuServices, levels: Levels) -> None:
        self._resources = resources
        self._device = resources.device
        self._augmenter = augmenter
        self._host = host
        self._levels = levels
        self._canaries_written = self._device.make_event()
        self._sent = self._device.make_event()
        shared = [lane for lane in (Lane.HARDWARE, Lane.SM) if lane in resources.lanes]
        self._split = LoadBalancer(shared)
        self._shares = len(shared) > 1 and not resources.is_deterministic
        self._batches: SimpleQueue[BatchState | None] = SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="gpubeton-feeder", daemon=True)
        self._thread.start()

    def put(self, work: BatchState) -> None:
        """Take a batch; returns at once.

        Parameters
        ----------
        work : Work
            The batch; `Work.is_issued` is set when the GPU has all of it.
        """
        self._batches.put(work)

    def close(self) -> None:
        """End the thread; batches that it has not begun get a LoaderClosedError."""
        self._is_closed = True
        self._batches.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()  # wait point: feeder ended

    def _serve(self) -> None:
        """Body of the thread."""
        failure: BaseException | None = None
        while (work := self._batches.get()) is not None:
            if self._is_closed:
                failure = failure or LoaderClosedError("the loader was closed while a batch was being made")
            if failure is None:
                try:
                    with self._device.active():
                        self._issue(work)
                except BaseException as error:  # noqa: BLE001 - the user's loop must learn of it, whatever it is
                    failure = error
            work.error = failure
            work.is_issued.set()

    def _issue(self, work: BatchState) -> None:
        """Put one batch into the queues."""
        streams, slot = self._resources.streams, work.slot
        slot.table.send(streams.canary)
        for own in work.placement.decoded:
            images = work.images[own.program]
            self._augmenter.write_canaries(images.pictures, images.count, work.nonce, streams.canary)
        self._canaries_written.record(streams.canary)
        # The engines of Hopper write when they are called. Only if the host itself has seen the sentinels in place can
        # they not come later, over the image.
        self._canaries_written.synchronize()  # wait point: canaries written
        arena, staging = slot.arena.reserve(0).address, slot.staging.reserve(0).address
        for one in work.placement.sent:
            if one.is_finished:
                continue
            if one.program in work.gathers:
                gather(self._device, work.gathers[one.program], one, streams.send)
            else:
                self._pack_crops(work, one, staging)
                self._send(one, arena, staging)
        for own in work.placement.decoded:
            self._decode(work, own, arena, staging)
        if work.needs_cpu:
            work.bad += self._levels.collect_cpu_images(work)  # wait point: cpu images made
            for one in work.placement.sent:
                if one.is_finished:
                    self._send(one, arena, staging)
        self._sent.record(streams.send)
        streams.augment.wait(self._sent)  # wait point: pixels sent
        taps, levels = slot.taps.reserve(0).address, slot.levels.reserve(0).address
        for number, images in enumerate(work.images):
            self._augmenter.augment(number, images, taps, levels, streams.augment)
            work.status.append(slot.table.bring_back((number, "status"), streams.augment))
        slot.done.record(streams.augment)

    def _pack_crops(self, work: BatchState, one: SentPixels, staging: int) -> None:
        job, rows = work.jobs[one.program], one.rows
        target = one.within + np.uint64(staging + one.staged)
        self._host.pack_crops(job.address[rows], job.width[rows], job.draws[rows], target, one.pitch)

    def _send(self, one: SentPixels, arena: int, staging: int) -> None:
        self._device.copy(arena + one.offset, staging + one.staged, one.nbytes, self._resources.streams.send)

    def _decode(self, work: BatchState, own: DecodedImages, arena: int, staging: int) -> None:
        """Give the images of one field to the decoders."""
        job, rows = work.jobs[own.program], own.rows
        piece = DecodeRequest(
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
                self._decode_shared(work, own, piece, source, places)
                continue
            for part in cut(len(places), self._resources.lanes[lane].most):
                self._begin(work, own, piece, source, places[part], lane)

    def _decode_shared(
        self,
        work: BatchState,
        own: DecodedImages,
        piece: DecodeRequest,
        source: NDArray[np.uint64],
        places: NDArray[np.intp],
    ) -> None:
        """Let engines and processors share images, by how long each has to do."""
        size = piece.size.astype(np.int64)
        while len(places):
            parts: dict[Lane, int] = {}
            for lane in (Lane.HARDWARE, Lane.SM):
                if lane is Lane.HARDWARE or len(places) >= self._resources.lanes[lane].least:
                    parts[lane] = min(len(places), self._resources.lanes[lane].most)
            nbytes = {lane: int(size[places[:count]].sum()) for lane, count in parts.items()}
            chosen = self._split.choose(nbytes, int(size[places].sum()))
            now, places = places[: parts[chosen]], places[parts[chosen] :]
            self._begin(work, own, piece, source, now, chosen)

    def _begin(
        self,
        work: BatchState,
        own: DecodedImages,
        piece: DecodeRequest,
        source: NDArray[np.uint64],
        places: NDArray[np.intp],
        lane: Lane,
    ) -> None:
        """Copy the bytes of some images to where the decoder reads them, and begin to decode."""
        part = piece.part(places)
        if not work.jobs[own.program].is_pinned:
            self._host.pack_regions(source[places], part.size, part.address)
        begun = self._resources.lanes[lane].begin(part)
        for place, reason in begun.failed.items():
            work.refused[own.program, int(own.rows[places[place]])] = reason
        if begun.event is not None:
            self._resources.streams.augment.wait(begun.event)  # wait point: images decoded
            if self._shares and lane is not Lane.HYBRID:
                self._split.begun(lane, int(part.size.sum()), begun.event)
