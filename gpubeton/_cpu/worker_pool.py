"""The worker pool: threads that make the images of planned batches, ahead of the loop that collects them."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._cpu.bad_images import UNDECODABLE, bad_images, decode_refused, views_of
from gpubeton._cpu.epilogue import OUT_HEIGHT, OUT_WIDTH, Outputs, draw_columns, is_gray, outputs_of
from gpubeton._cpu.image_tasks import (
    ADDRESS,
    CHECKSUM,
    ENTRIES,
    IMAGE_HEIGHT,
    IMAGE_WIDTH,
    IS_LATER_VIEW,
    JPEG,
    MODE,
    NEXT_VIEW,
    NUM_ENTRIES,
    PACKED,
    PROGRAM,
    RAW,
    RAW_OTHER,
    SEAL,
    SIZE,
    Scratch,
    allocate,
    allocate_steps,
)
from gpubeton._cpu.other_kinds import OtherKindsScratch, allocate_other_kinds
from gpubeton._cpu.ring import (
    BATCH_DONE,
    BUSY,
    CPU,
    IDLE,
    OTHER_KIND,
    OUTGROWN,
    REFUSED,
    Ring,
    allocate_ring,
    await_batch,
    await_tickets,
    complete,
    give_up,
    publish,
    wake,
    work,
    work_other_kinds,
    write_tasks,
)
from gpubeton._cpu.system_calls import raise_interrupt
from gpubeton._plan.image_job import ImageJob, Usage
from gpubeton.errors import LoaderClosedError
from gpubeton.fields.codecs import codecs_of
from gpubeton.format.field_arguments import RGB, ImageKind
from gpubeton.format.layout import ImageMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._plan.image_job import BadImage
    from gpubeton._plan.program import ImageProgram


class Worker:
    """The memory of one thread, and the images that it makes, with libjpeg-turbo's help if needed."""

    def __init__(self, programs: Sequence[ImageProgram], outputs: Outputs, number: int = 0) -> None:
        self._outputs = outputs
        self._number = number  # of its row in the ring's clocks, if it has any
        self._kinds = [program.kind for program in programs]
        self._other_programs = [program for program in programs if program.kind != RGB]
        # The loop that goes on; the one for RGB images is not even compiled if there are none.
        self._is_other_kind = len(self._other_programs) == len(self._kinds)
        self._programs = programs
        self._size = _largest(programs)
        self._staging = _largest([program for program in programs if program.steps or is_gray(program)])
        self._scratch: Scratch | None = None
        self._other_kinds_scratch: OtherKindsScratch | None = None
        # An image that libjpeg-turbo has decoded is made as a raw image, on a ring of one.
        self._spare_ring = allocate_ring(1, 1, draw_columns(programs))

    def run(self, ring: Ring) -> tuple[int, int]:
        """Make images of a ring until an event that Python has to handle; see `ring.work`."""
        while True:
            event: tuple[int, int]
            if self._is_other_kind:
                event = work_other_kinds(ring, self._outputs, self.other_kinds_scratch(1, 1), self._number)
            else:
                event = work(ring, self._outputs, self.scratch(1, 1, 0), self._number)
            if event[0] == OTHER_KIND:
                self._is_other_kind = not self._is_other_kind
            elif event[0] == OUTGROWN:
                self._grow(ring, event[1])
            else:
                return event

    def scratch(self, height: int, width: int, size: int) -> Scratch:
        """Return memory for RGB images up to a height, a width and a size in bytes; it grows and never shrinks."""
        before = [0, 0, 0] if self._scratch is None else self._scratch.capacity.tolist()
        height, width, size = largest = max(height, before[0]), max(width, before[1]), max(size, before[2])
        if self._scratch is None or list(largest) != before:
            scale = max(program.largest_scale(height, width) for program in self._programs)
            steps = allocate_steps(self._programs)
            self._scratch = allocate(largest, self._size, scale, self._staging, len(self._kinds), steps)
        return self._scratch

    def other_kinds_scratch(self, height: int, width: int) -> OtherKindsScratch:
        """Return memory for images of other kinds up to a height and a width; it grows and never shrinks."""
        before = [0, 0] if self._other_kinds_scratch is None else self._other_kinds_scratch.capacity[:2].tolist()
        height, width = max(height, before[0]), max(width, before[1])
        if self._other_kinds_scratch is None or [height, width] != before:
            self._other_kinds_scratch = allocate_other_kinds(height, width, self._other_programs)
        return self._other_kinds_scratch

    def _grow(self, ring: Ring, ticket: int) -> None:
        """Allocate memory for the images of a batch, or only for the one that has outgrown it; or give that up."""
        batches, images = ring.codes.shape
        tasks, image = ring.tasks[(ticket // images) % batches], ticket % images
        for rows in tasks, tasks[image : image + 1]:
            height, width = (int(rows[:, column].max(initial=1)) for column in (IMAGE_HEIGHT, IMAGE_WIDTH))
            with suppress(MemoryError):
                if self._is_other_kind:
                    self.other_kinds_scratch(height, width)
                else:
                    self.scratch(height, width, int(rows[rows[:, MODE] == JPEG, SIZE].max(initial=0)))
                return
        give_up(ring, ticket)

    def make_refused(self, ring: Ring, ticket: int) -> tuple[int, str]:
        """Make a refused image and its later views by a library, and set their codes."""
        # Returns the image's code, and the reason if it is UNDECODABLE, which is then that of all views.
        batch, views = views_of(ring, ticket)
        task, codes = ring.tasks[batch, views[0]], ring.codes[batch]
        kind = self._kinds[task[PROGRAM]]
        code, reason, pixels = decode_refused(task, codes[views], kind)
        if pixels is None:
            codes[views] = code
            return code, reason
        spare = self._spare_ring
        for image in views:
            spare.control[:] = 0
            spare.tasks[0, 0] = ring.tasks[batch, image]
            spare.tasks[0, 0, [ADDRESS, SIZE]] = pixels.ctypes.data, pixels.nbytes
            spare.tasks[0, 0, [NEXT_VIEW, IS_LATER_VIEW, CHECKSUM]] = 0
            spare.tasks[0, 0, MODE] = RAW if kind == RGB else RAW_OTHER
            spare.draws[0, 0] = ring.draws[batch, image]
            publish(spare, 0)
            self.run(spare)
            codes[image] = spare.codes[0, 0]
        return int(codes[views[0]]), ""


def _largest(programs: Sequence[ImageProgram]) -> tuple[int, int]:
    """Return the largest height and width of the outputs."""
    return max((program.height for program in programs), default=0), max(
        (program.width for program in programs), default=0
    )


def usage_of(clocks: NDArray[np.int64]) -> Usage:
    """Sum up the clocks of workers, `Ring.clocks`, until now; processor time counts at the end of a batch or work."""
    clocked = clocks[:, BUSY].tolist()
    now = time.monotonic_ns()  # afterwards: a worker that starts meanwhile would have worked for less than no time
    busy = sum(nanoseconds if nanoseconds >= 0 else nanoseconds + now for nanoseconds in clocked)
    return Usage(busy / 1e9, int(clocks[:, CPU].sum()) / 1e9)


class WorkerPool:
    """Threads that make images; batches are submitted and collected in order."""

    # The threads take images off a ring of batches. They hold the GIL only for the rare image that the crop decoder
    # refuses; they wait without it, too.

    def __init__(
        self,
        programs: Sequence[ImageProgram],
        batch_size: int,  # most images of one output in a batch
        num_workers: int,
        ring: int,  # most batches in flight
    ) -> None:
        self._programs = list(programs)
        self._batch_size = batch_size
        self._outputs = outputs_of(self._programs)
        self._ring = allocate_ring(ring, batch_size * len(self._programs), draw_columns(self._programs), num_workers)
        # The batches in flight; with the reasons of images that no library decodes, by their places.
        self._batches: dict[int, tuple[Sequence[ImageJob], dict[int, str]]] = {}
        self._submitted = 0
        self._collected = 0
        self._is_closed = False
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"gpubeton-worker-{number}", daemon=True)
            for number in range(num_workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        """Begin a batch: one job for each program. Raises RuntimeError if the ring is full: collect first."""
        for job, program in zip(jobs, self._programs, strict=True):
            _check(job, program, self._batch_size)
        self._raise_if_ended()
        slots = len(self._ring.remaining)
        if self._submitted - self._collected == slots:
            raise RuntimeError(f"all {slots} batches of the ring are in flight")
        number = self._submitted
        for program_number, (job, program) in enumerate(zip(jobs, self._programs, strict=True)):
            first = program_number * self._batch_size
            stop = first + self._batch_size
            _write_job(self._ring, number % slots, program_number, first, stop, job, program.kind)
        _link_views(self._ring, number % slots, self._batch_size, jobs)
        self._batches[number] = jobs, {}
        self._submitted += 1
        publish(self._ring, number)

    def collect(self) -> list[BadImage]:
        """Wait for the oldest batch; return its bad images. Raises what ended a worker, or LoaderClosedError."""
        if self._collected == self._submitted:
            self._raise_if_ended()
            raise RuntimeError("no batch is in flight")
        is_made = await_batch(self._ring, self._collected, False)
        while self._is_closed or not is_made:
            self._raise_if_ended()
            is_made = await_batch(self._ring, self._collected, True)
            raise_interrupt()
        slot = self._collected % len(self._ring.remaining)
        jobs, reasons = self._batches.pop(self._collected)
        self._collected += 1
        for number, job in enumerate(jobs):
            if job.num_entries is not None:
                first = number * self._batch_size
                job.num_entries[:] = self._ring.tasks[slot, first : first + len(job.num_entries), NUM_ENTRIES]
        return bad_images(self._ring, slot, reasons, self._programs, self._batch_size)

    def decode(self, program: int, job: ImageJob) -> list[BadImage]:
        """Make the images of one program in the caller's thread; return the bad ones."""
        count = len(job.address)
        _check(job, self._programs[program], count)
        worker = Worker(self._programs, self._outputs)
        ring = allocate_ring(1, max(1, count), draw_columns(self._programs))
        _write_job(ring, 0, program, 0, count, job, self._programs[program].kind)
        publish(ring, 0)
        reasons = _make_published(worker, ring)
        return [replace(bad, program=program) for bad in bad_images(ring, 0, reasons, self._programs, max(1, count))]

    @property
    def usage(self) -> Usage:
        """How busy all threads together were until now."""
        return usage_of(self._ring.clocks)

    def close(self) -> None:
        """End the threads and drop the batches in flight. May be called twice, from any thread."""
        self._is_closed = True
        wake(self._ring, True)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._batches.clear()

    def _raise_if_ended(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise LoaderClosedError("the loader was closed while a batch was being made")

    def _serve(self, number: int) -> None:
        """Run one worker until the pool is closed."""
        try:
            worker = Worker(self._programs, self._outputs, number)
            # Without any image there is nothing to allocate and to compile.
            if not await_tickets(self._ring, number):
                return
            while (event := worker.run(self._ring))[0] != IDLE:
                if event[0] == REFUSED:
                    batch = event[1] // self._ring.codes.shape[1]
                    _make_refused(worker, self._ring, event[1], self._batches[batch][1])
        except BaseException as error:  # noqa: BLE001 - any error has to reach the user's loop
            clock = self._ring.clocks[number : number + 1]
            clock[0, BUSY] = 1e9 * usage_of(clock).busy_seconds
            self._failure = self._failure or error
            wake(self._ring, False)


class SingleImages:
    """The memory to decode RGB images of any sizes one by one, without a step, in the caller's thread."""

    def __init__(self, program: ImageProgram) -> None:
        self._programs = [program]
        self._outputs = outputs_of(self._programs)
        self._ring = allocate_ring(1, 1, draw_columns(self._programs))
        self._worker = Worker(self._programs, self._outputs)

    def decode(self, job: ImageJob) -> str:
        """Make the image of a job, whose crop is as large as its output; return the reason if it is bad."""
        (program,), (height, width) = self._programs, job.out.shape[1:3]
        if height > program.height or width > program.width:  # the worker has memory for the largest output
            largest = replace(program, height=max(height, program.height), width=max(width, program.width))
            self._programs = [largest]
            self._worker = Worker(self._programs, self._outputs)
        self._outputs.settings[0, [OUT_HEIGHT, OUT_WIDTH]] = height, width
        self._ring.control[:] = 0
        _write_job(self._ring, 0, 0, 0, 1, job, RGB)
        publish(self._ring, 0)
        reasons = _make_published(self._worker, self._ring)
        return "".join(bad.reason for bad in bad_images(self._ring, 0, reasons, self._programs, 1))


def _make_published(worker: Worker, ring: Ring) -> dict[int, str]:
    """Make the batch of a ring of one; return the reasons of images that no library decodes, by their places."""
    reasons: dict[int, str] = {}
    while (event := worker.run(ring))[0] not in (BATCH_DONE, IDLE):
        _make_refused(worker, ring, event[1], reasons)
    return reasons


def _make_refused(worker: Worker, ring: Ring, ticket: int, reasons: dict[int, str]) -> None:
    """Let a library decode an image."""
    code, reason = worker.make_refused(ring, ticket)
    if code == UNDECODABLE:
        reasons.update(dict.fromkeys(views_of(ring, ticket)[1], reason))
    complete(ring, ticket, code)


# --- jobs as tasks of the ring ----------------------------------------------------------------------------------------


def _check(job: ImageJob, program: ImageProgram, batch_size: int) -> None:
    count = len(job.address)
    if count > batch_size or job.out.shape != (count, program.height, program.width, program.kind.channels):
        raise ValueError(
            f"an output of shape {job.out.shape} for {count} images of {program.height} x {program.width}, "
            f"{batch_size} at most"
        )
    is_raw = program.table is None or program.mixing
    item_size = program.kind.dtype.itemsize if is_raw or program.table is None else program.table.itemsize
    if job.out.itemsize != item_size:
        raise ValueError(f"an output of {job.out.dtype} for a program that writes {program.dtype}")
    if not job.out.flags.c_contiguous:
        raise ValueError("an output that is not contiguous")


@cache
def _modes_of(kind: ImageKind) -> NDArray[np.int64]:  # (256,)
    """List how images are read, for each way in which they may be stored; like FFCV, read unknown modes as raw."""
    modes = np.full(256, RAW if kind == RGB else PACKED)
    for codec in codecs_of(kind):
        modes[codec.mode] = JPEG if codec.has_crop_decoder else PACKED
    if kind != RGB:
        modes[ImageMode.RAW] = RAW_OTHER
    return modes


def _write_job(ring: Ring, slot: int, number: int, first: int, stop: int, job: ImageJob, kind: ImageKind) -> None:
    """Write a job's images as the tasks `first` to at most `stop`; the rest stay empty."""
    # Copies: arrays that cannot be written, or with gaps, are other types for compiled code.
    address, size = (np.array(column, np.uint64) for column in (job.address, job.size))
    height, width = (np.array(column, np.int32) for column in (job.height, job.width))
    mode, draws = np.array(job.mode, np.uint8), np.array(job.draws, np.int32, order="C")
    stored = address, size, height, width, mode, _modes_of(kind)
    write_tasks(ring, slot, number, first, stop, stored, draws, job.out.ctypes.data, job.out.strides[0])
    if job.entries is not None:
        rows = ring.tasks[slot, first : first + len(draws)]
        rows[:, ENTRIES], rows[:, NUM_ENTRIES], rows[:, SEAL] = job.entries, job.num_entries, job.seals
    if job.checksums is not None:
        ring.tasks[slot, first : first + len(draws), CHECKSUM] = job.checksums
    if job.steps is not None:
        listed = job.steps.reshape(len(draws), -1)
        ring.draws[slot, first : first + len(draws), draws.shape[1] : draws.shape[1] + listed.shape[1]] = listed


def _link_views(ring: Ring, slot: int, batch_size: int, jobs: Sequence[ImageJob]) -> None:
    """Link the tasks with the same stored image: the first makes all. Raw images of other kinds share nothing."""
    tasks = ring.tasks[slot]
    for number, job in enumerate(jobs):
        for earlier in reversed(range(number)):
            is_same_source = job.source != "" and job.source == jobs[earlier].source
            if is_same_source and np.array_equal(job.address, jobs[earlier].address):
                rows = np.flatnonzero(tasks[number * batch_size :, MODE][: len(job.address)] != RAW_OTHER)
                tasks[earlier * batch_size + rows, NEXT_VIEW] = number * batch_size + rows
                tasks[number * batch_size + rows, IS_LATER_VIEW] = 1
                break
