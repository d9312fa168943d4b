"""Loaders over an object store and a web server: the batches of the local file, few requests, counted repetitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubeton.errors import RemoteChangedError
from gpubeton.loader import RemoteOptions
from tests.bytes.fault_server import Fault, FaultServer
from tests.loader.test_unmapped_files import PART, each, loader_of, paths, received  # noqa: F401  a fixture


def test_requests_that_are_made_again_are_counted(paths):  # noqa: F811
    with FaultServer() as server, loader_of(paths[0]) as local:
        server.objects["train.beton"] = Path(paths[0]).read_bytes()
        with loader_of(server.url("train.beton"), remote=RemoteOptions(silence_seconds=1)) as remote:
            server.faults.extend([Fault(status=503)] * 9)
            assert received(remote) == received(local)
            assert 1 <= remote.stats().retries <= 9
            assert f"{remote.stats().retries} made again" in str(remote.stats())


def test_a_file_that_is_replaced_ends_the_loop_after_the_batches_before(paths, monkeypatch):  # noqa: F811
    monkeypatch.setattr("gpubeton._plan.page_plan.MAX_REQUEST", PART)
    with FaultServer() as server, loader_of(paths[0], order="sequential") as local:
        server.objects["train.beton"] = Path(paths[0]).read_bytes()
        name, results = server.url("train.beton"), []
        options = RemoteOptions(requests=1)
        with loader_of(name, order="sequential", remote=options) as remote:
            server.faults.extend([*[None] * 20, Fault(replace=Path(paths[1]).read_bytes())])
            with pytest.raises(RemoteChangedError, match=name):
                results.extend(each(remote))
        assert len(results) > 5
        assert results == received(local)[: len(results)]


def test_no_more_requests_are_in_flight_than_the_options_allow(paths, monkeypatch):  # noqa: F811
    monkeypatch.setattr("gpubeton._plan.page_plan.MAX_REQUEST", PART)
    with FaultServer() as server:
        server.objects["train.beton"] = Path(paths[0]).read_bytes()
        with loader_of(server.url("train.beton"), remote=RemoteOptions(requests=3)) as remote:
            server.latency, server.most_at_once = 0.01, 0
            received(remote)
        assert server.most_at_once <= 6  # one may end there while the next begins here; without the option it is 16
