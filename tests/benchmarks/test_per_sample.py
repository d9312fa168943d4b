from __future__ import annotations

from statistics import median

import pytest

from benchmarks import per_sample
from benchmarks.results import latest


def test_the_cost_of_a_call_is_saved(tmp_path):
    per_sample.main(batches=1, rounds=2, cores=1, results=tmp_path)
    result = latest("per_sample", tmp_path) or {}
    assert [lap["images"] for lap in result["laps"]] == [128, 128]
    assert all(lap["wall_seconds"] > 0 for lap in result["laps"])
    # Processor time is counted in steps of 10 ms, of which so few images may take none.
    assert result["cpu_ms"] == pytest.approx(1000 * median(lap["cpu_seconds"] / 128 for lap in result["laps"]))
