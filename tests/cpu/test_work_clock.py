from __future__ import annotations

from time import sleep

from gpubeton.cpu import worker_pool
from gpubeton.cpu.worker_pool import WorkClock, WorkerPool
from gpubeton.plan.image_executor import Usage
from tests.cpu.making import draw_of, job_of, program_of, stored_raw, whole
from tests.cpu.pictures import noise

PROGRAM = program_of(12, 10)


class Clock:
    def __init__(self):
        self.wall = self.cpu = 0.0

    def perf_counter(self):
        return self.wall

    def thread_time(self):
        return self.cpu


def test_only_the_time_between_begin_and_pause_counts(monkeypatch):
    now = Clock()
    monkeypatch.setattr(worker_pool, "time", now)
    clock = WorkClock()
    for _ in range(2):
        now.wall += 10  # waits
        clock.begin()
        now.wall, now.cpu = now.wall + 3, now.cpu + 2
        assert clock.usage.busy_seconds % 3 == 0
        clock.pause()
        clock.pause()
    assert clock.usage == Usage(6, 4)


def test_work_under_way_counts_already(monkeypatch):
    now = Clock()
    monkeypatch.setattr(worker_pool, "time", now)
    clock = WorkClock()
    clock.begin()
    now.wall += 5
    assert clock.usage == Usage(5, 0)


def test_a_pool_knows_how_busy_it_was_and_stops_counting_when_it_is_closed():
    images = [stored_raw(noise(19, 31))] * 6
    pool = WorkerPool([PROGRAM], 8, 2, 1)
    try:
        sleep(0.05)
        assert pool.usage.busy_seconds == 0
        pool.submit([job_of(PROGRAM, images, [draw_of(PROGRAM, whole(image)) for image in images])])
        pool.collect()
    finally:
        pool.close()
    usage = pool.usage
    assert usage.busy_seconds > 0
    assert usage.cpu_seconds > 0
    assert pool.usage == usage
