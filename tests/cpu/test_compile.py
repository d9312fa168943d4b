from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpubeton.cpu import finish, gather, ring
from gpubeton.transforms import Cutout, NormalizeImage
from tests.cpu.making import draw_of, make, program_of, stored_jpeg, stored_raw, whole
from tests.cpu.pictures import jpeg, photo

ROOT = Path(__file__).resolve().parent.parent.parent

#: What Python calls, and so what is kept on disk.
KEPT = {
    name: getattr(module, name)
    for module, names in (
        (ring, ("work", "complete", "publish", "shut", "has_tickets")),
        (finish, ("finish_rows",)),
        (gather, ("gather_rows",)),
    )
    for name in names
}

FIRST_BATCH = """
from tests.cpu.test_compile import KEPT, use_everything
use_everything()
for name, function in KEPT.items():
    print(name, sum(function.stats.cache_hits.values()), sum(function.stats.cache_misses.values()))
"""


def use_everything():
    """Make a batch of each kind and type, in threads and alone; gather a few bytes."""
    from gpubeton.cpu.crew import Crew
    from tests.cpu.making import job_of

    normalize = NormalizeImage([120, 110, 100], [60, 50, 40], "float16")
    programs = [program_of(8, 9), program_of(5, 16, "antialias", Cutout(3), Cutout(2, (1, 2, 3)), normalize)]
    images = [stored_jpeg(jpeg(photo(20, 30))), stored_raw(photo(9, 9)), stored_jpeg(jpeg(photo(9, 9))[:-9], 9, 9)]
    jobs = [job_of(each, images, [draw_of(each, whole(image)) for image in images]) for each in programs]
    crew = Crew(programs, 4, 1, 1)
    crew.submit(jobs)
    crew.collect()
    crew.close()
    for program in programs:
        make(program, images, [draw_of(program, whole(image)) for image in images])
    finish.Finish(normalize.table(), normalize.mean, normalize.std)
    content = np.arange(9, dtype=np.uint8)
    out = np.zeros((1, 12), np.uint8)
    gather.gather_rows(np.array([content.ctypes.data], np.uint64), np.array([9], np.uint64), out)


@pytest.mark.parametrize("name", KEPT)
def test_one_compilation_serves_all_programs(name):
    """Another type of argument would compile everything once more, in the first batch that has it."""
    use_everything()
    assert len(KEPT[name].signatures) == 1


def test_a_second_process_compiles_nothing():
    use_everything()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", FIRST_BATCH]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts = {name: (int(hits), int(misses)) for name, hits, misses in map(str.split, done.stdout.splitlines())}
    assert counts == dict.fromkeys(KEPT, (1, 0))


def test_a_function_keeps_its_docstring_and_its_python_form():
    assert "Make images until" in ring.work.__doc__
    assert callable(ring.work.py_func)
