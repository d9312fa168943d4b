from __future__ import annotations

import gc
import threading
import time
import weakref
from contextlib import contextmanager

import numpy as np
import pytest

from gpubeton.cpu.worker_pool import Worker, WorkerPool
from gpubeton.errors import LoaderClosedError
from gpubeton.transforms import Cutout, NormalizeImage
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


@contextmanager
def crew_of(*programs, batch_size=8, num_workers=2, ring=2):
    crew = WorkerPool(programs or [PROGRAM], batch_size, num_workers, ring)
    try:
        yield crew
    finally:
        crew.close()


def run(crew, batches, depth):
    """Submit and collect batches of numbers, up to `depth` at once; returns outputs and bad images."""
    waiting, results = [], []
    for numbers in batches:
        if len(waiting) == depth:
            results.append((waiting.pop(0).out, crew.collect()))
        waiting.append(jobs_of(numbers))
        crew.submit([waiting[-1]])
    return results + [(job.out, crew.collect()) for job in waiting]


def expected(numbers):
    out, bad = make(PROGRAM, [STOCK[n % len(STOCK)] for n in numbers], jobs_of(numbers).draws)
    return out, bad


def same(result, wanted):
    good = np.ones(len(wanted[0]), bool)
    good[[image.row for image in wanted[1]]] = False
    return np.array_equal(result[0][good], wanted[0][good]) and sorted_bad(result) == sorted_bad(wanted)


def sorted_bad(result):
    return sorted(result[1], key=lambda image: (image.program, image.row))


def test_batches_come_out_in_order_with_their_own_images():
    batches = [range(start, start + 8) for start in range(0, 200, 8)]
    with crew_of(ring=3, num_workers=3) as crew:
        for numbers, result in zip(batches, run(crew, batches, 3), strict=True):
            assert same(result, expected(numbers))


@pytest.mark.parametrize("num_workers", [1, 2, 7])
@pytest.mark.parametrize("batch_size", [1, 5, 40])
def test_images_depend_neither_on_the_workers_nor_on_the_batch(num_workers, batch_size):
    numbers = list(range(40))
    alone = [make(PROGRAM, [STOCK[n % len(STOCK)]], jobs_of([n]).draws) for n in numbers]
    with crew_of(batch_size=batch_size, num_workers=num_workers, ring=4) as crew:
        batches = [numbers[i : i + batch_size] for i in range(0, 40, batch_size)]
        results = run(crew, batches, 4)
    for n, (out, bad) in enumerate(alone):
        batch, row = divmod(n, batch_size)
        reasons = {image.row: image.reason for image in results[batch][1]}
        assert reasons.get(row) == (bad[0].reason if bad else None)
        if not bad:
            assert np.array_equal(results[batch][0][row], out[0])


def test_a_bad_image_is_named_and_its_neighbours_are_whole():
    with crew_of(batch_size=10) as crew:
        job = jobs_of(range(10))
        crew.submit([job])
        bad = crew.collect()
    assert sorted(image.row for image in bad) == [7, 8]
    reasons = {image.row: image.reason for image in bad}
    assert reasons[8] == "it is 18 x 18 pixels, but the file's metadata have 18 x 19 pixels"
    assert "it ends before its last marker; libjpeg-turbo: " in reasons[7]
    assert all(image.program == 0 for image in bad)


def test_the_output_of_a_bad_image_holds_nothing_of_earlier_batches():
    """A slot of the ring is used again and again; what was there before must not come back."""
    with crew_of(batch_size=1, ring=1) as crew:
        for _ in range(3):
            assert run(crew, [[0]], 1)[0][1] == []
            out, bad = run(crew, [[8]], 1)[0]
            assert [image.row for image in bad] == [0]
            assert (out == 0xA5).all()
            assert run(crew, [[5]], 1)[0][1] == []


def test_partial_and_empty_batches_are_batches():
    with crew_of(ring=5) as crew:
        results = run(crew, [range(8), [], range(3), [0], []], 5)
    assert [len(out) for out, _ in results] == [8, 0, 3, 1, 0]
    assert same(results[2], expected(range(3)))
    assert results[1][1] == []


def test_rows_behind_a_partial_batch_are_not_those_of_the_batch_before():
    with crew_of(ring=1) as crew:
        first, second = run(crew, [[7] * 8, [0, 7]], 1)
    assert len(first[1]) == 8
    assert [image.row for image in second[1]] == [1]


def test_two_programs_have_each_its_size_and_type():
    numbers = [0, 5, 7, 3]
    with crew_of(PROGRAM, NORMALIZED, batch_size=4) as crew:
        jobs = [jobs_of(numbers), jobs_of(numbers, NORMALIZED)]
        crew.submit(jobs)
        bad = crew.collect()
        assert sorted((image.program, image.row) for image in bad) == [(0, 2), (1, 2)]
        assert crew.decode(1, jobs_of([0], NORMALIZED)) == []
    for program, job in zip((PROGRAM, NORMALIZED), jobs, strict=True):
        for row in (0, 1, 3):
            image = STOCK[numbers[row]]
            draw = draw_of(program, whole(image), flip=numbers[row] % 2)
            assert np.array_equal(job.out[row], make_one(program, image, draw))


def test_colours_of_paints_are_those_of_the_own_program():
    programs = [program_of(4, 4, "area", Cutout(4, colour)) for colour in ((1, 2, 3), (4, 5, 6))]
    paint = [(0, 0, 4, 4, 0)]
    with crew_of(*programs, batch_size=1) as crew:
        jobs = [job_of(each, [STOCK[5]], [draw_of(each, (0, 0, 9, 9), paints=paint)]) for each in programs]
        crew.submit(jobs)
        assert crew.collect() == []
    assert [job.out[0, 2, 2].tolist() for job in jobs] == [[1, 2, 3], [4, 5, 6]]


def test_decode_makes_any_number_of_images_and_counts_their_rows():
    numbers = [*range(7), 7, 0, 8]
    with crew_of(batch_size=2) as crew:
        job = jobs_of(numbers)
        bad = crew.decode(0, job)
        assert [(image.program, image.row) for image in bad] == [(0, 7), (0, 9)]
        assert same((job.out, bad), expected(numbers))
        assert crew.decode(0, jobs_of([])) == []


def test_a_full_ring_refuses_another_batch_and_takes_it_after_the_next_collect():
    with crew_of(ring=2) as crew:
        jobs = [jobs_of(range(i)) for i in (1, 2, 3)]
        crew.submit([jobs[0]])
        crew.submit([jobs[1]])
        with pytest.raises(RuntimeError, match="all 2 batches of the ring are in flight"):
            crew.submit([jobs[2]])
        crew.collect()
        crew.submit([jobs[2]])
        assert [crew.collect() for _ in range(2)] == [[], []]
        assert same((jobs[2].out, []), expected(range(3)))


def test_collecting_what_was_never_submitted_is_an_error_and_no_wait():
    with crew_of() as crew, pytest.raises(RuntimeError, match="no batch is in flight"):
        crew.collect()


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
    with crew_of() as crew:
        with pytest.raises(ValueError, match=message):
            crew.submit([job])
        with pytest.raises(ValueError, match=message):
            crew.decode(0, job)
        assert same(run(crew, [[0, 1]], 1)[0], expected([0, 1])), "the crew goes on"


def test_more_images_than_a_batch_has_or_a_job_too_few_are_refused():
    with crew_of(PROGRAM, NORMALIZED, batch_size=2) as crew:
        with pytest.raises(ValueError, match="2 at most"):
            crew.submit([jobs_of([0, 1, 2]), jobs_of([0], NORMALIZED)])
        with pytest.raises(ValueError, match="zip"):
            crew.submit([jobs_of([0])])


def test_memory_is_held_until_the_batch_is_collected():
    class Owner:
        pass

    owner = Owner()
    gone = weakref.ref(owner)
    with crew_of() as crew:
        job = jobs_of([0])
        job.keep = owner
        crew.submit([job])
        del job, owner
        gc.collect()
        assert gone() is not None
        crew.collect()
        gc.collect()
        assert gone() is None


class TestEnd:
    @pytest.fixture
    def endless(self, monkeypatch):
        """Workers that make nothing until the crew is closed."""

        def wait(self, ring, side, size):
            while not ring.control[16]:
                time.sleep(0.002)
            return 0, 0

        monkeypatch.setattr(Worker, "run", wait)

    def test_closing_twice_and_from_several_threads_at_once_is_closing(self):
        crew = WorkerPool([PROGRAM], 8, 3, 4)
        for numbers in (range(8), range(8)):
            crew.submit([jobs_of(numbers)])
        closers = [threading.Thread(target=crew.close) for _ in range(4)]
        for thread in closers:
            thread.start()
        for thread in closers:
            thread.join(30)
        crew.close()
        assert not any(thread.is_alive() for thread in (*closers, *crew._threads))

    def test_a_closed_crew_takes_nothing_and_gives_nothing(self):
        crew = WorkerPool([PROGRAM], 8, 2, 4)
        crew.submit([jobs_of(range(8))])
        crew.close()
        with pytest.raises(LoaderClosedError):
            crew.submit([jobs_of([0])])
        with pytest.raises(LoaderClosedError):
            crew.collect()

    def test_whoever_waits_learns_that_another_thread_closed(self, endless):
        crew = WorkerPool([PROGRAM], 8, 2, 4)
        crew.submit([jobs_of(range(8))])
        errors = []

        def wait():
            try:
                crew.collect()
            except LoaderClosedError as error:
                errors.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.05)
        assert not errors
        crew.close()
        waiting.join(30)
        assert len(errors) == 1

    def test_closing_while_images_are_made_leaves_memory_alone_afterwards(self):
        for _ in range(20):
            crew = WorkerPool([PROGRAM], 40, 3, 2)
            jobs = [jobs_of(range(40)), jobs_of(range(40))]
            for job in jobs:
                crew.submit([job])
            crew.close()
            before = [job.out.copy() for job in jobs]
            assert not any(thread.is_alive() for thread in crew._threads)
            assert all(np.array_equal(job.out, copy) for job, copy in zip(jobs, before, strict=True))

    def test_a_closed_crew_leaves_nothing_behind(self):
        before = threading.active_count()
        crew = WorkerPool([PROGRAM], 8, 4, 2)
        run(crew, [range(8)] * 3, 2)
        assert threading.active_count() == before + 4
        crew.close()
        gone = weakref.ref(crew)
        del crew
        gc.collect()
        assert gone() is None
        assert threading.active_count() == before


class TestFailure:
    def test_what_ends_a_worker_reaches_whoever_collects(self, monkeypatch):
        def fail(self, ring, side, size):
            raise ZeroDivisionError("planted")

        monkeypatch.setattr(Worker, "run", fail)
        with crew_of() as crew:
            crew.submit([jobs_of([0])])
            for _ in range(2):
                with pytest.raises(ZeroDivisionError, match="planted"):
                    crew.collect()
            with pytest.raises(ZeroDivisionError, match="planted"):
                crew.submit([jobs_of([0])])

    def test_an_error_outside_of_the_decoding_libraries_does_too(self, monkeypatch):
        def fail(ring, ticket):
            raise ZeroDivisionError("planted")

        with crew_of() as crew:
            monkeypatch.setattr("gpubeton.cpu.worker_pool.views_of", fail)
            crew.submit([jobs_of([0, 6, 1])])
            with pytest.raises(ZeroDivisionError, match="planted"):
                crew.collect()

    def test_batches_finished_before_the_failure_can_be_collected(self, monkeypatch):
        with crew_of(num_workers=1) as crew:
            job = jobs_of([0, 1])
            crew.submit([job])
            while not crew._batches[0].is_done:
                time.sleep(0.001)

            def fail(self, ring, side, size):
                raise ZeroDivisionError("planted")

            monkeypatch.setattr(Worker, "run", fail)
            crew.submit([jobs_of([0])])
            assert crew.collect() == []
            with pytest.raises(ZeroDivisionError):
                crew.collect()


class TestMany:
    def test_several_crews_work_at_once_and_do_not_mix(self):
        failures = []

        def use(seed):
            try:
                batches = [np.random.default_rng(seed + i).integers(0, 200, 6).tolist() for i in range(12)]
                with crew_of(num_workers=2, ring=3) as crew:
                    for numbers, result in zip(batches, run(crew, batches, 3), strict=True):
                        assert same(result, expected(numbers))
            except (AssertionError, RuntimeError) as error:
                failures.append(error)

        threads = [threading.Thread(target=use, args=(100 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert failures == []

    def test_more_threads_than_cores_and_images_than_places_lose_nothing(self):
        batches = [range(start, start + 3) for start in range(0, 360, 3)]
        with crew_of(num_workers=24, ring=2, batch_size=3) as crew:
            results = run(crew, batches, 2)
        for numbers, result in zip(batches, results, strict=True):
            assert same(result, expected(numbers))

    def test_idle_workers_use_no_processor_time(self):
        with crew_of(num_workers=8) as crew:
            run(crew, [range(8)], 1)
            time.sleep(0.1)
            before = time.process_time()
            time.sleep(0.6)
            used = time.process_time() - before
        assert used < 0.15, "eight workers that look for work all the time would use 0.6 s or more"
