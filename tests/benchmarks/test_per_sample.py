from __future__ import annotations

from benchmarks import per_sample
from benchmarks.results import latest


def test_the_cost_of_a_call_is_saved(tmp_path):
    per_sample.main(batches=1, rounds=2, cores=1, results=tmp_path)
    result = latest("per_sample", tmp_path) or {}
    assert result["cpu_ms"] > 0
    assert [lap["images"] for lap in result["laps"]] == [128, 128]
