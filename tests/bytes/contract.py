"""The promises of every kind of byte source. A subclass names the place of a file of its kind and opens it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gpubeton._bytes import ByteSource, open_bytes
from gpubeton.errors import FormatError, StorageError, TruncatedError
from tests.at_once import run_at_once

SIZE = 300_007  # more than an object's first request brings, and no whole number of pages
CONTENT = np.random.default_rng(0).bytes(SIZE)
OTHER = np.random.default_rng(1).bytes(SIZE)
RANGES = [(0, 0), (0, 1), (0, SIZE), (SIZE - 1, 1), (SIZE, 0), (16_383, 2), (262_140, 10), (5, 200_000), (40_000, 3)]
BEYOND = [(SIZE - 3, 10, 3), (SIZE, 1, 0), (SIZE + 70_000, 5, 0)]  # start, size, and bytes that are there


@dataclass(frozen=True)
class StoredFile:
    """A file of one kind, whose content is `CONTENT` until it is replaced."""

    name: str
    replace: Callable[[bytes], object]
    open: Callable[..., ByteSource] = open_bytes  # called with a name, and as `open_bytes` with an identity


def part(start, size):
    return CONTENT[start : start + size]


def descriptors_below(folder):
    return [place for place in map(Path.resolve, Path("/proc/self/fd").iterdir()) if place.is_relative_to(folder)]


def is_right_or_refused(source, start, size):
    try:
        return bytes(source.load(start, size)) == part(start, size)
    except (StorageError, CancelledError):
        return True


class ByteSourceContract:
    """The tests; a subclass has a fixture `stored` that gives a `StoredFile`."""

    @pytest.fixture
    def source(self, stored):
        with stored.open(stored.name) as source:
            yield source

    def test_every_range_has_the_bytes_of_the_file_however_it_is_read(self, source):
        for start, size in RANGES:
            target = bytearray(size)
            assert source.read_into(start, memoryview(target)) == size
            assert (
                bytes(target)
                == source.read(start, size)
                == source.read_exactly(start, size)
                == bytes(source.load(start, size))
                == source.read_array(start, start + size).tobytes()
                == part(start, size)
            )

    def test_several_ranges_are_read_in_any_order(self, source):
        buffers = [bytearray(size) for _, size in RANGES]
        for (start, _), buffer in reversed([*zip(RANGES, buffers, strict=True)]):
            source.fill(start, memoryview(buffer))
        assert buffers == [part(*place) for place in RANGES]

    @pytest.mark.parametrize(("start", "size", "count"), BEYOND)
    def test_a_read_ends_with_the_file_and_a_region_beyond_its_end_is_refused(self, source, start, size, count):
        target = bytearray(size)
        assert source.read(start, size) == part(start, size)
        assert source.read_into(start, memoryview(target)) == count
        for refused in (source.load, source.read_exactly, lambda *_: source.fill(start, memoryview(target))):
            with pytest.raises(StorageError, match=rf"{source.name}.*{size} bytes from {start} .*ends after"):
                refused(start, size)
        with pytest.raises(TruncatedError, match=source.name):
            source.read_array(start, start + size)

    def test_a_region_stays_after_the_source_is_closed(self, stored):
        source = stored.open(stored.name)
        regions = [source.load(start, size) for start, size in RANGES]
        source.close()
        source.close()
        del source
        gc.collect()
        assert [bytes(region) for region in regions] == [part(*place) for place in RANGES]

    def test_a_closed_source_holds_no_file(self, stored, tmp_path):
        before = descriptors_below(tmp_path)
        for _ in range(3):
            source = stored.open(stored.name)
            source.load(0, SIZE)
            source.close()
        del source
        gc.collect()
        assert descriptors_below(tmp_path) == before

    def test_a_file_has_one_identity_until_it_changes(self, stored, source):
        identity = source.identity()
        with stored.open(stored.name, identity) as again:
            assert (again.identity(), again.identity().size, again.size) == (identity, SIZE, SIZE)
            assert again.identity().cache_key == identity.cache_key
            assert identity.is_same_source(again.identity())
            identity.check(stored.name, again.identity())
            assert again.read_exactly(0, SIZE) == CONTENT

    def test_a_file_that_was_replaced_is_refused_and_never_gives_other_bytes_than_before(self, stored, source):
        identity = source.identity()
        stored.replace(OTHER)
        with stored.open(stored.name) as later:
            assert later.read_exactly(0, SIZE) == OTHER
            with pytest.raises(StorageError, match=stored.name):
                identity.check(stored.name, later.identity())
        name = stored.name.removeprefix("files://")  # of listed files, the file in that folder is named
        with pytest.raises(StorageError, match=name), stored.open(stored.name, identity) as again:
            again.load(0, SIZE)
        assert all(is_right_or_refused(source, *place) for place in RANGES)

    def test_a_missing_file_is_named(self, stored):
        with pytest.raises(FileNotFoundError, match=f"{stored.name}.none"):
            stored.open(f"{stored.name}.none")

    def test_threads_share_a_source(self, source):
        def read(seed):
            random = np.random.default_rng(seed)
            for start in random.integers(0, SIZE, 30).tolist():
                size = int(random.integers(0, SIZE - start))
                results.append(bytes(source.load(start, size)) == source.read(start, size) == part(start, size))

        results: list[bool] = []
        run_at_once(read, range(4))
        assert results == [True] * 120

    def test_an_interrupted_source_gives_the_right_bytes_or_an_error(self, source):
        def read():
            results.extend(is_right_or_refused(source, *place) for place in RANGES)

        results: list[bool] = []
        thread = threading.Thread(target=read)
        thread.start()
        source.interrupt()
        thread.join()
        read()
        assert results == [True] * 2 * len(RANGES)

    def test_announced_and_reloaded_bytes_are_the_same(self, source):
        source.announce(0, SIZE)
        source.announce(SIZE - 10, 100)
        assert source.is_cached(0, SIZE - 1) in (True, False)
        assert source.read(7, SIZE) == CONTENT[7:]
        assert source.reload(20_000, 30_000) in (True, False)
        assert bytes(source.load(10_000, 50_000)) == part(10_000, 50_000)

    def test_it_is_mapped_as_a_whole_and_read_only_or_not_at_all(self, source):
        if not source.is_mappable:
            with pytest.raises(StorageError, match=rf"{source.name}.*mapped"):
                source.map()
            return
        content = source.map()
        assert content.tobytes() == CONTENT
        with pytest.raises(ValueError, match="read-only"):
            content[0] = 1

    @pytest.mark.parametrize("size", [1 << 50, 1 << 63, 1 << 70])
    def test_metadata_that_no_memory_can_hold_are_an_error_of_the_file(self, source, size):
        with pytest.raises(FormatError, match=f"{source.name}.*24 to {24 + size} .*metadata"):
            source.read_array(24, 24 + size)
