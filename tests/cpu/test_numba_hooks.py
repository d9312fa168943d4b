"""Numba's private parts save time: without them, the same images come out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import pytest

pytestmark = pytest.mark.campaign

ROOT = Path(__file__).resolve().parent.parent.parent

IMAGES = """
import hashlib
import numpy as np
from gpubeton._batch.random_crops import compiled_rule, draw_crops
from gpubeton._compile import numba_hooks
from gpubeton._compile.kept import KeptCode
from gpubeton._cpu.worker_pool import WorkerPool
from gpubeton._plan.philox import uniform
from gpubeton.transforms import Cutout, NormalizeImage
from tests.cpu.making import draw_of, job_of, program_of, stored_jpeg, stored_raw, whole
from tests.cpu.pictures import jpeg, photo

program = program_of(8, 9, "area", Cutout(3), NormalizeImage([120, 110, 100], [60, 50, 40], "float16"))
images = [stored_jpeg(jpeg(photo(20, 30))), stored_raw(photo(9, 9))]
job = job_of(program, images, [draw_of(program, whole(image)) for image in images])
pool = WorkerPool([program], 2, 1, 1)
pool.submit([job])
assert pool.collect() == []
pool.close()

def numbers(count, rows=slice(None)):
    return uniform(1, 2, np.arange(50, dtype=np.uint64), 3, count)[rows]

crops = draw_crops(np.full(50, 30), np.full(50, 40), (0.1, 1), (0.5, 2), numbers)
print(hashlib.sha256(job.out.tobytes() + crops.tobytes()).hexdigest())
print(isinstance(numba_hooks.cache_of(compiled_rule()), KeptCode))
"""


def test_without_the_hooks_the_same_images_come_out_and_nothing_is_kept():
    hashes = {}
    for switch in "10":
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "GPUBETON_NUMBA_HOOKS": switch}
        if switch == "0":
            environment["NUMBA_OPT"] = "0"  # all is compiled, in two thirds of the time
        done = subprocess.run(
            [sys.executable, "-c", IMAGES], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        hashes[switch], is_kept = done.stdout.split()
        assert is_kept == str(switch == "1")
    assert hashes["0"] == hashes["1"]


def test_private_parts_of_numba_are_named_in_one_module():
    private = re.compile(r"\._(?:cache|nrt|reduce|rebuild)\b|_BaseFunction|JITCodeLibrary|pipeline_class")
    named = [path for path in (ROOT / "gpubeton").rglob("*.py") if private.search(path.read_text())]
    with_numba = [path for path in named if "numba" in path.read_text()]
    assert with_numba == [ROOT / "gpubeton/_compile/numba_hooks.py"]


def test_the_numba_here_is_within_the_bound_of_the_tested_versions():
    requirement = re.search(r'"numba>=(.+),<(.+)"', (ROOT / "pyproject.toml").read_text())
    least, most = (tuple(map(int, version.split("."))) for version in requirement.groups())
    assert least <= tuple(map(int, numba.__version__.split(".")[:2])) < most
