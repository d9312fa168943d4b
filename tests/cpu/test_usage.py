from __future__ import annotations

import time

from gpubeton.cpu.worker_pool import WorkerPool
from tests.cpu.making import draw_of, job_of, program_of, stored_raw, whole
from tests.cpu.pictures import noise

PROGRAM = program_of(12, 10)


def test_a_crew_knows_how_busy_it_was_and_stops_counting_when_it_is_closed():
    images = [stored_raw(noise(19, 31))] * 6
    crew = WorkerPool([PROGRAM], 8, 2, 1)
    try:
        time.sleep(0.05)
        assert crew.usage.busy_seconds == 0
        crew.submit([job_of(PROGRAM, images, [draw_of(PROGRAM, whole(image)) for image in images])])
        crew.collect()
    finally:
        crew.close()
    usage = crew.usage
    assert usage.busy_seconds > 0
    assert usage.cpu_seconds > 0
    assert crew.usage == usage
