"""Shards made by processes of this machine, and by engines that only call functions."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import pytest

from gpubeton.conversion import Settings, convert_shard, convert_shards, finish, plan_shards, sharded
from gpubeton.errors import WriteError
from tests.picture_folders import write_folder


@pytest.fixture
def plans(tmp_path):
    """A plan that was carried out here, and the same one for an engine."""
    photos = write_folder(tmp_path / "photos", 8)
    found = [plan_shards(photos, tmp_path / name, 4, Settings(page_size=1 << 21)) for name in ("here", "there")]
    convert_shards(found[0], num_workers=1)
    return found


def check(plans):
    finish(plans[1])
    for name in plans[0].names:
        assert (plans[1].folder.path / name).read_bytes() == (plans[0].folder.path / name).read_bytes()


def test_dask_makes_shards(plans):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.gather(client.map(partial(convert_shard, plans[1]), plans[1].missing()))
    check(plans)


def test_spark_makes_shards(plans, monkeypatch):
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with pyspark.sql.SparkSession.builder.master("local[2]").getOrCreate() as session:
        missing = plans[1].missing()
        session.sparkContext.parallelize(missing, len(missing)).foreach(partial(convert_shard, plans[1]))
    check(plans)


# --- processes of this machine


def kill_once(marker: Path, number: int, *, num_workers: int) -> bool:
    """Die at the first call."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return True


def kill_always(number: int, *, num_workers: int) -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return True


def process_of(number: int, *, num_workers: int) -> int:
    return os.getpid()


def test_a_process_makes_several_shards_and_then_ends():
    most = sharded._SHARDS_PER_PROCESS
    processes = Counter(sharded._run_here(process_of, range(2 * most + 1), 2))
    assert len(processes) in (3, 4)
    assert max(processes.values()) <= most
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_process_that_is_killed_is_started_again(tmp_path):
    assert list(sharded._run_here(partial(kill_once, tmp_path / "marker"), range(3), 2)) == [True] * 3
    with pytest.raises(WriteError, match="killed or could not start 4 times") as caught:
        list(sharded._run_here(kill_always, range(2), 2))
    assert isinstance(caught.value.__cause__, BrokenProcessPool)
