from __future__ import annotations

import shutil

import pytest

from benchmarks import mixture
from benchmarks.results import latest


@pytest.mark.skipif(shutil.which("nginx") is None or shutil.which("openssl") is None, reason="needs nginx and openssl")
def test_a_mixture_is_timed_beside_its_files_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(mixture, "count_cores", lambda: 1)
    mixture.main(images=2560, rounds=1, streams=10, width=1, folder=tmp_path, results=tmp_path / "results")
    result = latest("mixture", tmp_path / "results") or {}
    assert set(result["kinds"]) == {"mixture", "alone"}
    (mixed,), (alone,) = result["kinds"]["mixture"], result["kinds"]["alone"]
    assert mixed["images"] > 0
    assert mixed["requests"] <= alone["requests"]
