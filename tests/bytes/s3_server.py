"""A server of this process that answers as S3 does, made by moto: credentials, If-Match, multipart uploads, lists."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpubeton._bytes import RemoteOptions
from gpubeton._bytes.object_store import put_object

_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def running_s3() -> Iterator[str]:
    """Run the server, and give its address."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs each request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@dataclass(frozen=True)
class Bucket:
    """A bucket of the server."""

    address: str
    name: str

    @classmethod
    def make(cls, address: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
        """Make an empty bucket, and set the environment so that it is found without options."""
        for key, value in {**_ENVIRONMENT, "AWS_ENDPOINT_URL": address}.items():
            monkeypatch.setenv(key, value)
        for key in ("AWS_SESSION_TOKEN", "AWS_PROFILE"):
            monkeypatch.delenv(key, raising=False)
        request = urllib.request.Request(f"{address}/{name}", method="PUT")
        urllib.request.urlopen(request).close()
        return cls(address, name)

    @property
    def options(self) -> RemoteOptions:
        """How it is reached, environment or not; credentials come from the environment."""
        return RemoteOptions(endpoint=self.address, retry_seconds=5)

    def url(self, key: str) -> str:
        """The URL of an object."""
        return f"s3://{self.name}/{key}"

    def put(self, key: str, content: Path | bytes) -> str:
        """Write an object, and give its URL."""
        put_object(self.url(key), content, self.options, overwrite=True)
        return self.url(key)

    def delete(self, key: str) -> None:
        """Delete an object."""
        import obstore

        store = obstore.store.from_url(f"s3://{self.name}", endpoint=self.address, client_options={"allow_http": True})
        obstore.delete(store, key)
