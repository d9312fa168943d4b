"""Loaders of users who may write nothing, have no home, start processes by spawn, or get few cores."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpubeton.writer import DatasetWriter
from tests.small_files import Photos, photo_fields

pytestmark = pytest.mark.campaign

TRAINING = """
import multiprocessing, sys
import numpy as np
from gpubeton.loader import Loader

def look(path):
    with Loader(path, batch_size=4, device="cpu") as loader:
        sums = [np.asarray(images, np.int64).sum() for _ in range(2) for images, *_ in loader]
    return int(sum(sums)), loader.num_workers

if __name__ == "__main__":
    seen = look(sys.argv[1])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(look, [sys.argv[1]]) == [seen]
    print(*seen)
"""

# A user who may read everything and write only where all may; only the superuser can start such a process.
READERS = ("--clear-groups", "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """A program, a file, and what the program prints for a user who may do everything."""
    folder = tmp_path_factory.mktemp("training")
    program, file = folder / "train.py", folder / "photos.beton"
    program.write_text(TRAINING)
    DatasetWriter(file, photo_fields(), num_workers=1, progress=False).from_indexed_dataset(Photos(9, (40, 50)))
    return program, file, train(program, file)


def train(program, file, *start, change=None):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    for name, value in (change or {}).items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    ran = subprocess.run(
        [*start, sys.executable, "-W", "error", program, file],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("setpriv"),
    reason="the superuser alone can become another user, with util-linux",
)
@pytest.mark.parametrize(
    ("uid", "home"),
    [(65534, None), (65534, "/"), (54321, "/nonexistent")],
    ids=["without a home", "with the home of another", "a user without a name"],
)
def test_a_user_who_may_write_nothing_trains(training, uid, home):
    program, file, expected = training
    start = ("setpriv", f"--reuid={uid}", f"--regid={uid}", *READERS)
    assert train(program, file, *start, change={"HOME": home, "XDG_CACHE_HOME": None}) == expected


def test_without_a_home_a_loader_works(training):
    program, file, expected = training
    assert train(program, file, change={"HOME": None, "XDG_CACHE_HOME": None}) == expected


def test_a_loader_has_as_many_workers_as_its_process_may_use_cores(training):
    program, file, expected = training
    if shutil.which("taskset") is None:
        pytest.skip("taskset is of util-linux, which Linux has")
    core = min(os.sched_getaffinity(0))
    assert train(program, file, "taskset", "--cpu-list", str(core)) == f"{expected.split()[0]} 1\n"
