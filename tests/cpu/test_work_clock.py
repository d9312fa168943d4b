from __future__ import annotations

import time

import numpy as np

from gpubeton._cpu.ring import BUSY, CPU
from gpubeton._cpu.worker_pool import WorkerPool, usage_of
from tests.cpu.making import draw_of, job_of, program_of, stored_raw, whole
from tests.cpu.pictures import noise

PROGRAM = program_of(12, 10)


def test_the_work_of_all_workers_includes_images_in_progress():
    clocks = np.zeros((3, 8), np.int64)
    clocks[0, [BUSY, CPU]] = 6 * 10**9, 4 * 10**9
    clocks[1, [BUSY, CPU]] = 2 * 10**9 - time.monotonic_ns(), 10**9
    usage = usage_of(clocks)
    assert 8 <= usage.busy_seconds < 60
    assert usage.cpu_seconds == 5


def test_a_pool_knows_how_busy_it_was_and_stops_counting_when_it_is_closed():
    images = [stored_raw(noise(19, 31))] * 6
    pool = WorkerPool([PROGRAM], 8, 2, 1)
    try:
        time.sleep(0.05)
        assert pool.usage.busy_seconds == 0
        pool.submit([job_of(PROGRAM, images, [draw_of(PROGRAM, whole(image)) for image in images])])
        pool.collect()
    finally:
        pool.close()
    usage = pool.usage
    assert usage.busy_seconds > 0
    assert usage.cpu_seconds > 0
    assert pool.usage == usage


def test_a_worker_that_waits_between_batches_is_not_busy():
    images = [stored_raw(noise(19, 31))] * 6
    pool = WorkerPool([PROGRAM], 8, 1, 1)
    try:
        for _ in range(3):
            pool.submit([job_of(PROGRAM, images, [draw_of(PROGRAM, whole(image)) for image in images])])
            pool.collect()
            while pool._ring.clocks[0, BUSY] < 0:
                time.sleep(0.001)
            usage = pool.usage
            time.sleep(0.05)
            assert pool.usage == usage
    finally:
        pool.close()
