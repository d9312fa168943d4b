from __future__ import annotations

import os

import pytest

from gpubeton.cli import environment
from gpubeton.cli.environment import (
    OtherPrograms,
    read_file_place,
    resident_share,
    sampled_spans,
)
from tests.test_machine import tree


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data set" / "a.beton"
    path.parent.mkdir()
    path.write_bytes(os.urandom(10_000))
    return path


def rooted(tmp_path, file, kind):
    escaped = str(file.parent).replace(" ", "\\040")
    mounts = f"server:/x {escaped} {kind} rw 0 0\ntmpfs {escaped}/b tmpfs rw 0 0\nrootfs / ext4 rw 0 0\n"
    return tree(tmp_path / "root", {"proc/self/mounts": mounts})


@pytest.mark.parametrize(
    ("kind", "is_network"),
    [("nfs4", True), ("fuse.s3fs", True), ("ext4", False)],
)
def test_the_nearest_mount_shows_whether_it_is_a_network(tmp_path, file, kind, is_network):
    place = read_file_place(file, rooted(tmp_path, file, kind))
    assert (place.file_system, place.is_network) == (kind, is_network)
    assert place.size == 10_000


def test_unknown_facts_are_not_guessed(tmp_path, file):
    place = read_file_place(file, tmp_path)
    assert (place.file_system, place.is_network) == ("", False)
    with pytest.raises(FileNotFoundError):
        read_file_place(tmp_path / "none")


def test_a_file_just_written_is_in_memory_and_looking_does_not_bring_it_there(file, tmp_path):
    assert read_file_place(file).resident_share == 1.0
    empty = tmp_path / "empty"
    empty.touch()
    assert read_file_place(empty).resident_share == 1.0
    cold = tmp_path / "cold"
    with cold.open("wb") as opened:
        opened.write(os.urandom(8 << 20))
        opened.flush()
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 6 << 20, os.POSIX_FADV_DONTNEED)
    if read_file_place(cold).resident_share == 1.0:
        pytest.skip("the file system keeps its pages in memory")
    for _ in range(2):
        assert read_file_place(cold).resident_share == pytest.approx(0.25, abs=0.01)


def test_holes_are_no_bytes_that_a_disk_has_to_read(tmp_path):
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as opened:
        for start in (0, 40 << 20):
            opened.seek(start)
            opened.write(os.urandom(1 << 20))
        opened.truncate(50 << 20)
    if sparse.stat().st_blocks * 512 > 40 << 20:
        pytest.skip("the file system writes down holes")
    place = read_file_place(sparse)
    assert (place.size, place.resident_share) == (2 << 20, 1.0)
    with sparse.open("rb") as opened:
        opened.seek(20 << 20)
        opened.read(1 << 20)  # puts pages of zeros into memory
    assert read_file_place(sparse).resident_share == 1.0


def test_of_a_large_file_parts_from_beginning_to_end_are_sampled():
    spans = sampled_spans([(0, 1 << 20), (40 << 30, 100 << 30)])
    assert (spans[0], spans[-1]) == ((0, 1 << 20), ((100 << 30) - (4 << 20), 100 << 30))
    assert len(spans) == 64
    assert sampled_spans([(100, 5000), (9000, 9001)]) == [(0, 5000), (8192, 9001)]
    assert resident_share("not opened", []) == 1.0


def test_cores_that_other_programs_take_are_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda _: {0, 3})
    monkeypatch.setattr(environment.os, "sysconf", lambda _: 100)
    clock, process_clock = iter([10.0, 14.0]), iter([2.0, 5.0])
    monkeypatch.setattr(environment.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(environment.time, "process_time", lambda: next(process_clock))
    # user nice system idle iowait irq softirq steal guest guest_nice
    line = "cpu{} {} 0 10 {} 700 1 2 {} 0 0\n"
    first = "".join(line.format(core, 100, 5000, 0) for core in (0, 1, 3))
    others = OtherPrograms(tree(tmp_path, {"proc/stat": "cpu  9 9\n" + first + "intr 5\n"}))
    later = line.format(0, 400, 5100, 0) + line.format(1, 999, 5000, 0) + line.format(3, 300, 5150, 50)
    tree(tmp_path, {"proc/stat": later})
    # In 4 s the cores 0 and 3 were busy for 3 s and 2.5 s, 3 s of it for this process.
    assert others.cores() == pytest.approx((5.5 - 3) / 4)
    monkeypatch.undo()
    assert OtherPrograms(tmp_path / "none").cores() is None
