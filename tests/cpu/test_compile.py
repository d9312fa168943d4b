from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from numba.core.codegen import CPUCodeLibrary
from numba.core.errors import TypingError
from numba.core.types.functions import BaseFunction

from gpubeton._compile.compile import compiled, device_function
from gpubeton._cpu import ring, stored_bytes
from gpubeton._cpu.worker_pool import WorkerPool
from gpubeton.transforms import Cutout, NormalizeImage
from tests.cpu.making import draw_of, job_of, make, program_of, stored_jpeg, stored_raw, whole
from tests.cpu.pictures import jpeg, photo

ROOT = Path(__file__).resolve().parent.parent.parent

#: The functions that Python calls: their machine code is kept on disk.
KEPT = {
    name: getattr(module, name)
    for module, names in (
        (ring, ("work", "complete", "publish", "write_tasks")),
        (stored_bytes, ("gather_rows",)),
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
    normalize = NormalizeImage([120, 110, 100], [60, 50, 40], "float16")
    programs = [program_of(8, 9), program_of(5, 16, "antialias", Cutout(3), Cutout(2, (1, 2, 3)), normalize)]
    images = [stored_jpeg(jpeg(photo(20, 30))), stored_raw(photo(9, 9)), stored_jpeg(jpeg(photo(9, 9))[:-9], 9, 9)]
    jobs = [job_of(program, images, [draw_of(program, whole(image)) for image in images]) for program in programs]
    for job in jobs:
        job.address.setflags(write=False)
        job.draws = job.draws.repeat(2, axis=0)[::2]
    pool = WorkerPool(programs, 4, 1, 1)
    pool.submit(jobs)
    pool.collect()
    pool.close()
    for program in programs:
        make(program, images, [draw_of(program, whole(image)) for image in images])
    content = np.arange(9, dtype=np.uint8)
    out = np.zeros((1, 12), np.uint8)
    stored_bytes.gather_rows(np.array([content.ctypes.data], np.uint64), np.array([9], np.uint64), out)


def test_one_compilation_serves_all_programs():
    """Another type of argument would compile everything once more, in the first batch that has it."""
    program = "from tests.cpu.test_compile import KEPT, use_everything; use_everything()\n"
    program += "print([name for name, function in KEPT.items() if len(function.signatures) != 1])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_a_second_process_compiles_nothing():
    use_everything()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", FIRST_BATCH]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts = {name: (int(hits), int(misses)) for name, hits, misses in map(str.split, done.stdout.splitlines())}
    assert counts == dict.fromkeys(KEPT, (1, 0))


@device_function
def increased(x, pair):
    return x + pair[0] * pair[1]


@device_function
def increased_twice(x, y):
    return increased(x, (1, y)) + increased(2, (y, y))


def test_a_stage_is_compiled_once_for_constants_and_variables():
    assert njit(lambda x, y: increased_twice(x, y) + increased_twice(x, 3))(10, 20) == 10 + 20 + 402 + 10 + 3 + 11
    assert len(increased.signatures) == len(increased_twice.signatures) == 1


def test_a_called_function_is_optimized_only_with_its_caller(monkeypatch):
    """Numba's own way optimizes everything again at each level of calls."""
    optimized, optimize = [], CPUCodeLibrary._optimize_final_module
    monkeypatch.setattr(
        CPUCodeLibrary, "_optimize_final_module", lambda self: (optimized.append(self.name), optimize(self))
    )
    assert njit(lambda x: increased_twice(x, 1.5))(10) == 10 + 1.5 + 2 + 1.5**2
    assert len(optimized) == 1


def test_compiling_leaves_the_garbage_collector_as_it_was(tmp_path):
    gc.unfreeze()  # those of all tests
    try:
        assert compiled(lambda x: increased(x, (2, 3)), folders=[tmp_path])(1) == 7
        assert gc.get_freeze_count() == 0
    finally:
        gc.freeze()
    count = gc.get_freeze_count()
    assert compiled(lambda x: increased(x, (2, 4)), folders=[tmp_path])(1) == 9
    assert gc.get_freeze_count() > count / 2


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (lambda a, b, c: (a + b, b + 3, a + a, 7 // c, b // c, a < c, b < 4), ["int32", "uint8", "uint64", "float32"]),
        (lambda a, b, c: (a << b, b << 3, 7 & a, 7 & c, -b, ~c, -a, ~a), ["int32", "uint8", "uint64"]),
    ],
    ids=["numbers", "bits"],
)
def test_signatures_that_are_remembered_are_the_ones_of_numba(function, types, tmp_path):
    ours, theirs = compiled(function, folders=[tmp_path]), njit(error_model="numpy")(function)
    for first, second in itertools.product(types, repeat=2):
        numbers = np.dtype(first).type(3), np.dtype(second).type(5), 2
        assert ours(*numbers) == theirs(*numbers)
        assert ours.nopython_signatures[-1] == theirs.nopython_signatures[-1]


def test_numba_resolves_calls_by_itself_after_a_function_was_compiled_or_refused(tmp_path):
    resolve = BaseFunction.get_call_type
    assert compiled(lambda x: x + 12, folders=[tmp_path])(1) == 13
    assert BaseFunction.get_call_type is resolve
    with pytest.raises(TypingError):
        compiled(lambda x: x + "12", folders=[tmp_path])(1)
    assert BaseFunction.get_call_type is resolve


def test_without_a_compiler_the_modules_can_be_imported():
    """As debugging a transform has it; nothing of the loader runs then."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", "import gpubeton.loader"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
