"""Shards made by processes of this machine, and by engines that only call functions."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import pytest

from gpubeton.dataset import Settings, convert_shards, shards
from gpubeton.errors import StorageError, WriteError
from tests.picture_folders import write_folder


@pytest.fixture
def folders(tmp_path):
    """A dataset that was made here, and a call that makes a share of the same one."""
    photos, settings = write_folder(tmp_path / "photos", 8), Settings(page_size=1 << 21)
    convert_shards(photos, tmp_path / "here", 4, settings, num_workers=1)
    return tmp_path, partial(make_share, photos, tmp_path / "there", settings)


def make_share(photos, target, settings, number):
    convert_shards(photos, target, 4, settings, share=(number, 4), num_workers=1)


def check(folder):
    for number in range(4):
        results = [folder / name / f"0000{number}.beton" for name in ("here", "there")]
        assert results[0].read_bytes() == results[1].read_bytes()
    assert (folder / "there" / "index.json").exists()


def test_dask_makes_shards(folders):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.gather(client.map(folders[1], range(4)))
    check(folders[0])


def test_spark_makes_shards(folders, monkeypatch):
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with pyspark.sql.SparkSession.builder.master("local[2]").getOrCreate() as session:
        session.sparkContext.parallelize(range(4), 4).foreach(folders[1])
    check(folders[0])


def kill(num_workers, shard):
    os.kill(os.getpid(), signal.SIGKILL)


def process_of(num_workers, shard):
    return os.getpid()


def test_processes_end_with_the_last_shard():
    processes = set(shards._run_here(process_of, range(8), 2))
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_killed_process_raises_an_error_with_advice():
    with pytest.raises(WriteError, match=r"killed or could not start.*start again") as caught:
        list(shards._run_here(kill, range(2), 2))
    assert isinstance(caught.value.__cause__, BrokenProcessPool)


def test_a_folder_whose_sockets_would_have_too_long_a_path_is_refused(monkeypatch):
    monkeypatch.setattr(shards, "temporary_folder", lambda: "/" + 75 * "a")
    with pytest.raises(StorageError, match=r"aaa: .*75 bytes at most\. Set TMPDIR to a shorter one"):
        list(shards._run_here(process_of, range(2), 2))
