"""The files of a dataset: few descriptors, and mappings that need none."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

from gpubeton._bytes import open_bytes, source_type
from gpubeton._bytes.open_files import OpenSources
from gpubeton.errors import StorageError
from tests.at_once import run_at_once

LocalFile = source_type("a path")
CONTENTS = [np.random.default_rng(number).bytes(20_000 + number) for number in range(5)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for number, content in enumerate(CONTENTS):
        (folder / str(number)).write_bytes(content)
    return [(folder / str(number), LocalFile.find_identity(folder / str(number))) for number in range(len(CONTENTS))]


def is_open(descriptor):
    return Path(f"/proc/self/fd/{descriptor}").exists()


def test_the_files_used_last_stay_open_and_others_as_long_as_they_are_referenced(files):
    opened = OpenSources(files, max_open=2)
    first = opened.open(0)
    second = opened.open(1).descriptor
    assert opened.open(0) is first
    opened.open(2)
    assert (is_open(first.descriptor), is_open(second)) == (True, False)
    opened.open(3)
    opened.open(4)
    number = first.descriptor
    assert first.read(5, 3) == CONTENTS[0][5:8]
    del first
    assert not is_open(number)


def test_closing_closes_files_without_references(files):
    opened = OpenSources(files)
    numbers = [opened.open(number).descriptor for number in range(3)]
    opened.close()
    opened.close()
    assert not any(map(is_open, numbers))


def test_a_file_is_compared_with_its_identity_when_it_is_opened_and_on_request(files, tmp_path):
    grown = tmp_path / "grown"
    grown.write_bytes(b"abc")
    opened = OpenSources([*files, (grown, LocalFile.find_identity(grown))])
    opened.check()
    grown.write_bytes(b"abcd")
    for check in (opened.check, lambda: opened.open(5)):
        with pytest.raises(StorageError, match=r"grown: 4 bytes, .*3 "):
            check()
    grown.unlink()
    with pytest.raises(FileNotFoundError):
        opened.check()


def test_a_file_that_stays_open_is_read_though_another_has_its_name_and_one_that_was_closed_is_refused(tmp_path):
    paths = [tmp_path / name for name in ("kept", "closed")]
    for path in paths:
        path.write_bytes(b"old")
    opened = OpenSources([(path, LocalFile.find_identity(path)) for path in paths], max_open=1)
    opened.open(1)
    opened.hold()
    for path in paths:
        new = path.with_suffix(".new")
        new.write_bytes(b"new")
        os.utime(new, ns=(1, path.stat().st_mtime_ns))  # only the inode differs
        new.rename(path)
    assert opened.open(0).read(0, 3) == b"old"
    with pytest.raises(StorageError, match=r"closed: another .*inode"):
        opened.check()
    opened.check(is_mapped=True)
    with pytest.raises(StorageError, match=r"closed: another .*inode"):
        opened.open(1)


@pytest.mark.parametrize("is_random", [True, False])
def test_the_system_is_advised_whether_files_are_read_in_random_order(files, monkeypatch, is_random):
    advised = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, start, count, advice: advised.append((start, count, advice)))
    OpenSources(files[:2], is_random=is_random).hold()
    assert advised == [(0, 0, os.POSIX_FADV_RANDOM)] * 2 * is_random


def test_several_threads_may_open_files_at_once(files):
    opened, wrong = OpenSources(files, max_open=2), []

    def use(start):
        for step in range(300):
            number = (start + step) % 5
            descriptor = opened.open(number)
            if descriptor.read(100, 4) != CONTENTS[number][100:104]:
                wrong.append(number)

    run_at_once(use, range(4))
    assert wrong == []


def mappings_of(path):
    return sum(str(path) in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_a_mapping_lives_as_long_as_any_view_of_it_and_no_longer(files):
    path = files[1][0]
    with open_bytes(path) as source:
        content = source.map()
    part = content[10:20]
    del content
    gc.collect()
    assert mappings_of(path) == 1
    assert part.tobytes() == CONTENTS[1][10:20]
    with pytest.raises(ValueError, match="read-only"):
        part[0] = 1
    del part
    gc.collect()
    assert mappings_of(path) == 0


def test_a_file_that_cannot_be_mapped_is_reported_with_its_size(tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    with open_bytes(empty) as source, pytest.raises(OSError, match=r"0 bytes .*mapped"):
        source.map()
