from __future__ import annotations

import shutil

import pytest

from benchmarks import read_in_place, remote
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


@pytest.mark.skipif(shutil.which("nginx") is None or shutil.which("openssl") is None, reason="needs nginx and openssl")
def test_the_converted_file_and_tar_files_are_timed_over_http(tmp_path):
    more = {"passes": 1, "cores": 1, "samples": 0, "data": tmp_path, "results": tmp_path / "results"}
    read_in_place.main(images=256, rounds=0, http_rounds=1, **more)
    result = latest("read_in_place_http", tmp_path / "results") or {}
    beton, tars = (kind["laps"][0] for kind in result["kinds"].values())
    assert beton["images"] == tars["images"] == 256
    assert 0 < tars["requests"] <= 1.2 * beton["requests"] + 2
    table = fill("<!-- table: read_in_place_http -->\n<!-- end of table -->", tmp_path / "results")
    assert table.count("\n| ") == 2 + 2


def test_counts_that_the_server_contradicts_are_refused():
    lap = {"requests": 5, "served_requests": 5}
    remote.check_counts("HTTP", [lap, {**lap, "served_requests": 10}])  # the last asks for all parts of the next epoch
    with pytest.raises(RuntimeError, match="10 requests in 2 epochs, the server 16"):
        remote.check_counts("HTTP", [lap, {**lap, "served_requests": 11}])
