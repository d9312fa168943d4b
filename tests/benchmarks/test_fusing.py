from __future__ import annotations

from benchmarks import fusing
from benchmarks.results import latest
from benchmarks.table import fill


def test_every_pipeline_is_timed_in_every_round_and_compared_with_the_first(tmp_path):
    fusing.main(images=3, rounds=2, side=24, storage="all", data=tmp_path / "data", results=tmp_path / "results")
    result = latest("fusing", tmp_path / "results") or {}
    assert [run["storage"] for run in result["runs"]] == ["jpg", "raw_full", "raw"]
    _, full, small = result["runs"]
    assert full["corpus"]["median_width"] > small["corpus"]["median_width"]
    for run in result["runs"]:
        assert list(run["cpu_seconds"]) == list(fusing.PIPELINES)
        assert all(len(own) == 2 and min(own) > 0 for own in run["cpu_seconds"].values())
        assert list(run["times"]) == list(fusing.PIPELINES)[1:]
    table = fill("<!-- table: fusing -->\n<!-- end of table -->", tmp_path / "results")
    assert table.count("| crop, normalise |") == 3
    assert "**raw-stored**, " in table


def test_a_ratio_is_that_of_epochs_of_one_round():
    seconds = {"crop, normalise": [1.0, 2.0, 4.0], "more": [1.5, 2.4, 8.0]}
    assert fusing.ratios(seconds) == {"more": {"median": 1.5, "least": 1.5}}
    seconds["more"] = [1.3, 2.4, 4.4]
    assert fusing.ratios(seconds) == {"more": {"median": 1.2, "least": 1.3}}
