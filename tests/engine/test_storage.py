from __future__ import annotations

import ctypes
import errno
import gc
import os
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpubeton._bytes import open_bytes, source_type
from gpubeton._bytes.open_files import OpenSources
from gpubeton._engine.buffers import Staging
from gpubeton._engine.storage import LoadedStorage, MappedStorage
from gpubeton.errors import FormatError, LoaderClosedError, StorageError
from gpubeton.format.data_files import first_offset
from tests.at_once import run_at_once
from tests.blocks import Blocks

CONTENTS = [np.random.default_rng(number).bytes(size) for number, size in enumerate((3_000_000, 20_001, 50_003, 1))]
CONTENT = CONTENTS[0]
LocalFile = source_type("a path")
REGIONS = st.lists(
    st.tuples(st.integers(0, len(CONTENTS) - 1), st.integers(0, len(CONTENT)), st.integers(0, 40_000)), max_size=15
)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("storage")
    for number, content in enumerate(CONTENTS):
        (folder / str(number)).write_bytes(content)
    return [folder / str(number) for number in range(len(CONTENTS))]


@pytest.fixture(scope="module")
def path(paths):
    return paths[0]


def opened(*paths, **options):
    return OpenSources([(path, LocalFile.find_identity(path)) for path in paths], **options)


def times_open(path):
    return [entry.resolve() for entry in Path("/proc/self/fd").iterdir()].count(path.resolve())


def u8(*numbers):
    return np.array(numbers, np.uint64)


def content_at(fetch, size):
    return [ctypes.string_at(address, count) for address, count in zip(fetch.addresses().tolist(), size, strict=True)]


def content_of(offset, size):
    return [CONTENT[start : start + count] for start, count in zip(offset, size, strict=True)]


class StorageContract:
    """What every storage promises; a subclass has the `kind`."""

    kind: type

    @pytest.fixture
    def storage(self, path):
        storage = self.kind(opened(path))
        yield storage
        storage.close()

    @settings(suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])  # one test, two classes
    @given(REGIONS, st.integers(1, len(CONTENTS)))
    @example([(0, 2_000_000, 40_000), (1, 5, 3), (0, 1_000_000, 0), (0, 6, 100)], 1)
    @example([(2, 500, 100), (2, 500, 100), (2, 510, 10), (2, 400, 5000), (3, 0, 1)], 4)
    @example([], 1)
    @example([(1, 17, 0)], 1)
    def test_regions_of_any_files_arrive_in_the_order_in_which_they_were_asked_for(self, paths, regions, max_open):
        regions = [(file, min(start, len(CONTENTS[file]) - 1), size) for file, start, size in regions]
        expected = [CONTENTS[file][start : start + size] for file, start, size in regions]
        places = u8(*(int(first_offset(file)) + start for file, start, _ in regions))
        storage = self.kind(opened(*paths, max_open=max_open))
        fetch = storage.fetch(places, u8(*map(len, expected)))
        assert content_at(fetch, [*map(len, expected)]) == expected
        assert fetch.is_ready
        fetch.release()
        storage.close()

    def test_many_regions_arrive_that_are_far_from_each_other(self, storage):
        offset, size = [*range(0, len(CONTENT) - 50, 9000)], [*range(1, 335)]
        assert content_at(storage.fetch(u8(*offset), u8(*size)), size) == content_of(offset, size)

    def test_several_fetches_at_once_do_not_disturb_each_other(self, storage):
        batches = [([k * 1000 + 7, 2_500_000 - k * 3000], [900, 2000]) for k in range(30)]
        fetches = [storage.fetch(u8(*offset), u8(*size)) for offset, size in batches]
        for fetch, (offset, size) in zip(fetches, batches, strict=True):
            assert content_at(fetch, size) == content_of(offset, size)

    def test_several_threads_may_use_one_storage(self, storage):
        wrong = []

        def use(start):
            for k in range(40):
                offset, size = [start + k * 10, 1_000_000 + start], [5000, 200]
                fetch = storage.fetch(u8(*offset), u8(*size))
                if content_at(fetch, size) != content_of(offset, size):
                    wrong.append(start)
                fetch.release()

        run_at_once(use, (0, 100_000, 200_000))
        assert wrong == []

    def test_a_region_stays_after_the_storage_is_closed_until_it_is_released(self, path):
        storage = self.kind(opened(path))
        fetch = storage.fetch(u8(100), u8(50))
        fetch.addresses()
        storage.close()
        del storage
        gc.collect()
        assert content_at(fetch, [50]) == content_of([100], [50])

    def test_files_of_this_machine_have_no_other_place_to_come_from(self, storage):
        storage.interrupt()
        assert not storage.reload(u8(100), u8(50))
        assert content_at(storage.fetch(u8(100), u8(50)), [50]) == content_of([100], [50])

    def test_a_file_that_changed_since_it_was_checked_is_refused(self, tmp_path):
        path = tmp_path / "rewritten"
        path.write_bytes(bytes(10_000))
        os.utime(path, ns=(1, 1))
        files = opened(path)
        path.write_bytes(bytes(10_000))
        with pytest.raises(StorageError, match=r"rewritten: .* 0\.000"):
            self.kind(files)
        path.write_bytes(bytes(10_001))
        with pytest.raises(StorageError, match=r"10001 .* 10000"):
            self.kind(files)

    def test_no_file_and_no_thread_is_left_open(self, path, own_threads):
        gc.collect()
        before = times_open(path)
        storage = self.kind(opened(path))
        fetch = storage.fetch(u8(5), u8(5))
        fetch.addresses()
        storage.close()
        storage.close()
        with pytest.raises(StorageError):
            self.kind(OpenSources([(path, replace(LocalFile.find_identity(path), size=5))]))
        del storage, fetch
        gc.collect()
        assert (times_open(path), own_threads()) == (before, [])


class TestMappedStorage(StorageContract):
    kind = MappedStorage


class TestLoadedStorage(StorageContract):
    kind = LoadedStorage


def test_a_mapped_file_that_is_cut_short_is_noticed_when_asked(tmp_path):
    path = tmp_path / "shrinking"
    path.write_bytes(bytes(10_000))
    storage = MappedStorage(opened(path))
    storage.check()
    os.truncate(path, 5000)
    with pytest.raises(StorageError, match="5000 bytes, but 10000"):
        storage.check()


def test_a_mapped_file_that_lost_its_name_is_the_same_in_memory(tmp_path):
    path = tmp_path / "replaced"
    path.write_bytes(bytes(10_000))
    files = opened(path)
    storage = MappedStorage(files)
    files.close()  # as if many others had been opened since
    (tmp_path / "other").write_bytes(b"\1" * 10_000)
    (tmp_path / "other").rename(path)
    storage.check()
    path.unlink()
    storage.check()
    assert not storage.arrays[0].any()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_file_that_became_a_folder_or_a_pipe_is_refused_unless_it_is_mapped(make, tmp_path):
    path = tmp_path / "replaced"
    path.write_bytes(bytes(10_000))
    files = opened(path)
    mapped = MappedStorage(files)
    files.close()  # as if many others had been opened since
    path.unlink()
    make(path)
    mapped.check()
    with pytest.raises(StorageError, match=r"replaced: .*replaced"):
        files.check()
    with pytest.raises((IsADirectoryError, FormatError)):
        open_bytes(path, files.identities[0])


def test_a_file_that_is_refused_is_closed_though_its_error_is_kept(tmp_path):
    path = tmp_path / "rewritten"
    path.write_bytes(bytes(10_000))
    (identity,) = opened(path).identities
    os.utime(path, ns=(1, 1))
    errors = []
    for _ in range(3):
        with pytest.raises(StorageError) as caught:
            open_bytes(path, identity)
        errors.append(caught)
    assert times_open(path) == 0


def test_the_system_is_asked_for_mapped_regions_that_it_does_not_hold(path, monkeypatch):
    announced = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, start, count, advice: announced.append((start, count, advice)))
    storage = MappedStorage(opened(path))
    offset, size = u8(1_000_000, 0, 1_003_000), u8(2000, 10, 500)

    monkeypatch.setattr(LocalFile, "is_cached", lambda *_: True)
    storage.fetch(offset, size)
    assert announced == []

    monkeypatch.setattr(LocalFile, "is_cached", lambda *_: False)
    storage.fetch(offset, size)
    assert announced == [(0, 10, os.POSIX_FADV_WILLNEED), (1_000_000, 3500, os.POSIX_FADV_WILLNEED)]


def test_the_middle_byte_of_each_region_of_a_large_batch_is_probed_and_never_one_after_the_end(path, monkeypatch):
    probed = []
    monkeypatch.setattr(LocalFile, "is_cached", lambda _, *positions: probed.extend(positions) or True)
    MappedStorage(opened(path)).fetch(u8(1_000_000, 3_000_000), u8(2000, 0))
    assert probed == [1_001_000, 2_999_999]
    storage = MappedStorage(opened(path))
    for _ in range(100):
        storage.fetch(np.arange(8, dtype=np.uint64), np.full(8, 1 << 18, np.uint64))
    assert len(probed) == 2 + 800


def test_few_batches_are_probed_while_the_system_holds_the_file_and_all_again_once_it_does_not(path, monkeypatch):
    probed, holds = [], True
    monkeypatch.setattr(LocalFile, "is_cached", lambda _, *positions: probed.extend(positions) or holds)
    storage = MappedStorage(opened(path))

    def probes():
        probed.clear()
        storage.fetch(np.arange(256, dtype=np.uint64), np.ones(256, np.uint64))
        return len(probed)

    assert [probes() for _ in range(64)] == 64 * [8]
    assert 100 <= sum(probes() for _ in range(200)) <= 200
    holds = False
    while not probes():
        pass
    holds = True
    assert [probes(), probes()] == [8, 8]


@pytest.mark.parametrize("error", [BlockingIOError, OSError(errno.EOPNOTSUPP, "not here")])
def test_a_file_that_was_just_written_is_found_in_memory_and_one_that_may_not_be_there_is_not(path, monkeypatch, error):
    def preadv(*arguments):
        raise error

    source = opened(path).open(0)
    assert source.is_cached(0, 2_999_999)
    monkeypatch.setattr(os, "preadv", preadv)
    assert not source.is_cached(2_999_999)


@pytest.fixture
def counted_reads(monkeypatch):
    calls = []
    preadv = os.preadv

    def counting(file, buffers, offset, *flags):
        calls.append((offset, sum(len(buffer) for buffer in buffers)))
        return preadv(file, buffers, offset, *flags)

    monkeypatch.setattr(os, "preadv", counting)
    return calls


@pytest.mark.parametrize(
    ("offset", "size", "options", "reads"),
    [
        ((1000, 500, 1000, 2_000_000), (100, 400, 50, 10), {}, [(500, 600), (2_000_000, 10)]),
        ((0, 600, 1200), (600, 600, 5000), {"max_read": 1000}, [(0, 600), (600, 600), (1200, 5000)]),
        ((0, 600, 9000), (600, 401, 10), {"max_read": 1000}, [(0, 600), (600, 401), (9000, 10)]),
    ],
)
def test_each_byte_is_read_once_near_regions_together_and_long_ranges_cut(
    path, counted_reads, offset, size, options, reads
):
    storage = LoadedStorage(opened(path), **options)
    storage.fetch(u8(*offset), u8(*size)).addresses()
    storage.close()
    assert sorted(counted_reads) == reads


def test_as_many_reads_as_keep_a_file_busy_are_in_flight_at_once(path, monkeypatch):
    together, preadv = threading.Barrier(LocalFile.num_readers), os.preadv

    def meeting(file, buffers, offset):
        together.wait()
        return preadv(file, buffers, offset)

    monkeypatch.setattr(os, "preadv", meeting)
    storage = LoadedStorage(opened(path))
    offset, size = np.arange(LocalFile.num_readers) * 300_000, [10] * LocalFile.num_readers
    assert content_at(storage.fetch(u8(*offset), u8(*size)), size) == content_of(offset, size)
    storage.close()


def test_a_read_that_brings_less_than_asked_for_is_continued(path, monkeypatch):
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, buffers, offset: preadv(file, [buffers[0][:1000]], offset))
    storage = LoadedStorage(opened(path))
    fetch = storage.fetch(u8(123), u8(4567))
    assert content_at(fetch, [4567]) == content_of([123], [4567])
    storage.close()


def test_a_file_that_is_cut_short_while_it_is_read_gives_an_error_with_both_numbers(tmp_path):
    path = tmp_path / "shrinking"
    path.write_bytes(bytes(10_000))
    storage = LoadedStorage(opened(path))
    os.truncate(path, 5000)
    fetch = storage.fetch(u8(4000), u8(3000))
    with pytest.raises(StorageError, match=r"3000 bytes from 4000 .* 1000 .* 10000 "):
        fetch.addresses()
    fetch.release()
    storage.close()


def test_an_error_of_the_disk_is_reported_with_the_position_and_the_next_fetch_works(path, monkeypatch):
    def broken(file, buffers, offset):
        raise OSError(errno.EIO, "Input/output error")

    storage = LoadedStorage(opened(path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", broken)
        fetch = storage.fetch(u8(77), u8(11))
        with pytest.raises(StorageError, match=r"11 bytes from 77 .*Input/output error"):
            fetch.addresses()
        fetch.release()
    fetch = storage.fetch(u8(77), u8(11))
    assert content_at(fetch, [11]) == content_of([77], [11])
    storage.close()


@pytest.mark.parametrize("broken", [{0}, {1_000_000}, {2_000_000}, {0, 2_000_000}])
def test_the_first_error_of_a_fetch_is_raised_whether_or_not_its_other_reads_fail(path, monkeypatch, broken):
    preadv = os.preadv

    def breaking(file, buffers, offset):
        if offset in broken:
            raise OSError(errno.EIO, "Input/output error")
        return preadv(file, buffers, offset)

    monkeypatch.setattr(os, "preadv", breaking)
    files = opened(path)
    files.open(0).num_readers = 1  # one read after the other
    storage = LoadedStorage(files)
    fetch = storage.fetch(u8(0, 1_000_000, 2_000_000), u8(10, 10, 10))
    with pytest.raises(StorageError, match=f"10 bytes from {min(broken)} on"):
        fetch.addresses()
    storage.close()


def test_memory_is_reused_but_never_while_a_fetch_reads_it(path):
    storage = LoadedStorage(opened(path))
    first = storage.fetch(u8(0), u8(2_000_000))
    address = int(first.addresses()[0])
    second = storage.fetch(u8(0), u8(2_000_000))
    assert abs(int(second.addresses()[0]) - address) >= 2_000_000
    first.release()
    first.release()
    third = storage.fetch(u8(10), u8(1_000_000))
    assert int(third.addresses()[0]) == address
    fourth = storage.fetch(u8(10), u8(1_000_000))
    assert int(fourth.addresses()[0]) != address
    storage.close()


def test_memory_that_is_released_before_its_reads_have_ended_is_not_given_to_others(path, monkeypatch):
    go, preadv = threading.Event(), os.preadv

    def slow(file, buffers, offset):
        go.wait()
        return preadv(file, buffers, offset)

    monkeypatch.setattr(os, "preadv", slow)
    storage = LoadedStorage(opened(path))
    first = storage.fetch(u8(0), u8(1000))
    assert not first.is_ready
    first.release()
    second = storage.fetch(u8(1_000_000), u8(1000))
    go.set()
    assert content_at(second, [1000]) == content_of([1_000_000], [1000])
    assert int(first.addresses()[0]) != int(second.addresses()[0])
    storage.close()


def test_a_thread_that_waits_for_work_holds_no_memory(path):
    storage = LoadedStorage(opened(path), staging=Staging(blocks := Blocks()))
    storage.fetch(u8(0), u8(1000)).addresses()
    while blocks.alive():  # the thread lets go of it after the bytes are there
        time.sleep(0.001)
    storage.close()


def fetch_until_refused(storage):
    while True:
        storage.fetch(u8(), u8())


def test_closing_drops_the_reads_that_were_not_begun(path, monkeypatch):
    is_begun, go, preadv = threading.Event(), threading.Event(), os.preadv

    def slow(file, buffers, offset):
        is_begun.set()
        go.wait()
        return preadv(file, buffers, offset)

    monkeypatch.setattr(os, "preadv", slow)
    files = opened(path)
    files.open(0).num_readers = 1
    storage = LoadedStorage(files)
    begun, waiting = storage.fetch(u8(100), u8(50)), storage.fetch(u8(200), u8(50))
    is_begun.wait()
    closing = threading.Thread(target=storage.close)
    closing.start()
    with pytest.raises(LoaderClosedError):
        fetch_until_refused(storage)
    go.set()
    closing.join()
    assert content_at(begun, [50]) == content_of([100], [50])
    with pytest.raises(LoaderClosedError, match="closed"):
        waiting.addresses()


def test_closing_ends_the_threads_though_many_reads_are_waiting(path, monkeypatch):
    storage = LoadedStorage(opened(path))
    place = np.arange(0, 2_900_000, 10_000, dtype=np.uint64)
    fetches = [storage.fetch(place, np.full(len(place), 10, np.uint64)) for _ in range(20)]
    storage.close()
    for fetch in fetches:  # none of them waits for ever
        with suppress(LoaderClosedError):
            fetch.addresses()
    with pytest.raises(LoaderClosedError):
        storage.fetch(u8(0), u8(1))
