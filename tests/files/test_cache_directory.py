"""The directory of the node's cache: what others do to it while it is in use, and who may write to it."""

from __future__ import annotations

import os
import shutil
import warnings

import pytest

from gpubeton.errors import StorageError
from gpubeton.files import cached_file
from gpubeton.files.remote_options import RemoteOptions
from gpubeton.format.manifest import IndexCache
from tests.files.test_node_cache import PAGE, content_of, make_cache, open_in, reboot
from tests.files.versioned_source import VersionedIdentity, put

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def name(tmp_path):
    return put(tmp_path / "object", content_of(1))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def test_files_that_lost_their_names_are_left_to_the_cache_that_took_them(name, folder, monkeypatch):
    mapped = open_in(make_cache(folder), name)
    mapped.load(0, PAGE)
    shutil.rmtree(folder)  # to free the disk
    later = open_in(make_cache(folder), name)
    with pytest.warns(UserWarning, match="removed"):
        assert bytes(mapped.load(2 * PAGE, PAGE)) == content_of(1)[2 * PAGE : 3 * PAGE]
    with monkeypatch.context() as patch:
        reboot(patch)
        assert not mapped.ensure(0)  # its page agrees with the checksum, but lies in a file that others do not see
    assert later.count_pages() == 0
    assert bytes(later.load(0, 3 * PAGE)) == content_of(1)[: 3 * PAGE]


def test_files_that_lose_their_names_while_they_are_opened_are_not_used(name, folder, monkeypatch):
    open_in(make_cache(folder), name).load(0, PAGE)
    original, calls = cached_file.LocalFile.open.__func__, []

    def replace(cls, *arguments, **keywords):
        if len(calls) == 1:  # of two files one is open
            calls.append(None)
            shutil.rmtree(folder)
            open_in(make_cache(folder), name)
        calls.append(None)
        return original(cls, *arguments, **keywords)

    cache = make_cache(folder)
    monkeypatch.setattr(cached_file.LocalFile, "open", classmethod(replace))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert bytes(open_in(cache, name).load(0, PAGE)) == content_of(1)[:PAGE]


def test_a_cache_whose_marks_others_do_not_see_keeps_no_further_file(name, folder, tmp_path):
    other, cache = put(tmp_path / "other", content_of(2)), make_cache(folder)
    shutil.rmtree(folder)
    make_cache(folder)
    with pytest.warns(UserWarning, match="removed"):
        assert bytes(open_in(cache, other).load(0, PAGE)) == content_of(2)[:PAGE]
    assert list((folder / "objects").iterdir()) == []


def test_pages_that_were_compared_with_nothing_are_not_there_for_who_verifies(name, folder, monkeypatch):
    cache = make_cache(folder)
    open_in(cache, name).load(0, PAGE)
    monkeypatch.setattr(VersionedIdentity, "remote", RemoteOptions(verify="crc"))
    verified = open_in(cache, name)
    assert verified.count_pages() == 0
    verified.load(0, PAGE)
    assert open_in(cache, name).count_pages() == 1


@pytest.mark.parametrize(("make", "part"), [(make_cache, "objects"), (IndexCache, "indexes")])
def test_a_cache_that_others_have_made_or_can_write_to_is_refused(folder, monkeypatch, make, part):
    make(folder)
    for mode in (0o720, 0o702):
        (folder / part).chmod(mode)
        with pytest.raises(StorageError, match=f"{part}.*mode {mode:o}"):
            make(folder)
    (folder / part).chmod(0o700)
    make(folder)
    monkeypatch.setattr(os, "geteuid", lambda: 123456)
    with pytest.raises(StorageError, match=f"user {os.getuid()}.*123456"):
        make(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="it needs the rights to give a directory away")
def test_a_directory_of_another_user_is_refused(folder):
    folder.mkdir()
    os.chown(folder, 1234, 1234)
    with pytest.raises(StorageError, match="user 1234"):
        make_cache(folder)


def test_other_names_among_the_objects_are_passed_over(name, folder):
    cache = make_cache(folder, limit=PAGE)
    (folder / "objects" / "lost+found").mkdir()
    (folder / "objects" / "note.txt").write_text("mine")
    assert bytes(open_in(cache, name).load(0, 3 * PAGE)) == content_of(1)[: 3 * PAGE]
    assert (folder / "objects" / "note.txt").read_text() == "mine"
