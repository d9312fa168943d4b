"""The directory of the node's cache: what others do to it while it is in use, and who may write to it."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import warnings
from pathlib import Path

import pytest

from gpubeton._bytes import RemoteOptions, open_bytes, source_type
from gpubeton._bytes.object_store import ObjectIdentity
from gpubeton._bytes.open_files import OpenSources
from gpubeton.errors import OptionError, StorageError
from gpubeton.fields import IntField
from gpubeton.loader import Loader
from tests.bytes.test_node_cache import PAGE, content_of, make_cache, object_of, open_in, reboot
from tests.bytes.versioned_source import on_its_way, put, requests_of
from tests.small_files import write


@pytest.fixture
def name(tmp_path):
    return put(tmp_path / "object", content_of(1))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def test_files_that_lost_their_names_are_left_to_the_cache_that_took_them(name, folder):
    mapped = open_in(make_cache(folder), name)
    mapped.load(0, PAGE)
    reboot(folder)
    shutil.rmtree(folder)  # to free the disk
    later = open_in(make_cache(folder), name)
    with pytest.warns(UserWarning, match="removed"):
        assert bytes(mapped.load(2 * PAGE, PAGE)) == content_of(1)[2 * PAGE : 3 * PAGE]
    assert not mapped.ensure(0)  # its page agrees with the checksum, but lies in a file that others do not see
    assert later.count_pages() == 0
    assert bytes(later.load(0, 3 * PAGE)) == content_of(1)[: 3 * PAGE]


def test_files_that_lose_their_names_while_they_are_opened_are_not_used(name, folder, monkeypatch):
    open_in(make_cache(folder), name).load(0, PAGE)
    local = source_type(folder)
    original, calls = local.open.__func__, []

    def replace(cls, *arguments, **keywords):
        if len(calls) == 1:  # of two files one is open
            calls.append(None)
            shutil.rmtree(folder)
            open_in(make_cache(folder), name)
        calls.append(None)
        return original(cls, *arguments, **keywords)

    cache = make_cache(folder)
    monkeypatch.setattr(local, "open", classmethod(replace))
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


def test_a_cache_that_others_have_made_or_can_write_to_is_refused(folder, monkeypatch):
    make_cache(folder)
    for mode in (0o720, 0o702):
        (folder / "objects").chmod(mode)
        with pytest.raises(StorageError, match=f"objects.*mode {mode:o}"):
            make_cache(folder)
    (folder / "objects").chmod(0o700)
    make_cache(folder)
    monkeypatch.setattr(os, "geteuid", lambda: 123456)
    with pytest.raises(StorageError, match=f"user {os.getuid()}.*123456"):
        make_cache(folder)


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


def become_a_folder(path):
    path.unlink()
    path.mkdir()


def become_a_link(path):
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def become_a_link_to_another_file(path):
    path.unlink()
    path.with_name("other").write_bytes(bytes(13))  # no whole number of entries
    path.symlink_to("other")


def become_unreadable(path):
    path.chmod(0)


@pytest.mark.parametrize("file", ["data", "pages"])
@pytest.mark.parametrize("change", [become_a_folder, become_a_link, become_a_link_to_another_file, become_unreadable])
def test_an_object_that_cannot_be_opened_is_left_alone_and_its_source_is_read(name, folder, file, change, monkeypatch):
    open_in(make_cache(folder), name).load(0, 5 * PAGE + 100)
    change(object_of(folder) / file)
    info = (object_of(folder) / "info.json").read_bytes()
    if change is become_unreadable and os.geteuid() == 0:  # whom no mode hinders
        refuse(monkeypatch, file)
    sources = OpenSources([(name, open_bytes(name).identity())], cache=make_cache(folder))
    with pytest.warns(UserWarning, match="cache cannot keep"):
        source = sources.open(0)
    assert not sources.is_mappable
    assert bytes(source.load(0, 5 * PAGE + 100)) == content_of(1)
    sources.close()
    assert (object_of(folder) / "info.json").read_bytes() == info


def refuse(monkeypatch, file):
    """Let a file of an object be one of another user."""
    before = os.open

    def opened(path, *arguments, **named):
        if Path(path).name == file:
            raise PermissionError(13, "Permission denied", str(path))
        return before(path, *arguments, **named)

    monkeypatch.setattr(os, "open", opened)


def test_a_cache_that_cannot_be_written_to_any_more_is_named_as_such(folder, fault_server, tmp_path, monkeypatch):
    path = write(tmp_path / "a.beton", {"label": IntField()}, [(number,) for number in range(10)])
    fault_server.objects["a.beton"] = path.read_bytes()
    Loader(fault_server.url("a.beton"), 5, num_workers=1, cache_dir=folder, cache_limit="1 GB").close()
    before = os.open

    def opened(path, flags, *arguments, **named):
        if flags & (os.O_RDWR | os.O_WRONLY) and str(folder) in str(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return before(path, flags, *arguments, **named)

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(StorageError, match=r"cannot be used as cache_dir.*writable"):
        Loader(fault_server.url("a.beton"), 5, num_workers=1, cache_dir=folder, cache_limit="1 GB")


@pytest.fixture(params=[errno.ENOLCK, errno.EOPNOTSUPP])
def no_locks(request, monkeypatch):
    """A file system that cannot lock, as some of networks and of user space."""

    def refuse(*arguments):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "fcntl", refuse)


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_loader_warns_and_reads_without_the_cache(folder, fault_server, tmp_path):
    path = write(tmp_path / "a.beton", {"label": IntField()}, [(number,) for number in range(10)])
    fault_server.objects["a.beton"] = path.read_bytes()
    with pytest.warns(UserWarning, match="cannot be used as cache_dir.*lock.*without the cache"):
        loader = Loader(fault_server.url("a.beton"), 5, num_workers=1, cache_dir=folder, cache_limit="1 GB")
    assert [value for batch in loader for value in batch[0][:, 0].tolist()] == list(range(10))
    loader.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_is_forked_while_a_page_is_fetched_does_not_keep_its_lock(name, folder):
    ours, theirs = os.pipe()
    file = open_in(make_cache(folder), name)
    with on_its_way(file, 2 * PAGE):
        if not (child := os.fork()):
            os.close(theirs)
            os.read(ours, 1)  # until the pipe is closed
            os._exit(0)
    os.close(ours)
    try:
        assert file.reload(2 * PAGE, PAGE)  # which waits for the lock
        assert requests_of(name) == [(2 * PAGE, PAGE)] * 2
    finally:
        os.close(theirs)
        os.waitpid(child, 0)


@pytest.mark.parametrize("value", ["x", "", "-1", "2.5"])
def test_a_wrong_number_of_ranks_is_named(value, fault_server, tmp_path, monkeypatch):
    path = write(tmp_path / "a.beton", {"label": IntField()}, [(number,) for number in range(10)])
    fault_server.objects["a.beton"] = path.read_bytes()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", value)
    with (
        Loader(fault_server.url("a.beton"), 5, num_workers=1) as loader,
        pytest.raises(OptionError, match=f"LOCAL_WORLD_SIZE is '{value}'"),
    ):
        list(loader)


def test_keys_differ_by_store_and_account_but_not_by_signature(monkeypatch):
    def key(url, **options):
        return ObjectIdentity(5, url, '"tag"', remote=RemoteOptions(**options)).cache_key

    keys = {key("az://c/a.beton", account=account) for account in ("one", "two")}
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "two")
    assert key("az://c/a.beton") in keys
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "three")
    keys |= {key("az://c/a.beton"), key("s3://c/a.beton")}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://here:1")
    assert key("s3://c/a.beton") == key("s3://c/a.beton", endpoint="http://here:1")
    assert len(keys | {key("s3://c/a.beton")}) == 5
    signed = {key(f"https://h/a?{name}={value}") for name in ("X-Amz-Signature", "Signature", "sig") for value in "ab"}
    assert signed == {key("https://h/a")}


@pytest.mark.parametrize("kind", [StorageError, OptionError])
def test_no_error_shows_a_secret_of_a_url(kind):
    url = "https://user:password@host/a.beton?sv=1&sig=secret%3D:x"
    for text in (f"{url}: damaged. Look at {url}.", f"'{url}' ({url}), {url}"):
        shown = str(kind(text))
        assert "secret" not in shown
        assert "password" not in shown
        assert shown == text.replace(url, "https://host/a.beton")
    assert str(StorageError(5, f"{url}: gone")).endswith("https://host/a.beton: gone")
