"""What a source gives, and what lies at its places."""

from __future__ import annotations

from gpubeton._bytes import open_bytes


def contents(source):
    """List the samples of a source, files read."""
    samples = [source[index] for index in range(len(source))]
    return [(value if isinstance(value, bytes) else value.read_bytes(), *others) for value, *others in samples]


def placed(source):
    """Read the images of a source at their places."""
    places = source.places()
    files = [open_bytes(*container) for container in places.containers]
    rows = zip(places.container.tolist(), places.offset.tolist(), places.size.tolist(), strict=True)
    return [files[container].read_exactly(offset, size) for container, offset, size in rows]
