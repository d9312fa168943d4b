from __future__ import annotations

import time
from contextlib import closing

from gpubeton._cpu.worker_pool import WorkerPool
from tests.cpu.making import draw_of, job_of, program_of, stored_raw, whole
from tests.cpu.pictures import noise

PROGRAM = program_of(12, 10)


def busy_seconds_while_making(pool, image):
    """All times that the pool states until one image is made."""
    start = pool.usage.busy_seconds
    seen = [start, start]
    pool.submit([job_of(PROGRAM, [image], [draw_of(PROGRAM, whole(image))])])
    while seen[-1] == start or seen[-1] != seen[-2]:
        seen.append(pool.usage.busy_seconds)
    assert pool.collect() == []
    return set(seen)


def test_a_pool_knows_how_busy_it_is_and_stops_counting_when_it_is_closed():
    slow = stored_raw(noise(3000, 3000))
    with closing(WorkerPool([PROGRAM], 8, num_workers=1, ring=1)) as pool:
        time.sleep(0.05)
        assert pool.usage.busy_seconds == 0
        # Once is enough: this thread may not run while the image is made.
        assert any(len(busy_seconds_while_making(pool, slow)) > 3 for _ in range(20)), "images in progress count, too"
    usage = pool.usage
    assert usage.busy_seconds > 0
    assert usage.cpu_seconds > 0
    assert pool.usage == usage


def test_a_worker_that_waits_between_batches_is_not_busy():
    images = [stored_raw(noise(19, 31))] * 6
    draws = [draw_of(PROGRAM, whole(image)) for image in images]
    with closing(WorkerPool([PROGRAM], 8, num_workers=1, ring=1)) as pool:
        for _ in range(3):
            pool.submit([job_of(PROGRAM, images, draws)])
            pool.collect()
            while pool.usage != (usage := pool.usage):
                time.sleep(0.001)
            time.sleep(0.05)
            assert pool.usage == usage
