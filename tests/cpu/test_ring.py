from __future__ import annotations

import numpy as np

from gpubeton._cpu.epilogue import outputs_of
from gpubeton._cpu.image_tasks import TARGET
from gpubeton._cpu.jpeg.codes import OK, WRONG_SIZE
from gpubeton._cpu.ring import (
    BATCH_DONE,
    IDLE,
    NEXT,
    OUTGROWN,
    PUBLISHED,
    REFUSED,
    allocate_ring,
    complete,
    publish,
    wake,
    work,
)
from gpubeton._cpu.worker_pool import WorkerPool
from tests.cpu.making import draw_of, job_of, make_one, program_of, ring_of, scratch_for, stored_jpeg, stored_raw, whole
from tests.cpu.pictures import jpeg, noise, pillow_jpeg

PROGRAM = program_of(6, 5)
RAW = stored_raw(noise(7, 8))
WRONG = stored_jpeg(jpeg(noise(9, 9)), 10, 9)
PROGRESSIVE = stored_jpeg(pillow_jpeg(noise(9, 9), progressive=True))


def started(images):
    job = job_of(PROGRAM, images, [draw_of(PROGRAM, (0, 0, 5, 5))] * len(images))
    return ring_of(job), outputs_of([PROGRAM]), scratch_for(PROGRAM, images), job


def test_a_worker_runs_until_python_has_to_act():
    ring, outputs, scratch, _ = started([RAW, PROGRESSIVE, WRONG, RAW])
    assert ring.control[NEXT] < ring.control[PUBLISHED]
    assert work(ring, outputs, scratch, 0) == (REFUSED, 1)
    assert work(ring, outputs, scratch, 0) == (IDLE, 4)
    assert ring.control[NEXT] == ring.control[PUBLISHED]
    assert ring.codes[0].tolist() == [OK, 1, WRONG_SIZE, OK]
    assert ring.remaining.tolist() == [1]
    assert complete(ring, 1, OK)
    assert ring.codes[0].tolist() == [OK, OK, WRONG_SIZE, OK]


def test_the_worker_that_makes_the_last_image_completes_the_batch():
    ring, outputs, scratch, _ = started([RAW, RAW])
    assert work(ring, outputs, scratch, 0) == (BATCH_DONE, 1)
    assert work(ring, outputs, scratch, 0) == (IDLE, 2)


def test_a_refused_image_that_is_not_the_last_completes_no_batch():
    ring, outputs, scratch, _ = started([PROGRESSIVE, RAW, PROGRESSIVE])
    assert work(ring, outputs, scratch, 0) == (REFUSED, 0)
    assert not complete(ring, 0, OK)
    assert work(ring, outputs, scratch, 0) == (REFUSED, 2)
    assert complete(ring, 2, OK)


def test_an_image_larger_than_the_workers_memory_is_not_taken():
    """It may come in a batch that is published while the worker runs."""
    images = [RAW, stored_raw(noise(70, 8)), RAW]
    ring, outputs, _, job = started(images)
    small = scratch_for(PROGRAM, [RAW])
    assert work(ring, outputs, small, 0) == (OUTGROWN, 1)
    assert ring.control[NEXT] == 1
    assert work(ring, outputs, scratch_for(PROGRAM, images), 0) == (BATCH_DONE, 2)
    for image, out in zip(images, job.out, strict=True):
        assert np.array_equal(out, make_one(PROGRAM, image, draw_of(PROGRAM, (0, 0, 5, 5))))


def test_a_jpeg_of_more_bytes_than_the_workers_memory_is_not_taken():
    small, large = stored_jpeg(jpeg(noise(64, 64), 10)), stored_jpeg(jpeg(noise(64, 64), 100))
    ring, outputs, _, _ = started([small, large])
    assert work(ring, outputs, scratch_for(PROGRAM, [small]), 0) == (OUTGROWN, 1)


def test_a_worker_comes_back_for_memory_in_the_middle_of_its_run():
    large = stored_raw(noise(900, 700))
    pool = WorkerPool([PROGRAM], 400, num_workers=2, ring=2)
    try:
        jobs = [
            job_of(PROGRAM, [image] * count, [draw_of(PROGRAM, whole(image))] * count)
            for image, count in ((RAW, 400), (large, 20))
        ]
        for job in jobs:
            pool.submit([job])
        assert [pool.collect() for _ in jobs] == [[], []]
        assert (jobs[1].out == make_one(PROGRAM, large)).all()
    finally:
        pool.close()


def test_empty_places_of_a_batch_are_passed_over():
    ring, outputs, scratch, job = started([RAW, RAW, RAW])
    ring.tasks[0, 1:, TARGET] = 0
    assert work(ring, outputs, scratch, 0) == (BATCH_DONE, 2)
    assert (job.out[1:] == 0xA5).all()
    assert not (job.out[0] == 0xA5).all()


def test_batches_take_the_slots_in_turn():
    ring, outputs, scratch, _ = started([RAW])
    wide = allocate_ring(3, 1, ring.draws.shape[2])
    for batch in range(8):
        slot = batch % 3
        wide.tasks[slot], wide.draws[slot] = ring.tasks[0], ring.draws[0]
        wide.codes[slot] = -1
        publish(wide, batch)
        assert wide.control[PUBLISHED] == batch + 1
        assert work(wide, outputs, scratch, 0) == (BATCH_DONE, batch)
        assert wide.codes[slot] == OK
        assert wide.remaining[slot] == 0


def test_no_image_is_taken_after_the_end():
    ring, outputs, scratch, job = started([RAW, RAW])
    wake(ring, True)
    assert work(ring, outputs, scratch, 0)[0] == IDLE
    assert (job.out == 0xA5).all()
