from __future__ import annotations

import shutil

import pytest

from benchmarks import remote
from benchmarks.results import latest
from benchmarks.table import fill


@pytest.mark.skipif(shutil.which("nginx") is None or shutil.which("openssl") is None, reason="needs nginx and openssl")
def test_each_kind_of_file_is_timed_and_its_requests_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "count_cores", lambda: 1)
    monkeypatch.setattr(remote, "KINDS", ("local", "HTTPS", "cache"))
    remote.main(images=256, rounds=1, streams=1, width=1, folder=tmp_path, results=tmp_path / "results")
    result = latest("remote", tmp_path / "results") or {}
    (race,) = result["races"]
    assert tuple(race["kinds"]) == remote.KINDS
    for name, kind in race["kinds"].items():
        (lap,) = kind["laps"]
        assert lap["images"] == 256
        assert (lap["requests"] > 0) == (name == "HTTPS")
        if lap["requests"]:
            assert 1 <= lap["sent_bytes"] / lap["used_bytes"] < 1.05
    table = fill("<!-- table: remote -->\n<!-- end of table -->", tmp_path / "results")
    assert table.count("\n| ") == 2 + len(remote.KINDS)


def test_counts_that_the_server_contradicts_are_refused():
    lap = {"requests": 5, "served_requests": 5}
    remote.check_counts("HTTP", [lap, {**lap, "served_requests": 10}])  # the last asks for all parts of the next epoch
    with pytest.raises(RuntimeError, match="10 requests in 2 epochs, the server 16"):
        remote.check_counts("HTTP", [lap, {**lap, "served_requests": 11}])
