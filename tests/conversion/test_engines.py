"""Shards made by engines that only call functions."""

from __future__ import annotations

import sys
from functools import partial

import pytest

from gpubeton.conversion import Settings, convert_shard, convert_shards, finish, plan_shards
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
