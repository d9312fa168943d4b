from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from gpubeton._cpu import worker_pool
from gpubeton._cpu.worker_pool import Worker, WorkerPool
from gpubeton.errors import LoaderClosedError
from gpubeton.transforms import Cutout, NormalizeImage
from tests.at_once import run_at_once
from tests.cpu.making import draw_of, job_of, make, make_one, program_of, stored_jpeg, stored_raw, whole
from tests.cpu.pictures import SAMPLINGS, jpeg, noise, photo, pillow_jpeg

PROGRAM = program_of(12, 10)
NORMALIZED = program_of(7, 9, "antialias", Cutout(3), NormalizeImage([120, 110, 100], [60, 50, 40], "float32"))


def stock():
    """Images of all kinds and sizes, good and bad."""
    kinds = [stored_jpeg(jpeg(photo(20 + i, 50 - i, i), 80, sampling)) for i, sampling in enumerate(SAMPLINGS)]
    slow = stored_jpeg(pillow_jpeg(photo(33, 21), progressive=True))
    bad = stored_jpeg(jpeg(photo(20, 20))[:-30], 20, 20)
    return [
        *kinds,
        stored_raw(noise(19, 31)),
        slow,
        bad,
        stored_jpeg(jpeg(photo(18, 18)), 18, 19),
        stored_raw(noise(3, 2)),
    ]


STOCK = stock()


def jobs_of(numbers, program=PROGRAM):
    images = [STOCK[number % len(STOCK)] for number in numbers]
    return job_of(
        program, images, [draw_of(program, whole(image), flip=n % 2) for n, image in zip(numbers, images, strict=True)]
    )


def workers():
    return {thread for thread in threading.enumerate() if thread.name.startswith("gpubeton-worker")}


@contextmanager
def pool_of(*programs, batch_size=8, num_workers=2, ring=2):
    pool = WorkerPool(programs or [PROGRAM], batch_size, num_workers, ring)
    try:
        yield pool
    finally:
        pool.close()


def run(pool, batches, depth):
    """Submit and collect batches of numbers, up to `depth` at once; returns outputs and bad images."""
    waiting, results = [], []
    for numbers in batches:
        if len(waiting) == depth:
            results.append((waiting.pop(0).out, pool.collect()))
        waiting.append(jobs_of(numbers))
        pool.submit([waiting[-1]])
    return results + [(job.out, pool.collect()) for job in waiting]


def expected(numbers):
    out, bad = make(PROGRAM, [STOCK[n % len(STOCK)] for n in numbers], jobs_of(numbers).draws)
    return out, bad


def same(result, reference):
    good = np.ones(len(reference[0]), bool)
    good[[image.row for image in reference[1]]] = False
    return np.array_equal(result[0][good], reference[0][good]) and sorted_bad(result) == sorted_bad(reference)


def sorted_bad(result):
    return sorted(result[1], key=lambda image: (image.program, image.row))


@pytest.mark.parametrize("num_workers", [1, 2, 7])
@pytest.mark.parametrize("batch_size", [1, 5, 40])
def test_images_depend_neither_on_the_workers_nor_on_the_batch(num_workers, batch_size):
    numbers = list(range(40))
    alone = [make(PROGRAM, [STOCK[n % len(STOCK)]], jobs_of([n]).draws) for n in numbers]
    with pool_of(batch_size=batch_size, num_workers=num_workers, ring=4) as pool:
        batches = [numbers[i : i + batch_size] for i in range(0, 40, batch_size)]
        results = run(pool, batches, 4)
    for n, (out, bad) in enumerate(alone):
        batch, row = divmod(n, batch_size)
        reasons = {image.row: image.reason for image in results[batch][1]}
        assert reasons.get(row) == (bad[0].reason if bad else None)
        if not bad:
            assert np.array_equal(results[batch][0][row], out[0])


def test_a_bad_image_is_named_and_its_neighbors_are_whole():
    with pool_of(batch_size=10) as pool:
        job = jobs_of(range(10))
        pool.submit([job])
        bad = pool.collect()
    assert sorted(image.row for image in bad) == [7, 8]
    reasons = {image.row: image.reason for image in bad}
    assert reasons[8] == "it is 18 x 18 pixels, but the file's metadata have 18 x 19 pixels"
    assert "it ends before its last marker; libjpeg-turbo: " in reasons[7]
    assert all(image.program == 0 for image in bad)


@pytest.mark.parametrize("kind", ["jpeg", "rgb", "gray"])
def test_an_image_that_memory_does_not_suffice_for_is_bad_and_all_others_are_made(monkeypatch, kind):
    def limited(allocate):
        def wrapped(*arguments):
            if max(np.ravel(arguments[0])[:2]) > 100 or arguments[1] == 300:
                raise MemoryError("planted")
            return allocate(*arguments)

        return wrapped

    pictures = [photo(height, width) for height, width in ((20, 30), (9, 300), (21, 29), (300, 9), (19, 28))]
    if kind == "jpeg":
        images = [stored_jpeg(jpeg(picture)) for picture in pictures]
    else:
        images = [stored_raw(picture if kind == "rgb" else picture[:, :, :1]) for picture in pictures]
    programs = [program_of(*size, kind="gray" if kind == "gray" else "rgb") for size in ((12, 10), (8, 9))]
    draws = [[draw_of(program, whole(image)) for image in images] for program in programs]
    jobs = [
        replace(job_of(*arguments), source="the same") for arguments in zip(programs, [images] * 2, draws, strict=True)
    ]
    with monkeypatch.context() as patch:
        for name in ("allocate", "allocate_other_kinds"):
            patch.setattr(worker_pool, name, limited(getattr(worker_pool, name)))
        with pool_of(*programs) as pool:
            pool.submit(jobs)
            bad = pool.collect()
            pool.submit(jobs)
            assert sorted(map(repr, pool.collect())) == sorted(map(repr, bad))
    assert sorted((image.program, image.row) for image in bad) == [(0, 1), (0, 3), (1, 1), (1, 3)]
    assert {(image.row, image.reason.split(" have ")[1]) for image in bad} == {
        (1, "9 x 300 pixels"),
        (3, "300 x 9 pixels"),
    }
    for program, job in zip(programs, jobs, strict=True):
        for row in (0, 2, 4):
            assert np.array_equal(job.out[row], make_one(program, images[row]))


def test_the_output_of_a_bad_image_has_no_pixels_of_earlier_batches():
    """A slot of the ring is used again and again; earlier contents must not come back."""
    with pool_of(batch_size=1, ring=1) as pool:
        for _ in range(3):
            assert run(pool, [[0]], 1)[0][1] == []
            out, bad = run(pool, [[8]], 1)[0]
            assert [image.row for image in bad] == [0]
            assert (out == 0xA5).all()
            assert run(pool, [[5]], 1)[0][1] == []


def test_a_partial_batch_does_not_repeat_rows_of_the_batch_before():
    with pool_of(ring=1) as pool:
        first, second = run(pool, [[7] * 8, [0, 7]], 1)
    assert len(first[1]) == 8
    assert [image.row for image in second[1]] == [1]


def test_two_programs_have_each_its_size_and_type():
    numbers = [0, 5, 7, 3]
    with pool_of(PROGRAM, NORMALIZED, batch_size=4) as pool:
        jobs = [jobs_of(numbers), jobs_of(numbers, NORMALIZED)]
        pool.submit(jobs)
        bad = pool.collect()
        assert sorted((image.program, image.row) for image in bad) == [(0, 2), (1, 2)]
        assert pool.decode(1, jobs_of([0], NORMALIZED)) == []
    for program, job in zip((PROGRAM, NORMALIZED), jobs, strict=True):
        for row in (0, 1, 3):
            image = STOCK[numbers[row]]
            draw = draw_of(program, whole(image), flip=numbers[row] % 2)
            assert np.array_equal(job.out[row], make_one(program, image, draw))


def test_colors_of_paints_are_those_of_the_own_program():
    programs = [program_of(4, 4, "area", Cutout(4, color)) for color in ((1, 2, 3), (4, 5, 6))]
    paint = [(0, 0, 4, 4, 0)]
    with pool_of(*programs, batch_size=1) as pool:
        jobs = [job_of(program, [STOCK[5]], [draw_of(program, (0, 0, 9, 9), paints=paint)]) for program in programs]
        pool.submit(jobs)
        assert pool.collect() == []
    assert [job.out[0, 2, 2].tolist() for job in jobs] == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty((3, 12, 10, 3), np.uint8), "an output of shape"),
        (np.empty((2, 12, 11, 3), np.uint8), "an output of shape"),
        (np.empty((2, 12, 10, 3), np.float16), "an output of float16 for a program that writes uint8"),
        (np.empty((2, 24, 10, 3), np.uint8)[:, ::2], "not contiguous"),
    ],
)
def test_an_output_that_does_not_fit_is_refused(out, message):
    job = jobs_of([0, 1])
    job.out = out
    with pool_of() as pool:
        with pytest.raises(ValueError, match=message):
            pool.submit([job])
        with pytest.raises(ValueError, match=message):
            pool.decode(0, job)
        assert same(run(pool, [[0, 1]], 1)[0], expected([0, 1])), "the pool goes on"


def test_more_images_than_a_batch_has_or_a_job_too_few_are_refused():
    with pool_of(PROGRAM, NORMALIZED, batch_size=2) as pool:
        with pytest.raises(ValueError, match="2 at most"):
            pool.submit([jobs_of([0, 1, 2]), jobs_of([0], NORMALIZED)])
        with pytest.raises(ValueError, match="zip"):
            pool.submit([jobs_of([0])])


def made_of(*jobs, **options):
    """Make jobs one after another in a pool; returns their bad images."""
    with pool_of(ring=len(jobs), **options) as pool:
        for job in jobs:
            pool.submit([job])
        return [pool.collect() for _ in jobs]


def same_images(image, count):
    return job_of(PROGRAM, [image] * count, [draw_of(PROGRAM, whole(image))] * count)


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (stored_raw(noise(7, 8)), stored_raw(noise(900, 700))),
        (stored_jpeg(jpeg(noise(64, 64), 10)), stored_jpeg(jpeg(noise(64, 64), 100))),
    ],
    ids=["more pixels", "more bytes"],
)
def test_a_worker_gets_more_memory_in_the_middle_of_its_run(small, large):
    jobs = [same_images(small, 400), same_images(large, 20)]
    assert made_of(*jobs, batch_size=400) == [[], []]
    for job, image in zip(jobs, (small, large), strict=True):
        assert (job.out == make_one(PROGRAM, image)).all()


def decode_raw(height, width, kind):
    program = program_of(height, width, kind=kind)
    image = stored_raw(noise(height, width)[..., : 3 - 2 * (kind == "gray")])
    job = job_of(program, [image], [draw_of(program, whole(image))])
    assert WorkerPool([program], 1, num_workers=0, ring=1).decode(0, job) == []
    assert np.array_equal(job.out[0], image.data.reshape(job.out[0].shape))


@pytest.mark.parametrize("kind", ["rgb", "gray"])
@pytest.mark.parametrize(("height", "width"), [(1, 65500), (65500, 1), (20000, 16)])
def test_a_long_narrow_image_takes_little_memory(height, width, kind, memory_of):
    assert memory_of(decode_raw, height, width, kind).peak < 100 << 20


class TestEnd:
    @pytest.fixture
    def endless(self, monkeypatch):
        """Workers that make nothing until the pool is closed."""

        def wait(self, ring):
            while not ring.control[16]:
                time.sleep(0.002)
            return 0, 0

        monkeypatch.setattr(Worker, "run", wait)

    def test_closing_twice_and_from_several_threads_at_once_is_closing(self):
        before = workers()
        pool = WorkerPool([PROGRAM], 8, 3, 4)
        for numbers in (range(8), range(8)):
            pool.submit([jobs_of(numbers)])
        run_at_once(lambda _: pool.close(), range(4))
        pool.close()
        assert workers() <= before

    def test_a_waiting_thread_learns_that_another_thread_closed_the_pool(self, endless):
        pool = WorkerPool([PROGRAM], 8, 2, 4)
        pool.submit([jobs_of(range(8))])
        errors = []

        def wait():
            try:
                pool.collect()
            except LoaderClosedError as error:
                errors.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.05)
        assert not errors
        pool.close()
        waiting.join()
        assert len(errors) == 1


class TestFailure:
    def test_an_error_in_a_worker_reaches_collect_and_submit(self, monkeypatch):
        def fail(self, ring):
            raise ZeroDivisionError("planted")

        monkeypatch.setattr(Worker, "run", fail)
        with pool_of() as pool:
            pool.submit([jobs_of([0])])
            for _ in range(2):
                with pytest.raises(ZeroDivisionError, match="planted"):
                    pool.collect()
            with pytest.raises(ZeroDivisionError, match="planted"):
                pool.submit([jobs_of([0])])


class TestMany:
    def test_several_pools_work_at_once_and_do_not_mix(self):
        failures = []

        def use(seed):
            try:
                batches = [np.random.default_rng(seed + i).integers(0, 200, 6).tolist() for i in range(12)]
                with pool_of(num_workers=2, ring=3) as pool:
                    for numbers, result in zip(batches, run(pool, batches, 3), strict=True):
                        assert same(result, expected(numbers))
            except (AssertionError, RuntimeError) as error:
                failures.append(error)

        run_at_once(use, [100 * i for i in range(4)])
        assert failures == []

    def test_more_threads_than_cores_and_images_than_places_lose_nothing(self):
        batches = [range(start, start + 3) for start in range(0, 360, 3)]
        with pool_of(num_workers=24, ring=2, batch_size=3) as pool:
            results = run(pool, batches, 2)
        for numbers, result in zip(batches, results, strict=True):
            assert same(result, expected(numbers))

    def test_idle_workers_use_no_processor_time(self):
        with pool_of(num_workers=8) as pool:
            run(pool, [range(8)], 1)
            clocks = [time.pthread_getcpuclockid(worker.ident) for worker in pool._threads]
            time.sleep(0.1)
            before = [time.clock_gettime(clock) for clock in clocks]
            time.sleep(0.6)
            used = sum(time.clock_gettime(clock) for clock in clocks) - sum(before)
        assert used < 0.15, "eight workers that look for work all the time would use 0.6 s or more"
