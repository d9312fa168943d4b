from __future__ import annotations

from gpubeton.cpu import work_clock
from gpubeton.cpu.work_clock import WorkClock
from gpubeton.plan.image_executor import Usage


class Clock:
    def __init__(self):
        self.wall = self.cpu = 0.0

    def perf_counter(self):
        return self.wall

    def thread_time(self):
        return self.cpu


def test_only_the_time_between_begin_and_pause_counts(monkeypatch):
    now = Clock()
    monkeypatch.setattr(work_clock, "time", now)
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
    monkeypatch.setattr(work_clock, "time", now)
    clock = WorkClock()
    clock.begin()
    now.wall += 5
    assert clock.usage == Usage(5, 0)
