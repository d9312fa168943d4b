from __future__ import annotations

import os

import pytest

from gpubeton.diagnosis.environment import read_file_place, resident_share
from tests.test_machine import tree


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data set" / "a.beton"
    path.parent.mkdir()
    path.write_bytes(os.urandom(10_000))
    return path


def rooted(tmp_path, file, kind, rotational):
    status = file.stat()
    device = f"sys/dev/block/{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    escaped = str(file.parent).replace(" ", "\\040")
    mounts = f"server:/x {escaped} {kind} rw 0 0\ntmpfs {escaped}/b tmpfs rw 0 0\nrootfs / ext4 rw 0 0\n"
    return tree(tmp_path / "root", {"proc/self/mounts": mounts, f"{device}/queue/rotational": rotational})


@pytest.mark.parametrize(("kind", "is_network"), [("nfs4", True), ("fuse.s3fs", True), ("ext4", False)])
def test_the_nearest_mount_says_whether_it_is_a_network(tmp_path, file, kind, is_network):
    place = read_file_place(file, rooted(tmp_path, file, kind, "0\n"))
    assert (place.file_system, place.device, place.is_network) == (kind, "server:/x", is_network)
    assert (place.is_rotational, place.size) == (False, 10_000)


def test_a_disk_that_turns_says_so(tmp_path, file):
    assert read_file_place(file, rooted(tmp_path, file, "ext4", "1\n")).is_rotational is True


def test_a_partition_asks_its_disk(tmp_path, file):
    status = file.stat()
    root = tree(tmp_path / "root", {"sys/devices/sda/queue/rotational": "1\n", "sys/devices/sda/sda1/size": "7"})
    link = root / f"sys/dev/block/{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(root / "sys/devices/sda/sda1")
    assert read_file_place(file, root).is_rotational is True


def test_what_is_not_known_is_not_guessed(tmp_path, file):
    place = read_file_place(file, tmp_path)
    assert (place.file_system, place.is_network, place.is_rotational) == ("", False, None)
    with pytest.raises(FileNotFoundError):
        read_file_place(tmp_path / "none")


def test_a_file_just_written_is_in_memory_and_looking_does_not_bring_it_there(file, tmp_path):
    assert resident_share(file) == 1.0
    empty = tmp_path / "empty"
    empty.touch()
    assert resident_share(empty) == 1.0
    hole = tmp_path / "hole"
    with hole.open("wb") as opened:
        opened.truncate(50 << 20)
    assert resident_share(hole) == 0.0
    assert resident_share(hole) == 0.0
    with hole.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        opened.read(25 << 20)
    assert resident_share(hole) == pytest.approx(0.5, abs=0.05)


def test_of_a_large_file_parts_are_looked_at_from_its_beginning_to_its_end(tmp_path):
    large = tmp_path / "hole"
    with large.open("wb") as opened:
        opened.truncate(100 << 30)
    with large.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for start in (0, (100 << 30) - (4 << 20)):
            opened.seek(start)
            opened.read(4 << 20)
    assert resident_share(large) == 2 / 64
