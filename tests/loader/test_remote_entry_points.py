"""Entry points of remote files: loaded in parts when their images are needed, and forgotten in time."""

from __future__ import annotations

import ctypes
import time
import weakref

import numpy as np
import pytest

from gpubeton._bytes import object_store
from gpubeton._engine import remote_entry_points
from gpubeton.dataset import index_images
from gpubeton.errors import RemoteChangedError
from gpubeton.format.dataset import open_dataset
from gpubeton.format.entry_points import find_stored
from tests.loader.test_remote import batches, made, opened, photos

__all__ = ["photos"]


@pytest.fixture(params=["within", "beside"])
def indexed(request, photos, fault_server, tmp_path, monkeypatch):
    """A remote file whose entry points come in several parts: its URL, and the object and offset that they are at."""
    monkeypatch.setattr(remote_entry_points, "_RANGE_BYTES", 64)
    path, name = tmp_path / "photos.beton", "photos.beton"
    path.write_bytes(photos.read_bytes())
    with open_dataset(path).files[0].open() as source:
        start = find_stored(source)[0]
    fault_server.objects[name] = path.read_bytes()
    if request.param == "beside":
        index_images(path, overwrite=True)
        name, start = "photos.beton.index", 0
        fault_server.objects[name] = path.with_name(name).read_bytes()
    return fault_server.url("photos.beton"), fault_server.url(name), start


def test_entries_of_a_remote_file_come_in_parts_when_their_images_are_needed(indexed, photos, monkeypatch):
    url, place, start = indexed
    loads, load, everything, blocks = [], object_store.ObjectFile.load, np.arange(24), []

    def counted(self, first, size):
        content = np.array(load(self, first, size))
        if self.name == place and first >= start:
            loads.append((first - start, size))
            blocks.append(weakref.ref(content))
        return content.data

    with opened(photos, indices=range(4)) as local, opened(url, indices=range(4)) as remote:
        monkeypatch.setattr(object_store.ObjectFile, "load", counted)
        ours, theirs = (opened_loader._resources.entry_points["image"] for opened_loader in (remote, local))
        assert ours.summary == theirs.summary
        ours.of(everything[:4])
        assert [first for first, _ in loads] == [0]
        assert loads[0][1] < theirs.entries.nbytes / 2
        assert [batch[0].numpy().tobytes() for batch in remote] == [batch[0].numpy().tobytes() for batch in local]
        addresses, counts, seals, _ = ours.of(everything)
        assert [counts.tolist(), seals.tolist()] == [theirs.counts.tolist(), theirs.seals.tolist()]
        places = zip(addresses.tolist(), (10 * counts).tolist(), strict=True)
        assert b"".join(ctypes.string_at(*place) for place in places if all(place)) == theirs.entries.tobytes()
        ours.of(everything)
        ends = [0, *(first + size for first, size in sorted(loads) if first < theirs.entries.nbytes)]
        assert [first for first, _ in sorted(loads) if first < theirs.entries.nbytes] == ends[:-1]  # each once
        assert ends[-1] == theirs.entries.nbytes
        while any(block() is not None for block in blocks):  # their memory is wanted for pages
            time.sleep(0.001)  # until the threads that loaded them let go
    assert batches(url) == batches(photos)


def test_entries_that_were_not_used_for_long_make_room_and_come_again(indexed, photos, monkeypatch):
    url, most, parts, sizes, content = indexed[0], 200, [], [], remote_entry_points._EntryLoader._content

    def noting(*arguments):
        parts.append(weakref.ref(part := content(*arguments)))
        sizes.append(part.nbytes)
        return part

    def there():
        return [part() for part in parts if part() is not None]

    monkeypatch.setattr(remote_entry_points, "_MOST_BYTES", most)
    monkeypatch.setattr(remote_entry_points._EntryLoader, "_content", noting)
    expected = batches(photos)
    with opened(url) as loader, opened(photos) as local:
        assert made(loader) == expected[:12]
        assert made(loader) == expected[12:]
        ours, theirs = (opened_loader._resources.entry_points["image"] for opened_loader in (loader, local))
        for number in range(24):
            held = [points.of(np.array([number])) for points in (ours, theirs)]
            (reference,) = [
                weakref.ref(part) for part in there() if 0 <= int(held[0][0][0]) - part.ctypes.data < part.nbytes
            ]
            for other in range(24):
                ours.of(np.array([other]))
                assert number == 0 or sum(part.nbytes for part in there()) > most - max(sizes)
            assert reference() is not None, "it is in use"
            results = [ctypes.string_at(int(address[0]), 10 * int(count[0])) for address, count, *_ in held]
            assert results[0] == results[1]
            del held
            assert sum(part.nbytes for part in there()) <= most


def test_entries_replaced_after_opening_are_an_error_in_the_file_and_a_warning_beside_it(indexed, photos, monkeypatch):
    url, place, start = indexed
    load = object_store.ObjectFile.load

    def fail(self, first, size):
        if self.name == place and first >= start:
            raise RemoteChangedError(f"{self.name}: it is another one.")
        return load(self, first, size)

    loader = opened(url)
    monkeypatch.setattr(object_store.ObjectFile, "load", fail)
    with loader:
        if place == url:
            with pytest.raises(RemoteChangedError):
                list(loader)
            return
        with pytest.warns(UserWarning, match="another one.*images are decoded without them") as warned:
            results = [[output.numpy().tobytes() for output in batch] for _ in range(2) for batch in loader]
    assert len(warned) == 1
    assert results == batches(photos)
