"""A file that cannot be mapped: counts loaded and resident bytes, and waits and fails on demand."""

from __future__ import annotations

import threading
import time
import weakref

import pytest

from gpubeton._bytes import source_type
from gpubeton._bytes.open_files import SOURCES
from gpubeton.errors import StorageError

#: Files of this machine.
LocalFile = source_type("a path")


class Traffic:
    """The requests to all counted files."""

    def __init__(self):
        self.requests = []  # (name, start, size)
        self.in_flight = self.most_in_flight = 0
        self.live = self.most_live = 0  # bytes in memory
        self.live_parts = self.most_live_parts = 0
        self.delay = 0.0  # seconds
        self.failing_at = None  # an offset; what holds it cannot be loaded
        self.lock = threading.Lock()

    @property
    def nbytes(self):
        return sum(size for _, _, size in self.requests)

    def begin(self, name, start, size):
        with self.lock:
            self.requests.append((name, start, size))
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self.count(size, 1)

    def end(self):
        with self.lock:
            self.in_flight -= 1

    def count(self, size, parts):
        # Called by finalizers too, which may run within `begin`: no lock.
        self.live += size
        self.live_parts += parts
        self.most_live = max(self.most_live, self.live)
        self.most_live_parts = max(self.most_live_parts, self.live_parts)


class Content(bytearray):
    """Bytes that can be referred to weakly."""


class UnmappedSource(source_type("a path")):
    """A local file by the name ``counted://`` and its path."""

    is_mappable = is_local = False
    traffic = Traffic()

    @classmethod
    def open(cls, name, size, *, is_random):
        source = super().open(name.removeprefix(SCHEME), size, is_random=is_random)
        source.name = name
        return source

    @classmethod
    def find_identity(cls, name):
        return super().find_identity(name.removeprefix(SCHEME))

    def load(self, start, size):
        traffic = self.traffic
        traffic.begin(self.name, start, size)
        try:
            time.sleep(traffic.delay)
            if traffic.failing_at is not None and start <= traffic.failing_at < start + size:
                raise StorageError(f"{self.name}: planted")
            content = Content(size)
            weakref.finalize(content, traffic.count, -size, -1)
            self.fill(start, memoryview(content))
            return memoryview(content)
        finally:
            traffic.end()


SCHEME = "counted://"


def counted(path):
    """Name a file so that it cannot be mapped and is counted."""
    return f"{SCHEME}{path}"


@pytest.fixture
def traffic(monkeypatch):
    """The requests to the files that `counted` names."""
    monkeypatch.setitem(SOURCES, "counted", UnmappedSource)
    monkeypatch.setattr(UnmappedSource, "traffic", Traffic())
    return UnmappedSource.traffic
