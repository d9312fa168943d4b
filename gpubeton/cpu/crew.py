"""Crew: threads that make the images of planned batches, ahead of whoever collects them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.cpu.fallback import UndecodableError, bytes_at, jpeg_size
from gpubeton.cpu.image import (
    ADDRESS,
    IMAGE_HEIGHT,
    IMAGE_WIDTH,
    IS_LED,
    JPEG,
    MODE,
    NEXT_VIEW,
    PACKED,
    PLAIN,
    PROGRAM,
    RAW,
    SIZE,
    TARGET,
)
from gpubeton.cpu.jpeg.codes import OK, REASONS, WRONG_SIZE
from gpubeton.cpu.plain.output import plain_outputs_of
from gpubeton.cpu.ring import BATCH_DONE, IDLE, REFUSED, Ring, allocate_ring, complete, has_tickets, publish, shut
from gpubeton.cpu.work_clock import WorkClock
from gpubeton.cpu.worker import UNDECODABLE, Worker, draw_columns, outputs_of, views_of
from gpubeton.errors import LoaderClosedError
from gpubeton.format.field_arguments import RGB, ImageKind
from gpubeton.format.layout import ImageMode
from gpubeton.plan.image_executor import BadImage, ImageJob, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.cpu.types import Array
    from gpubeton.plan.program import ImageProgram


@dataclass
class _Batch:
    """A batch on its way."""

    jobs: Sequence[ImageJob]
    # Of images that nobody could decode: why.
    reasons: dict[int, str] = field(default_factory=dict)
    is_done: bool = False


def _check(job: ImageJob, program: ImageProgram, batch_size: int) -> None:
    count = len(job.address)
    if count > batch_size or job.out.shape != (count, program.height, program.width, program.kind.channels):
        raise ValueError(
            f"an output of shape {job.out.shape} for {count} images of {program.height} x {program.width}, "
            f"{batch_size} at most"
        )
    levels = program.table is None or program.mixing
    item_size = program.kind.dtype.itemsize if levels or program.table is None else program.table.itemsize
    if job.out.itemsize != item_size:
        raise ValueError(f"an output of {job.out.dtype} for a program that writes {program.dtype}")
    if not job.out.flags.c_contiguous:
        raise ValueError("an output that is not contiguous")


def _modes(modes: NDArray[np.uint8], kind: ImageKind) -> NDArray[np.int64]:
    """How images are to be read, from how they are stored; FFCV reads whatever it does not know as raw."""
    if kind == RGB:
        return np.select([modes == ImageMode.JPG, modes == ImageMode.PNG], [JPEG, PACKED], RAW)
    return np.select([modes == ImageMode.RAW, (modes == ImageMode.JPG) & kind.has_jpeg], [PLAIN, JPEG], PACKED)


def _write_tasks(ring: Ring, slot: int, number: int, first: int, stop: int, job: ImageJob, kind: ImageKind) -> None:
    """Describe a job's images, `first` to at most `stop` of the batch; those beyond its last stay empty."""
    count = len(job.address)
    ring.tasks[slot, first:stop] = 0
    rows = ring.tasks[slot, first : first + count]
    rows[:, ADDRESS] = job.address
    rows[:, SIZE] = job.size
    rows[:, IMAGE_HEIGHT] = job.height
    rows[:, IMAGE_WIDTH] = job.width
    rows[:, MODE] = _modes(job.mode, kind)
    rows[:, PROGRAM] = number
    rows[:, TARGET] = job.out.ctypes.data + np.arange(count) * job.out.strides[0]
    columns = job.draws.shape[1]
    ring.draws[slot, first : first + count, :columns] = job.draws
    if job.colours is not None:
        ring.draws[slot, first : first + count, columns : columns + job.colours.shape[1]] = job.colours
    ring.codes[slot, first:stop] = OK


def _share(ring: Ring, slot: int, batch_size: int, jobs: Sequence[ImageJob]) -> None:
    """Have the views of each stored image made together: only the first of them is somebody's task.

    Raw images of other kinds than RGB have nothing to share.
    """
    tasks = ring.tasks[slot]
    for number, job in enumerate(jobs):
        for earlier in reversed(range(number)):
            if _has_the_same_images(job, jobs[earlier]):
                rows = np.flatnonzero(tasks[number * batch_size :, MODE][: len(job.address)] != PLAIN)
                tasks[earlier * batch_size + rows, NEXT_VIEW] = number * batch_size + rows
                tasks[number * batch_size + rows, IS_LED] = 1
                break


def _has_the_same_images(job: ImageJob, other: ImageJob) -> bool:
    return job.source != "" and job.source == other.source and np.array_equal(job.address, other.address)


def _extent(job: ImageJob) -> tuple[int, int]:
    """Longest side in pixels and most bytes of a job's images."""
    side = max(int(job.height.max(initial=1)), int(job.width.max(initial=1)))
    return side, int(np.asarray(job.size)[job.mode == JPEG].max(initial=0))


def _reason(task: Array, code: int, programs: Sequence[ImageProgram]) -> str:
    """Say why an image could not be made."""
    if code != WRONG_SIZE:
        return REASONS[code]
    expected = f"the file's metadata say {task[IMAGE_HEIGHT]} x {task[IMAGE_WIDTH]} pixels"
    if task[MODE] != JPEG:
        pixel_size = programs[task[PROGRAM]].kind.pixel_size
        return f"it has {task[SIZE]} bytes, but {expected}, {pixel_size * task[IMAGE_HEIGHT] * task[IMAGE_WIDTH]} bytes"
    try:
        height, width = jpeg_size(bytes_at(int(task[ADDRESS]), int(task[SIZE])))
    except UndecodableError as error:
        return f"{REASONS[WRONG_SIZE]}; {error}"
    return f"it is {height} x {width} pixels, but {expected}"


def _bad_images(
    ring: Ring, slot: int, reasons: dict[int, str], programs: Sequence[ImageProgram]
) -> list[tuple[int, str]]:
    """List what could not be made of a finished batch: places in the ring's slot, and why."""
    return [
        (image, reasons.get(image) or _reason(ring.tasks[slot, image], int(ring.codes[slot, image]), programs))
        for image in np.flatnonzero(ring.codes[slot]).tolist()
    ]


class Crew:
    """Threads that make images; batches go in and come out in order.

    The threads start at once and take images off a ring of batches (see `ring`); they hold the GIL only between batches
    and for the rare image that the crop decoder refuses.

    Parameters
    ----------
    programs : sequence of ImageProgram
        The image programs of a loader, at least one.
    batch_size : int
        Images of one field in a batch, at most.
    num_workers : int
        Threads.
    ring : int
        Batches that may be in flight.
    """

    def __init__(self, programs: Sequence[ImageProgram], batch_size: int, num_workers: int, ring: int) -> None:
        self._programs = list(programs)
        self._batch_size = batch_size
        self._outputs = outputs_of(self._programs)
        self._plain_outputs = plain_outputs_of(self._programs)
        self._ring = allocate_ring(ring, batch_size * len(self._programs), draw_columns(self._programs))
        self._batches: dict[int, _Batch] = {}
        self._submitted = 0
        self._collected = 0
        self._largest = (1, 0)
        self._is_closed = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._clocks = [WorkClock() for _ in range(num_workers)]
        self._threads = [
            threading.Thread(target=self._serve, args=(clock,), name=f"gpubeton-worker-{i}", daemon=True)
            for i, clock in enumerate(self._clocks)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        """Let the workers make a batch.

        Parameters
        ----------
        jobs : sequence of ImageJob
            One for each program, all of the same length.

        Raises
        ------
        RuntimeError
            If the ring is full: collect first.
        LoaderClosedError
            If the crew is closed.
        ValueError
            If a job does not fit its program.
        """
        for job, program in zip(jobs, self._programs, strict=True):
            _check(job, program, self._batch_size)
        with self._changed:
            self._raise_if_ended()
            slots = len(self._ring.remaining)
            if self._submitted - self._collected == slots:
                raise RuntimeError(f"all {slots} batches of the ring are in flight")
            number = self._submitted
            for program_number, (job, program) in enumerate(zip(jobs, self._programs, strict=True)):
                first = program_number * self._batch_size
                stop = first + self._batch_size
                _write_tasks(self._ring, number % slots, program_number, first, stop, job, program.kind)
            _share(self._ring, number % slots, self._batch_size, jobs)
            self._largest = _largest([self._largest, *map(_extent, jobs)])
            self._batches[number] = _Batch(jobs)
            self._submitted += 1
            publish(self._ring, number)
            self._changed.notify_all()

    def collect(self) -> list[BadImage]:
        """Wait for the oldest batch.

        Returns
        -------
        list of BadImage
            What could not be made; all else of the batch is complete.

        Raises
        ------
        LoaderClosedError
            If the crew is closed before the batch is done.
        BaseException
            What ended a worker, if one ended.
        """
        with self._changed:
            if self._collected == self._submitted:
                raise RuntimeError("no batch is in flight")
            batch = self._batches.get(self._collected)
            while batch is None or not batch.is_done:  # None: closed
                self._raise_if_ended()
                self._changed.wait()
            bad = _bad_images(self._ring, self._collected % len(self._ring.remaining), batch.reasons, self._programs)
            del self._batches[self._collected]
            self._collected += 1
        return [BadImage(*divmod(image, self._batch_size), reason) for image, reason in bad]

    def decode(self, program: int, job: ImageJob) -> list[BadImage]:
        """Make images in the caller's thread.

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
        count = len(job.address)
        _check(job, self._programs[program], count)
        worker = Worker(self._programs, self._outputs, self._plain_outputs)
        ring = allocate_ring(1, max(1, count), draw_columns(self._programs))
        _write_tasks(ring, 0, program, 0, count, job, self._programs[program].kind)
        publish(ring, 0)
        reasons: dict[int, str] = {}
        while True:
            event, ticket = worker.run(ring, *_extent(job))
            if event == REFUSED:
                self._make_refused(worker, ring, ticket, reasons)
            elif event == IDLE:
                break
        return [BadImage(program, row, reason) for row, reason in _bad_images(ring, 0, reasons, self._programs)]

    @property
    def usage(self) -> Usage:
        """How busy the threads were until now, all together."""
        return sum((clock.usage for clock in self._clocks), Usage())

    def close(self) -> None:
        """End the threads; what is in flight is dropped. May be called twice, from any thread."""
        with self._changed:
            self._is_closed = True
            shut(self._ring)
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._batches.clear()

    def _raise_if_ended(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise LoaderClosedError("the loader was closed while a batch was being made")

    def _make_refused(self, worker: Worker, ring: Ring, ticket: int, reasons: dict[int, str]) -> bool:
        """Have libjpeg-turbo decode an image; return whether it was the last of its batch."""
        code, reason = worker.make_refused(ring, ticket)
        if code == UNDECODABLE:
            reasons.update(dict.fromkeys(views_of(ring, ticket), reason))
        return bool(complete(ring, ticket, code))

    def _serve(self, clock: WorkClock) -> None:
        """Run one worker until the crew is closed."""
        try:
            worker = Worker(self._programs, self._outputs, self._plain_outputs)
            while self._wait_for_tickets(clock):
                event, ticket = worker.run(self._ring, *self._largest)
                number = ticket // self._ring.codes.shape[1]
                if event == REFUSED:
                    if self._make_refused(worker, self._ring, ticket, self._batches[number].reasons):
                        self._announce(number)
                elif event == BATCH_DONE:
                    self._announce(number)
        except BaseException as error:  # noqa: BLE001 - the user's loop must learn of it, whatever it is
            clock.pause()
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()

    def _wait_for_tickets(self, clock: WorkClock) -> bool:
        """Wait until there is an image to make; return whether there is one, and not the end."""
        clock.pause()
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or has_tickets(self._ring))
            if not self._is_closed:
                clock.begin()
            return not self._is_closed

    def _announce(self, number: int) -> None:
        with self._changed:
            # A batch of a crew that was closed meanwhile interests nobody.
            if number in self._batches:
                self._batches[number].is_done = True
            self._changed.notify_all()


def _largest(extents: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return max(side for side, _ in extents), max(size for _, size in extents)
