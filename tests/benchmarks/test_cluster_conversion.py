from __future__ import annotations

from benchmarks import cluster_conversion
from benchmarks.results import latest
from benchmarks.table import fill


def test_one_process_and_several_make_all_shards(tmp_path):
    cluster_conversion.main(images=48, processes=2, rounds=1, data=tmp_path, results=tmp_path / "results")
    result = latest("cluster_conversion", tmp_path / "results") or {}
    assert [run["name"] for run in result["runs"]] == ["copied", "at most 400 pixels"]
    for run in result["runs"]:
        assert run["images_per_second"].keys() == {"1", "2"}
        assert all(rate > 0 for rates in run["images_per_second"].values() for rate in rates)
        assert len(run["share"]) == 1
    table = fill("<!-- table: cluster_conversion -->\n<!-- end of table -->", tmp_path / "results")
    assert table.count("\n| ") == 4
