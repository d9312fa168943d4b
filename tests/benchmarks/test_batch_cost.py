from __future__ import annotations

from benchmarks import batch_cost
from benchmarks.results import latest
from benchmarks.table import fill


def test_every_path_and_size_is_timed_by_thread_with_and_without_the_lock(tmp_path):
    batch_cost.main(sizes="3 8", batches=2, rounds=2, data=tmp_path / "data", results=tmp_path / "results")
    result = latest("batch_cost", tmp_path / "results") or {}
    assert [(run["path"], run["batch_size"]) for run in result["runs"]] == [
        (path, size) for path in batch_cost.PATHS for size in (3, 8)
    ]
    for run in result["runs"]:
        assert len(run["milliseconds"]) == 2
        for lap in run["milliseconds"]:
            assert lap.keys() == run["without_gil"].keys() >= {"MainThread", "gpubeton-prefetch"}
        assert max(run["without_gil"].values()) > 0
    table = fill("<!-- table: batch_cost -->\n<!-- end of table -->", tmp_path / "results")
    assert table.count(" images |") == 2 * len(batch_cost.PATHS)
