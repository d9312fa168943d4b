"""A loader of a web server that is overloaded: the batches of the local file, and counted repetitions."""

from __future__ import annotations

from pathlib import Path

from gpubeton.loader import RemoteOptions
from tests.bytes.fault_server import Fault, FaultServer
from tests.loader.test_unmapped_files import loader_of, paths, received  # noqa: F401  a fixture


def test_requests_that_are_made_again_are_counted(paths):  # noqa: F811
    with FaultServer() as server, loader_of(paths[0]) as local:
        server.objects["train.beton"] = Path(paths[0]).read_bytes()
        with loader_of(server.url("train.beton"), remote=RemoteOptions(silence_seconds=1)) as remote:
            server.faults.extend([Fault(status=503)] * 9)
            assert received(remote) == received(local)
            assert 1 <= remote.stats().retries <= 9
            assert f"{remote.stats().retries} made again" in str(remote.stats())
