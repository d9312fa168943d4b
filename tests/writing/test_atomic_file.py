from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat

import pytest

from gpubeton._writing import AtomicFile
from gpubeton.errors import StorageError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def make_leftover(folder, name):
    """Make the file of a killed process, which is no longer locked."""
    path = folder / f".{name}.0123456789abcdef.partial"
    path.write_bytes(b"half")
    return path


def test_nothing_has_the_name_before_the_commit_and_an_older_file_stays_until_then(tmp_path):
    path = tmp_path / "data.beton"
    for content, before in ((b"abc", []), (b"new one", ["data.beton"])):
        with AtomicFile(path) as file:
            file.write(0, content)
            assert names(tmp_path) == [file.temporary.name, *before]
            assert file.temporary.name.startswith(".data.beton.")
            assert not before or path.read_bytes() == b"abc"
            file.commit()
            assert names(tmp_path) == ["data.beton"]
        assert path.read_bytes() == content


def write_and(path, action, offset=0, content=b"half"):
    with AtomicFile(path) as file:
        file.write(offset, content)
        action(file)


def throw(error):
    raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_the_older_file_and_nothing_else(error, tmp_path):
    path = tmp_path / "data.beton"
    path.write_bytes(b"old")
    with pytest.raises(error):
        write_and(path, lambda _: throw(error))
    assert names(tmp_path) == ["data.beton"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("most", [100, 2])
def test_parts_are_written_anywhere_the_gaps_are_zeros_and_short_writes_are_continued(tmp_path, monkeypatch, most):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, content, offset: pwrite(descriptor, content[:most], offset))
    path = tmp_path / "data.beton"
    with AtomicFile(path) as file:
        file.write(6, memoryview(b"defgh"))
        file.write(0, b"abc")
        file.commit()
    assert path.read_bytes() == b"abc\0\0\0defgh"


def kill_while_it_writes(path):
    """Leave a file as a killed process does; give its path."""
    child = os.fork()
    if child == 0:
        AtomicFile(path).write(0, b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (leftover,) = path.parent.glob(f".{path.name}.*.partial")
    return leftover


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_next_writer_to_a_folder_removes_leftovers_of_killed_writers_of_any_name(tmp_path):
    for name in ("train.beton", "with.dots.and spaces"):
        assert kill_while_it_writes(tmp_path / name).exists()
    with AtomicFile(tmp_path / "other.beton") as file:
        assert names(tmp_path) == [file.temporary.name]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_file_being_written_under_another_name_is_not_removed(tmp_path):
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with AtomicFile(tmp_path / "slow.beton") as slow:
                slow.write(0, b"slow")
                os.write(ready[1], b"!")
                os.read(go[0], 1)
                slow.commit()
                status = 0
        finally:
            os._exit(status)
    os.read(ready[0], 1)
    try:
        with AtomicFile(tmp_path / "here.beton") as here, AtomicFile(tmp_path / "quick.beton") as quick:
            quick.commit()
            here.commit()
    finally:
        os.write(go[1], b"!")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert names(tmp_path) == ["here.beton", "quick.beton", "slow.beton"]
    assert (tmp_path / "slow.beton").read_bytes() == b"slow"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_file_that_another_computer_may_still_write_is_not_removed(tmp_path):
    # Its locks need not be seen here.
    leftover = kill_while_it_writes(tmp_path / "train.beton")
    digits = leftover.name.split(".")[-2]
    foreign = leftover.rename(leftover.with_name(f".train.beton.{int(digits, 16) ^ (1 << 60):016x}.partial"))
    with AtomicFile(tmp_path / "other.beton"):
        assert foreign.exists()


def test_files_of_other_names_are_no_leftovers(tmp_path):
    with AtomicFile(tmp_path / "data.beton") as file:
        digits = file.temporary.name.split(".")[-2]
    others = [make_leftover(tmp_path, name) for name in ("other.beton", "data.beton.beton", "data")]
    others += [tmp_path / "data.beton.partial", tmp_path / ".data.beton.abc.partial"]
    others += [tmp_path / f".{digits}.partial", tmp_path / f"data.{digits}.partial", tmp_path / f".x.{digits}.journal"]
    others += [tmp_path / ".data.beton.unfinished", tmp_path / ".data.beton.journal"]  # a resumable writer's
    for other in others:
        other.write_bytes(b"")
    with AtomicFile(tmp_path / "data.beton"):
        pass
    assert names(tmp_path) == sorted(other.name for other in others)


def test_two_at_once_leave_each_other_alone(tmp_path):
    path = tmp_path / "data.beton"
    with AtomicFile(path) as first, AtomicFile(path) as second:
        first.write(0, b"first")
        second.write(0, b"second")
        first.commit()
        second.commit()
    assert path.read_bytes() == b"second"
    assert names(tmp_path) == ["data.beton"]


def test_a_file_taken_for_a_leftover_when_it_is_created_is_created_again(tmp_path, monkeypatch):
    taken = []
    flock = fcntl.flock

    def steal_first(descriptor, operation):
        if not taken:
            taken.append(descriptor)
            next(tmp_path.iterdir()).unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", steal_first)
    with AtomicFile(tmp_path / "data.beton") as file:
        file.commit()
    assert taken
    assert names(tmp_path) == ["data.beton"]


def test_a_file_system_without_locks_is_written_to_and_keeps_its_leftovers(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOTSUP, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    leftover = make_leftover(tmp_path, "data.beton")
    with AtomicFile(tmp_path / "data.beton") as file:
        file.commit()
    assert names(tmp_path) == [leftover.name, "data.beton"]


def test_the_target_of_a_link_is_replaced_and_the_link_stays(tmp_path):
    (tmp_path / "disk").mkdir()
    link = tmp_path / "data.beton"
    link.symlink_to(tmp_path / "disk" / "real.beton")
    with AtomicFile(link) as file:
        file.write(0, b"abc")
        file.commit()
    assert link.is_symlink()
    assert (tmp_path / "disk" / "real.beton").read_bytes() == b"abc"


def test_the_longest_name_still_has_room_for_the_addition_and_a_missing_folder_is_named(tmp_path):
    path = tmp_path / ("x" * 255)
    with AtomicFile(path) as file:
        file.commit()
    assert names(tmp_path) == [path.name]
    with pytest.raises(StorageError, match=r"data\.beton: .*: No such") as caught:
        AtomicFile(tmp_path / "nowhere" / "data.beton")
    assert caught.value.errno == errno.ENOENT


def test_a_full_disk_is_an_error_with_the_number_of_the_system(tmp_path, monkeypatch):
    path = tmp_path / "data.beton"
    path.write_bytes(b"old")

    def full(descriptor, content, offset):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageError, match=r"3 bytes .* 7: No space left") as caught:
        write_and(path, lambda _: None, 7, b"abc")
    assert caught.value.errno == errno.ENOSPC
    assert names(tmp_path) == ["data.beton"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_disk_that_fails_to_sync_is_reported(number, tmp_path, monkeypatch):
    path = tmp_path / "data.beton"
    calls = []

    def fail(descriptor):
        calls.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        if len(calls) == number:
            raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="broken"):
        write_and(path, AtomicFile.commit)
    # First the file, then, when it has its name, the folder.
    assert calls == [False, True][:number]
    assert names(tmp_path) == (["data.beton"] if number == 2 else [])


def test_the_new_file_has_the_rights_that_the_user_s_mask_leaves(tmp_path):
    mask = os.umask(0o027)
    try:
        with AtomicFile(tmp_path / "data.beton") as file:
            file.commit()
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "data.beton").stat().st_mode) == 0o640
