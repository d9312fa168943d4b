"""The node's cache: one fetch for all processes, a limit, other versions, broken disks, reboots."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

from gpubeton._bytes import node_cache, open_bytes
from gpubeton._bytes.node_cache import NodeCache
from gpubeton._bytes.open_files import parse_size
from gpubeton.errors import OptionError, StorageError
from tests.at_once import run_at_once
from tests.bytes.versioned_source import forget_requests, on_its_way, put, requests_of

PAGE = 1 << 14
LONG = PAGE // 8
BLOCK = 4096


def content_of(seed, size=5 * PAGE + 100):
    return np.random.default_rng(seed).bytes(size)


@pytest.fixture
def name(tmp_path):
    return put(tmp_path / "object", content_of(1))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def make_cache(folder, limit=1 << 30):
    return NodeCache(folder, limit, page_size=PAGE)


def open_in(cache, name):
    source = open_bytes(name)
    return cache.open(source, source.identity())


def reboot(folder):
    """Let the files of a cache be as an earlier boot of the machine has left them."""
    for pages in folder.glob("objects/*/pages"):
        entries = np.fromfile(pages, "<u4").reshape(-1, 2)  # the tag of a boot and a checksum
        entries[:, 0] += entries[:, 0] != 0
        with pages.open("r+b") as file:  # processes have it mapped
            file.write(entries.tobytes())
    tag, used = np.fromfile(folder / "space", "<u8")
    (folder / "space").write_bytes(np.array([tag + np.uint64(1), used]).tobytes())


def object_of(folder):
    (result,) = (folder / "objects").iterdir()
    return result


def test_a_page_is_fetched_once_and_every_region_is_right(name, folder):
    expected = content_of(1)
    file = open_in(make_cache(folder), name)
    for start, size in [(PAGE - 5, PAGE), (3, 3 * PAGE), (7, 1), (5 * PAGE, 100), (0, len(expected)), (PAGE - 1, 2)]:
        assert bytes(file.load(start, size)) == expected[start : start + size]
    assert sorted(requests_of(name)) == [(page * PAGE, PAGE) for page in range(5)] + [(5 * PAGE, 100)]
    assert file.is_complete
    assert file.map().tobytes() == expected


def test_a_view_is_the_mapped_file_itself_and_lives_longer_than_the_cache(name, folder):
    file = open_in(make_cache(folder), name)
    assert file.load(0, 5 * PAGE + 100)
    view = file.load(100, 50)
    mapped = file.map()
    assert np.frombuffer(view, np.uint8).ctypes.data == mapped.ctypes.data + 100
    assert view.readonly
    del file, mapped
    gc.collect()
    assert bytes(view) == content_of(1)[100:150]


def test_reading_a_range_uses_cached_pages_and_fetches_no_page(name, folder):
    file = open_in(make_cache(folder), name)
    assert file.read(10, 20) == content_of(1)[10:30]
    assert requests_of(name) == [(10, 20)]
    file.ensure(0)
    forget_requests(name)
    assert file.read(10, 20) == content_of(1)[10:30]
    assert requests_of(name) == []
    assert file.read(PAGE - 1, 2) == content_of(1)[PAGE - 1 : PAGE + 1]
    assert requests_of(name) == [(PAGE, 1)]


def test_a_short_region_is_taken_from_a_page_that_is_there_and_fetches_none(name, folder):
    cache = make_cache(folder)
    counts, file = cache.begin_counting(), open_in(cache, name)
    assert bytes(file.load(PAGE + 5, LONG - 1)) == content_of(1)[PAGE + 5 : PAGE + 4 + LONG]
    assert requests_of(name) == [(PAGE + 5, LONG - 1)]
    assert file.load(PAGE + 5, LONG)
    assert bytes(file.load(PAGE + 5, LONG - 1)) == content_of(1)[PAGE + 5 : PAGE + 4 + LONG]
    assert requests_of(name) == [(PAGE + 5, LONG - 1), (PAGE, PAGE)]
    assert (counts.requests, counts.nbytes, counts.cached_nbytes) == (2, PAGE + LONG - 1, LONG - 1)


def test_a_later_run_fetches_nothing(name, folder):
    with open_in(make_cache(folder), name) as file:
        file.load(0, 2 * PAGE)
    forget_requests(name)
    cache = make_cache(folder)
    counts = cache.begin_counting()
    with open_in(cache, name) as file:
        assert (file.count_pages(), file.is_complete) == (2, False)
        assert bytes(file.load(0, 2 * PAGE)) == content_of(1)[: 2 * PAGE]
        with pytest.raises(StorageError, match="2 of 6 pages"):
            file.map()
    assert requests_of(name) == []
    assert (counts.requests, counts.nbytes, counts.cached_nbytes) == (0, 0, 2 * PAGE)


FETCH = """
import sys
import tests.bytes.versioned_source
from tests.bytes.test_node_cache import make_cache, open_in, content_of
folder, name, seed = sys.argv[1:]
file = open_in(make_cache(folder), name)
print("ready", flush=True)
sys.stdin.readline()
import numpy as np
expected = content_of(1)
for page in np.random.default_rng(int(seed)).permutation(file.num_pages).tolist():
    start = page * 16384 + 7
    size = min(16384 - 7, len(expected) - start)
    assert bytes(file.load(start, size)) == expected[start : start + size]
"""


def start_process(code, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
    )  # fmt: skip


def test_four_processes_fetch_each_page_once(name, folder):
    processes = [start_process(FETCH, folder, name, seed) for seed in range(4)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 4
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * 4
    assert sorted(requests_of(name)) == [(page * PAGE, PAGE) for page in range(5)] + [(5 * PAGE, 100)]


def test_threads_of_a_process_fetch_each_page_once(name, folder):
    file, results = open_in(make_cache(folder), name), []
    begin = threading.Barrier(8)

    def work():
        begin.wait()
        results.extend(bytes(file.load(page * PAGE, min(LONG, 100 if page == 5 else PAGE))) for page in range(6))

    run_at_once(lambda _: work(), range(8))
    assert sorted(results) == sorted([content_of(1)[page * PAGE : page * PAGE + LONG] for page in range(6)] * 8)
    assert len(requests_of(name)) == 6


def test_a_page_claimed_by_another_is_skipped_without_waiting(name, folder):
    file = open_in(make_cache(folder), name)
    with on_its_way(file, 2 * PAGE):
        assert not file.ensure(2, waits=False)
        assert file.ensure(3, waits=False)
        assert requests_of(name) == [(3 * PAGE, PAGE)]
    assert file.ensure(2, waits=False)
    assert requests_of(name) == [(3 * PAGE, PAGE), (2 * PAGE, PAGE)]


def test_a_replaced_object_never_gives_a_page_of_the_old_one(name, folder, tmp_path):
    cache = make_cache(folder)
    old = open_in(cache, name)
    old.load(0, PAGE)
    put(tmp_path / "object", content_of(2))
    new = open_in(cache, name)
    assert bytes(new.load(0, PAGE)) == content_of(2)[:PAGE]
    assert bytes(old.load(0, PAGE)) == content_of(1)[:PAGE]  # cached, and of the opened version
    with pytest.raises(StorageError, match="replaced"):
        old.load(PAGE, PAGE)
    # The failed fetch has left nothing that another could take for a page.
    put(tmp_path / "object", content_of(1))
    assert bytes(open_in(cache, name).load(PAGE, PAGE)) == content_of(1)[PAGE : 2 * PAGE]


def test_pages_that_are_there_stay_and_others_are_read_from_the_source_when_the_limit_is_reached(name, folder):
    cache = make_cache(folder, limit=3 * PAGE)
    file, expected = open_in(cache, name), content_of(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for page in [4, 1, 3, 0, 2]:
            assert bytes(file.load(page * PAGE, LONG)) == expected[page * PAGE : page * PAGE + LONG]
    assert (file.count_pages(), cache.is_full) == (3, True)
    assert cache.used <= 3 * PAGE
    forget_requests(name)
    for page in range(5):
        assert bytes(file.load(page * PAGE, LONG)) == expected[page * PAGE : page * PAGE + LONG]
    assert len(requests_of(name)) == 2
    assert all(size == LONG for _, size in requests_of(name))


def test_of_a_region_that_exceeds_the_limit_only_missing_pages_are_fetched(name, folder):
    cache = make_cache(folder, limit=2 * PAGE)
    counts, file = cache.begin_counting(), open_in(cache, name)
    for page in (1, 3):
        assert file.ensure(page)
    forget_requests(name)
    assert bytes(file.load(100, 5 * PAGE)) == content_of(1)[100 : 5 * PAGE + 100]
    assert requests_of(name) == [(100, PAGE - 100), (2 * PAGE, PAGE), (4 * PAGE, PAGE), (5 * PAGE, 100)]
    assert (counts.nbytes, counts.cached_nbytes) == (5 * PAGE, 2 * PAGE)


def test_objects_that_no_process_uses_make_room_those_opened_longest_ago_first(folder, tmp_path):
    names = [put(tmp_path / str(number), content_of(number, 4 * PAGE)) for number in range(4)]
    for number in (2, 0, 1, 2):
        cache = make_cache(folder)
        cache.hold([open_bytes(names[number]).identity()])
        with open_in(cache, names[number]) as file:
            file.load(0, 4 * PAGE)
        del cache, file
        gc.collect()
    used_by_holder = make_cache(folder)
    used_by_holder.hold([open_bytes(names[0]).identity()])
    cache = make_cache(folder, limit=14 * PAGE)
    file = open_in(cache, names[3])
    assert bytes(file.load(0, 4 * PAGE)) == content_of(3, 4 * PAGE)
    assert file.is_complete
    assert cache.used <= 14 * PAGE
    counts = []
    for number in range(3):
        with open_in(make_cache(folder), names[number]) as other:
            counts.append(other.count_pages())
            assert bytes(other.load(0, 4 * PAGE)) == content_of(number, 4 * PAGE)
    assert counts[0] == counts[2] == 4
    assert counts[1] < 4


def test_a_view_keeps_the_pages_of_its_object_in_use(folder, tmp_path):
    first, second = (put(tmp_path / str(number), content_of(number, 4 * PAGE)) for number in range(2))
    view = open_in(make_cache(folder), first).load(0, 4 * PAGE)
    gc.collect()
    cache = make_cache(folder, limit=5 * PAGE)
    open_in(cache, second).load(0, 4 * PAGE)
    assert bytes(view) == content_of(0, 4 * PAGE)
    del view
    gc.collect()
    file = open_in(make_cache(folder, limit=5 * PAGE), second)
    file.load(0, 4 * PAGE)
    assert file.is_complete


@pytest.mark.parametrize("fails", ["fallocate", "punch"])
def test_a_file_system_that_cannot_allocate_or_free_parts_of_files_is_enough(folder, tmp_path, monkeypatch, fails):
    original = node_cache.fallocate
    monkeypatch.setattr(
        node_cache, "fallocate",
        lambda descriptor, mode, *part: (fails == "punch" and mode == 1) and original(descriptor, mode, *part),
    )  # fmt: skip
    names = [put(tmp_path / str(number), content_of(number, 4 * PAGE)) for number in range(3)]
    for number, name in enumerate(names):
        cache = make_cache(folder, limit=6 * PAGE)
        with open_in(cache, name) as file:
            assert bytes(file.load(0, 4 * PAGE)) == content_of(number, 4 * PAGE)
            assert file.is_complete
        assert cache.used <= 6 * PAGE
        del cache, file
        gc.collect()


def test_after_a_reboot_pages_are_compared_with_their_checksums_at_first_use(name, folder):
    with open_in(make_cache(folder), name) as file:
        file.load(0, 5 * PAGE + 100)
    data = object_of(folder) / "data"
    with data.open("r+b") as written:  # what a disk may lose
        written.seek(2 * PAGE + 100)
        written.write(bytes(BLOCK))
    forget_requests(name)
    reboot(folder)
    file = open_in(make_cache(folder), name)
    assert not file.is_complete
    assert bytes(file.load(0, 5 * PAGE + 100)) == content_of(1)
    assert requests_of(name) == [(2 * PAGE, PAGE)]
    assert file.is_complete


def test_a_page_whose_process_was_killed_before_its_entry_is_fetched_again_and_takes_its_room_once(name, folder):
    cache = make_cache(folder)
    file = open_in(cache, name)
    with (object_of(folder) / "data").open("r+b") as data:
        assert cache.reserve(data.fileno(), 0, PAGE)
        data.write(bytes(PAGE))
    used = cache.used
    assert bytes(file.load(0, PAGE)) == content_of(1)[:PAGE]
    assert cache.used == used


def test_a_process_killed_while_it_counts_makes_the_next_one_count_again(name, folder):
    cache = make_cache(folder)
    open_in(cache, name).load(0, 3 * PAGE)
    used = cache.used
    (folder / "space").write_bytes(bytes(16))
    assert cache.used >= used
    (folder / "space").write_bytes(b"damaged")
    assert cache.used >= used


@pytest.mark.parametrize("lost", ["data", "pages", "info.json"])
def test_a_half_removed_object_gives_no_wrong_byte(name, folder, lost):
    with open_in(make_cache(folder), name) as file:
        file.load(0, 5 * PAGE + 100)
    (object_of(folder) / lost).unlink()
    file = open_in(make_cache(folder), name)
    assert bytes(file.load(0, 5 * PAGE + 100)) == content_of(1)


def test_an_object_whose_entries_were_cut_makes_room_as_others_do(folder, tmp_path):
    first, second = (put(tmp_path / str(number), content_of(number, 4 * PAGE)) for number in (1, 2))
    with open_in(make_cache(folder), first) as file:
        file.load(0, 4 * PAGE)
    os.truncate(object_of(folder) / "pages", 13)
    del file
    gc.collect()
    file = open_in(make_cache(folder, limit=5 * PAGE), second)
    assert bytes(file.load(0, 4 * PAGE)) == content_of(2, 4 * PAGE)
    assert file.is_complete


def test_a_full_disk_is_one_warning_and_no_error(name, folder, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    file = open_in(make_cache(folder), name)
    file.load(0, PAGE)
    monkeypatch.setattr(node_cache, "_allocate", fail)
    with pytest.warns(UserWarning, match="No space left") as caught:
        results = [bytes(file.load(0, 5 * PAGE + 100)), bytes(file.load(2 * PAGE, 5))]
    assert results == [content_of(1), content_of(1)[2 * PAGE : 2 * PAGE + 5]]
    assert len(caught) == 1


def test_a_directory_that_vanishes_is_one_warning_and_no_error(name, folder):
    file = open_in(make_cache(folder), name)
    kept = file.load(0, PAGE)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.warns(UserWarning, match="cannot keep"):
        assert bytes(file.load(0, 5 * PAGE + 100)) == content_of(1)
    assert bytes(kept) == content_of(1)[:PAGE]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_an_error(folder):
    folder.mkdir(mode=0o500)
    with pytest.raises(StorageError, match="writable"):
        make_cache(folder)


def test_a_cache_dir_that_cannot_be_one_is_an_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file"):
        make_cache(tmp_path / "file")
    with pytest.raises(StorageError, match="cannot be used"):
        make_cache("/proc/cache")


def test_a_file_system_without_locks_of_bytes_is_an_error(folder, monkeypatch):
    def fail(*_, **__):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("gpubeton._bytes.local_file.fcntl.fcntl", fail)
    with pytest.raises(StorageError, match="lock parts of files"):
        make_cache(folder)


def test_an_object_without_a_version_is_read_from_its_source(name, folder, monkeypatch):
    source = open_bytes(name)
    monkeypatch.setattr(type(source.identity()), "cache_key", None)
    assert make_cache(folder).open(source, source.identity()) is source


def test_the_default_limit_leaves_room_on_the_disk(folder, monkeypatch):
    def free(nbytes):
        monkeypatch.setattr(
            os, "statvfs", lambda _: os.statvfs_result((1, BLOCK, 0, 0, nbytes // BLOCK, 0, 0, 0, 0, 0))
        )
        return NodeCache(folder).limit

    assert free(10**12) == pytest.approx(0.75e12, rel=1e-6)
    assert free(100 * 10**9) == pytest.approx(50e9, rel=1e-6)
    with pytest.warns(UserWarning, match="nothing will be kept.*cache_limit"):
        assert free(10**9) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [(5, 5), ("800 GB", 800 * 10**9), ("1.5TiB", 3 << 39), ("100", 100), ("64 mib", 64 << 20), (" 3 k ", 3000)],
)
def test_sizes_are_numbers_or_text(text, expected):
    assert parse_size("cache_limit", text) == expected


@pytest.mark.parametrize("text", ["", "GB", "-5", -5, 1.5, True, "5 apples", None, "1e9"])
def test_an_invalid_size_is_an_error_that_names_the_argument(text):
    with pytest.raises(OptionError, match="cache_limit"):
        parse_size("cache_limit", text)
