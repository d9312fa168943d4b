from __future__ import annotations

from benchmarks import per_sample
from benchmarks.results import latest


def test_the_cost_of_each_kind_of_workers_is_kept(tmp_path):
    per_sample.main(batches=1, rounds=2, cores=1, results=tmp_path)
    result = latest("per_sample", tmp_path) or {}
    assert set(result["cpu_ms"]) == set(result["laps"]) == {"threads", "processes"}
    assert {lap["images"] for laps in result["laps"].values() for lap in laps} == {128}
