"""What the engine asks of an executor of images: the same of the CPU's worker pool and of a GPU."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest

from gpubeton.errors import LoaderClosedError
from tests.cpu.pictures import jpeg, noise, photo, pillow_jpeg
from tests.gpu_path.executor_bench import (
    BATCH,
    SLOTS,
    cpu_services,
    job_of,
    made_by_the_cpu,
    make_cpu_executor,
    open_gpu,
    program_of,
)
from tests.gpu_path.image_samples import raw, stored, twin
from tests.simulator.active_device import device
from tests.waiting import wait_until

__all__ = ["device"]

PHOTOS = [stored(jpeg(photo(30 + number, 40 - number, number))) for number in range(BATCH)]
#: Decoded by a library, in a thread of the CPU's workers.
CMYK = stored(pillow_jpeg(photo(20, 20), "CMYK"))
RAW = raw(photo(21, 22))
GOOD = [*PHOTOS[:3], CMYK, RAW, stored(pillow_jpeg(photo(33, 21), progressive=True)), raw(noise(3, 2)), PHOTOS[3]]
#: With the reason that all executors give.
BROKEN = stored(bytes(100), (10, 10))
WRONG_SIZE = stored(jpeg(photo(18, 18)), (18, 19))

#: How the images of two outputs are made.
SIZES = {"large": (12, 10), "small": (5, 6)}


class ExecutorContract:
    """What each executor promises; a subclass has the fixture `start` and a few methods."""

    #: The device of its programs.
    device = ""

    def take(self, executor, program, images):
        """Memory for the images of an output."""
        raise NotImplementedError

    def read(self, images):
        """The images whose pixels it makes when it reads others."""
        return images

    def break_thread(self, executor, monkeypatch):
        """Let the thread that comes to the next batch with `CMYK` raise ZeroDivisionError."""
        raise NotImplementedError

    @pytest.fixture
    def start(self):
        """Start an executor of programs, `SLOTS` batches of `BATCH` images; closes it at the end."""
        raise NotImplementedError

    @pytest.fixture
    def executor(self, start):
        return start(self.program())

    def program(self, size="large"):
        return program_of(size=SIZES[size], device=self.device)

    def expected(self, images, size="large", **which):
        """The pixels of good images."""
        return made_by_the_cpu(program_of(size=SIZES[size], device="cpu"), self.read(images), **which)[0]

    def submit(self, executor, images, **which):
        """Begin a batch of one output; gives its memory."""
        out = self.take(executor, 0, images)
        executor.submit([job_of(self.program(), images, out, **which)])
        return out

    def test_batches_come_out_in_the_order_in_which_they_went_in(self, executor):
        batches = [(epoch, (GOOD, PHOTOS, PHOTOS[:1], [RAW, CMYK, PHOTOS[3]])[epoch % 4]) for epoch in range(12)]
        outs = []
        for number in range(len(batches) + SLOTS - 1):
            if number < len(batches):
                epoch, images = batches[number]
                outs.append(self.submit(executor, images, epoch=epoch))
            if number >= SLOTS - 1:
                epoch, images = batches[number - SLOTS + 1]
                assert executor.collect() == []
                assert np.array_equal(np.asarray(outs[epoch]), self.expected(images, epoch=epoch))

    def test_a_batch_may_be_empty(self, executor):
        outs = [self.submit(executor, images) for images in (PHOTOS[:2], [], PHOTOS[2:3])]
        assert [executor.collect() for _ in outs] == [[]] * 3
        assert np.array_equal(np.asarray(outs[2]), self.expected(PHOTOS[2:3]))

    def test_no_more_batches_are_taken_than_there_is_room_for_until_one_is_collected(self, executor):
        outs = [self.submit(executor, PHOTOS[number:]) for number in range(SLOTS)]
        with pytest.raises(RuntimeError, match=rf"all {SLOTS} batches"):
            self.submit(executor, PHOTOS)
        assert executor.collect() == []
        outs.append(self.submit(executor, GOOD))
        assert [executor.collect() for _ in range(SLOTS)] == [[]] * SLOTS
        for number, out in enumerate(outs):
            assert np.array_equal(np.asarray(out), self.expected(PHOTOS[number:] if number < SLOTS else GOOD))

    def test_collecting_without_a_batch_in_flight_raises_and_does_not_wait(self, executor):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no batch is in flight"):
                executor.collect()
            self.submit(executor, PHOTOS)
            executor.collect()

    def test_a_batch_has_a_job_for_each_program(self, start):
        executor = start(self.program(), self.program("small"))
        job = job_of(self.program(), PHOTOS, self.take(executor, 0, PHOTOS))
        with pytest.raises(ValueError, match="zip"):
            executor.submit([job])

    def test_bad_images_are_named_by_output_and_row_with_their_reason_and_all_others_are_made(self, start):
        images = [[PHOTOS[0], BROKEN, CMYK, PHOTOS[1]], [WRONG_SIZE, RAW, PHOTOS[2], BROKEN]]
        executor = start(self.program(), self.program("small"))
        for _ in range(SLOTS + 1):  # memory of earlier batches is used again
            jobs = [
                job_of(self.program(size), row, self.take(executor, number, row), source=f"field {number}")
                for number, (size, row) in enumerate(zip(SIZES, images, strict=True))
            ]
            executor.submit(jobs)
            bad = {(image.program, image.row): image.reason for image in executor.collect()}
            assert sorted(bad) == [(0, 1), (1, 0), (1, 3)]
            assert bad[0, 1] == bad[1, 3] == made_by_the_cpu(program_of(device="cpu"), [BROKEN])[1][0].reason
            assert bad[1, 0] == "it is 18 x 18 pixels, but the file's metadata have 18 x 19 pixels"
            whole = [images[0][0], images[0][0], *images[0][2:]]
            assert np.array_equal(np.asarray(jobs[0].out)[[0, 2, 3]], self.expected(whole)[[0, 2, 3]])
            assert np.array_equal(np.asarray(jobs[1].out)[1:3], self.expected(images[1][1:3], "small", first=1))

    def test_jobs_of_one_source_share_its_images_and_have_their_own_crops(self, start):
        executor = start(self.program(), self.program("small"), self.program())
        sizes = ["large", "small", "large"]
        jobs = [
            job_of(self.program(size), GOOD, self.take(executor, number, GOOD), epoch=number)
            for number, size in enumerate(sizes)
        ]
        executor.submit(jobs)
        assert executor.collect() == []
        for number, (job, size) in enumerate(zip(jobs, sizes, strict=True)):
            assert np.array_equal(np.asarray(job.out), self.expected(GOOD, size, epoch=number))

    def test_any_number_of_images_is_made_alone_at_any_time(self, executor):
        out = self.submit(executor, PHOTOS)
        images = [PHOTOS[2], CMYK, RAW, BROKEN, *PHOTOS, *GOOD]
        alone = self.take(executor, 0, images)
        bad = executor.decode(0, job_of(self.program(), images, alone, epoch=7))
        assert [(image.program, image.row) for image in bad] == [(0, 3)]
        whole = [RAW if image is BROKEN else image for image in images]
        pixels = made_by_the_cpu(program_of(device="cpu"), whole, epoch=7)[0]  # also for a GPU
        assert np.array_equal(np.delete(np.asarray(alone), 3, 0), np.delete(pixels, 3, 0))
        nothing = self.take(executor, 0, [])
        assert executor.decode(0, job_of(self.program(), [], nothing)) == []
        assert executor.collect() == []
        assert np.array_equal(np.asarray(out), self.expected(PHOTOS))

    def test_what_owns_the_bytes_is_held_until_the_batch_is_collected(self, executor):
        class Owner:
            pass

        owner = Owner()
        is_gone = weakref.ref(owner)
        job = job_of(self.program(), PHOTOS, self.take(executor, 0, PHOTOS))
        job.keep = job.keep, owner
        executor.submit([job])
        del job, owner
        gc.collect()
        assert is_gone() is not None
        executor.collect()
        for _ in range(SLOTS):  # its memory is used again
            self.submit(executor, PHOTOS)
            executor.collect()
        gc.collect()
        assert is_gone() is None

    def test_executors_work_at_once_and_do_not_mix(self, start):
        executors = [start(self.program()) for _ in range(3)]
        outs = [
            [self.submit(executor, GOOD, epoch=4 * number + batch) for number, executor in enumerate(executors)]
            for batch in range(SLOTS)
        ]
        for batch, row in enumerate(outs):
            for number, (executor, out) in enumerate(zip(executors, row, strict=True)):
                assert executor.collect() == []
                assert np.array_equal(np.asarray(out), self.expected(GOOD, epoch=4 * number + batch))

    # --- usage

    def test_the_usage_of_the_cpus_threads_is_counted_while_they_make_images_and_not_while_they_wait(self, executor):
        usages = [executor.usage]
        assert usages[0] == (0, 0)
        for _ in range(3):
            self.submit(executor, [CMYK] * BATCH)
            executor.collect()
            # A thread counts its batch when it goes to sleep, a moment after the last image.
            wait_until(lambda: executor.usage == (time.sleep(0.01), executor.usage)[1])
            usages.append(executor.usage)
            time.sleep(0.05)
            assert executor.usage == usages[-1]
        executor.close()
        usages.append(executor.usage)
        busy, cpu = ([getattr(usage, name) for usage in usages] for name in ("busy_seconds", "cpu_seconds"))
        assert busy == sorted(busy)
        assert cpu == sorted(cpu)
        assert busy[1] > 0
        assert cpu[1] > 0

    # --- errors of threads

    def test_an_error_of_a_thread_is_raised_by_its_batch_and_no_later_batch_is_made(self, executor, monkeypatch):
        out = self.submit(executor, PHOTOS)
        pixels = self.expected(PHOTOS)
        wait_until(lambda: np.array_equal(np.asarray(out), pixels))
        self.break_thread(executor, monkeypatch)
        self.submit(executor, [CMYK])
        time.sleep(0.05)
        assert executor.collect() == [], "it was finished before the error"
        with pytest.raises(ZeroDivisionError, match="planted"):
            executor.collect()
        monkeypatch.undo()
        for _ in range(2):
            with pytest.raises((ZeroDivisionError, LoaderClosedError)):
                self.submit_and_collect(executor)

    def submit_and_collect(self, executor):
        self.submit(executor, PHOTOS)
        executor.collect()

    # --- the end

    def test_closing_ends_the_threads_and_may_come_twice_with_batches_in_flight(self, start, own_threads):
        for batches in range(SLOTS + 1):
            executor = start(self.program())
            for _ in range(batches):
                self.submit(executor, GOOD)
            assert own_threads() != []
            executor.close()
            assert own_threads() == []
            executor.close()

    def test_a_closed_executor_takes_nothing_and_gives_nothing(self, executor):
        job = job_of(self.program(), PHOTOS, self.take(executor, 0, PHOTOS))
        self.submit(executor, PHOTOS)
        executor.close()
        with pytest.raises(LoaderClosedError):
            executor.submit([job])
        with pytest.raises(LoaderClosedError, match="closed"):
            executor.collect()

    def test_a_closed_executor_without_a_batch_gives_nothing(self, executor):
        executor.close()
        with pytest.raises(LoaderClosedError, match="closed"):
            executor.collect()

    def test_closing_while_images_are_made_leaves_their_memory_alone_afterwards(self, start):
        for _ in range(5):
            executor = start(self.program())
            outs = [self.submit(executor, GOOD) for _ in range(SLOTS)]
            executor.close()
            before = [np.asarray(out).copy() for out in outs]
            time.sleep(0.01)
            assert all(np.array_equal(np.asarray(out), copy) for out, copy in zip(outs, before, strict=True))

    def test_a_closed_executor_is_freed_by_its_last_reference(self, start):
        executor = start(self.program())
        self.submit(executor, GOOD)
        executor.collect()
        executor.close()
        is_gone = weakref.ref(executor)
        start.forget()
        del executor
        gc.collect()
        assert is_gone() is None


class Starts:
    """Starts executors, and closes them."""

    def __init__(self, start):
        self._start, self._executors = start, []

    def __call__(self, *programs):
        self._executors.append(self._start(list(programs)))
        return self._executors[-1]

    def forget(self):
        """Hold no executor any more."""
        self._executors.clear()

    def close(self):
        for executor in self._executors:
            executor.close()


class TestWorkerPool(ExecutorContract):
    device = "cpu"

    @pytest.fixture
    def start(self):
        starts = Starts(make_cpu_executor)
        yield starts
        starts.close()

    def take(self, executor, program, images):
        height, width = SIZES["small" if program == 1 else "large"]
        return np.full((len(images), height, width, 3), 0xA5, np.uint8)

    def break_thread(self, executor, monkeypatch):
        monkeypatch.setattr("gpubeton._cpu.worker_pool.views_of", fail)


class TestGpuExecutor(ExecutorContract):
    device = "cuda:0"

    @pytest.fixture
    def gpu(self, device):
        opened = open_gpu(device)
        yield opened
        opened.close()

    @pytest.fixture
    def start(self, gpu, faults):
        faults.slow_down(300)
        starts = Starts(lambda programs: gpu.start_executor(programs, cpu_services()))
        yield starts
        starts.close()

    def take(self, executor, program, images):
        return executor.take(program, len(images))

    def read(self, images):
        """A decoder of whole images reads the same pixels as from a raw image."""
        return twin(images)

    def break_thread(self, executor, monkeypatch):
        """In the thread that feeds the GPU."""
        calling, device = threading.current_thread(), type(executor._device)
        launch = device.launch

        def launch_or_fail(*arguments):
            if threading.current_thread() is not calling:
                fail()
            launch(*arguments)

        monkeypatch.setattr(device, "launch", launch_or_fail)


def fail(*_):
    raise ZeroDivisionError("planted")
