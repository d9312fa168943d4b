"""Objects of a store, read whole."""

from __future__ import annotations

from gpubeton._bytes.object_store import ObjectFile


def read_object(url, remote=None):
    with ObjectFile.open_checked(url, None, is_random=False, remote=remote) as source:
        return source.read_exactly(0, source.size)
