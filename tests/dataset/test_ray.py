"""A real Ray cluster of two cores, with an object store as the target."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")

from gpubeton._bytes.object_store import list_objects  # noqa: E402
from gpubeton.dataset import Settings, convert_shards, shards  # noqa: E402
from gpubeton.dataset.shards import run_tasks  # noqa: E402
from gpubeton.errors import WorkerDiedError, WriteError  # noqa: E402
from tests.objects import read_object  # noqa: E402
from tests.picture_folders import write_folder, write_tars  # noqa: E402

pytestmark = pytest.mark.campaign  # a cluster of processes takes long to begin
SETTINGS = Settings(page_size=1 << 21, shuffle=True)


@pytest.fixture(scope="module", autouse=True)
def _cluster(tmp_path_factory):
    root = Path(__file__).resolve().parents[2]
    environment = {
        "env_vars": {
            "PYTHONPATH": os.fspath(root),
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_gcs_server_port_wait_time_s", "300")  # on a busy machine it takes longer than 30
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=200 << 20,
            log_to_driver=False,
            runtime_env=environment,
        )
    yield
    ray.shutdown()


def die_once(marker: Path, shard: shards.Shard) -> None:
    """Make a shard, but die in the middle of the first one."""
    if shard.number == 3 and not marker.exists():
        marker.touch()
        convert = shards.convert

        def interrupted(*arguments, **options):
            def on_progress(done: int, total: int) -> None:
                if done:
                    os.kill(os.getpid(), signal.SIGKILL)

            return convert(*arguments, **options, chunksize=1, on_progress=on_progress)

        shards.convert = interrupted
    shards._make(1, shard)


def test_a_cluster_makes_the_bytes_of_the_loop_though_a_worker_is_killed(s3_server, tmp_path):
    tars, expected = write_tars(tmp_path / "tars", 8), tmp_path / "expected"
    convert_shards(tars, expected, 8, SETTINGS, num_workers=1)
    target, remote = s3_server.url("out/"), s3_server.options
    split = shards.split_source(tars, target, 8, SETTINGS, None, "raise", remote, {})
    marker = tmp_path / "marker"
    assert len(list(run_tasks(partial(die_once, marker), split))) == 8
    assert marker.exists()
    convert_shards(tars, target, 8, SETTINGS, remote=remote, on="ray")
    results = {url.rpartition("/")[2]: read_object(url) for url, *_ in list_objects(target)}
    assert set(results) == {path.name for path in expected.iterdir()}
    for path in expected.iterdir():
        assert path.name == "index.json" or results[path.name] == path.read_bytes()  # it has the versions of the files


def test_missing_shards_are_made_by_tasks(tmp_path):
    photos = write_folder(tmp_path / "photos", 9)
    done = convert_shards(photos, tmp_path / "here", 3, SETTINGS, num_workers=1)
    convert_shards(photos, tmp_path / "there", 3, SETTINGS, share=(1, 3), num_workers=1)
    results = []
    there = convert_shards(
        photos, tmp_path / "there", 3, SETTINGS, on="ray", on_progress=lambda *counts: results.append(counts)
    )
    assert there.samples == done.samples
    assert results == [(1, 3), (2, 3), (3, 3)]
    for path in (tmp_path / "here").glob("*.beton"):
        assert (tmp_path / "there" / path.name).read_bytes() == path.read_bytes()


def test_an_error_of_a_task_is_raised_here(tmp_path):
    photos = write_folder(tmp_path / "photos", 9)
    (photos / "dog" / "0001.jpg").write_bytes(b"no picture")
    with pytest.raises(WriteError, match=r"shard 1 of 3.*0001\.jpg"):
        convert_shards(photos, tmp_path / "out", 3, Settings(page_size=1 << 21), on="ray")


def test_a_task_that_is_killed_each_time_is_an_error():
    with pytest.raises(WorkerDiedError, match="4 times"):
        list(run_tasks(lambda _: os.kill(os.getpid(), signal.SIGKILL), range(1)))
