from __future__ import annotations

import os
import pickle
from bisect import bisect_right
from dataclasses import replace

import numpy as np
import obstore
import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug import serving

from gpubeton._bytes import object_store, open_bytes
from gpubeton._bytes.file_list import FileList, FileListIdentity
from gpubeton._bytes.object_store import list_tree
from gpubeton.errors import FormatError, OptionError, RemoteDeniedError, StorageError


def write(folder, sizes):
    """Write files of these sizes; give their names and the bytes of all, each at a multiple of 16."""
    names = [f"{number % 3}/größe {number}" for number in range(len(sizes))]
    whole = b""
    for number, (name, size) in enumerate(zip(names, sizes, strict=True)):
        content = np.random.default_rng(number).bytes(size)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        whole = whole.ljust(-(-len(whole) // 16) * 16, b"\0") + content
    return names, whole


def opened(files):
    identity = FileListIdentity.of(files)
    return open_bytes(identity.name, identity)


@given(st.lists(st.integers(0, 50), max_size=12), st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900))))
def test_every_range_has_the_bytes_of_the_files_one_after_the_other(tmp_path, sizes, ranges):
    names, whole = write(tmp_path, sizes)
    files = FileList.of(str(tmp_path), names)
    assert (opened(files).size, opened(files).name) == (len(whole), f"files://{tmp_path}")
    for source in (opened(files), opened(FileList.from_bytes(files.to_bytes()))):
        for start, size in [(0, len(whole)), *ranges]:
            target = bytearray(b"x" * size)
            count = source.read_into(start, memoryview(target))
            assert count == len(whole[start : start + size])
            assert bytes(target[:count]) == whole[start : start + size]
    places = zip(files.starts.tolist(), files.sizes.tolist(), strict=True)
    assert [whole[start : start + size] for start, size in places] == [(tmp_path / name).read_bytes() for name in names]


def test_ranges_of_objects_have_the_bytes_of_the_files_one_after_the_other(tmp_path, s3_server):
    names, whole = write(tmp_path, [30, 0, 5, 48, 17])
    for name in names:
        s3_server.put(f"a/{name}", tmp_path / name)
    files = FileList.of(s3_server.url("a/"), [*names, "missing", ""], s3_server.options)
    assert files.sizes.tolist() == [30, 0, 5, 48, 17, 0, 0]
    tree_names, states = list_tree(s3_server.url("a/"), s3_server.options)
    assert sorted(tree_names) == sorted(names)
    rows = [tree_names.index(name) for name in names]
    assert np.array_equal(np.stack([files.sizes, files.times], axis=1)[:5], states[rows])
    again = replace(FileList.from_bytes(files.to_bytes()), remote=s3_server.options)
    assert FileListIdentity.of(again) == FileListIdentity.of(files)
    whole = whole.ljust(files.size, b"\0")
    for source in (opened(files), opened(again)):
        assert (source.is_local, source.is_mappable, source.num_readers) == (False, False, 32)
        for start, size in ((0, 200), (0, 30), (32, 5), (33, 60), (50, 40), (90, 7), (112, 5)):
            assert source.read(start, size) == whole[start : start + size]
    source.interrupt()
    with pytest.raises(StorageError, match="closed"):
        source.load(0, 30)


@pytest.fixture
def asked(monkeypatch):
    """The requests that the store gets from now on."""
    requests: list[str] = []
    monkeypatch.setattr(
        serving.WSGIRequestHandler, "log_request", lambda handler, *_: requests.append(handler.requestline)
    )
    return requests


def test_objects_of_a_table_are_found_by_lists_and_those_among_many_others_one_by_one(s3_server, asked, monkeypatch):
    names = [f"{number % 3}/größe {number:02}" for number in range(30)]
    for name in names:
        s3_server.put(f"a/{name}", name.encode())
    asked.clear()
    url, absent = s3_server.url("a"), ["", "0/größe 000", "3/x"]
    files = FileList.of(url, [*names[::-1], *absent, names[3]], s3_server.options)
    assert files.sizes.tolist() == [*(len(name.encode()) for name in names[::-1]), 0, 0, 0, len(names[3].encode())]
    methods = [line.partition(" ")[0] for line in asked]
    assert sorted(methods) == ["GET", "HEAD", "HEAD"]  # a list, and the two that are not in it
    asked.clear()
    few = FileList.of(url, names[:10], s3_server.options)
    assert np.array_equal(few.times, files.times[:30][::-1][:10])
    assert [line.partition(" ")[0] for line in asked] == ["HEAD"] * 10
    ask = object_store.request_with_retries

    def refusing_lists(url, remote, what, make, *more):
        """Refuse a list, as a store does whose credentials are for single objects."""
        if what == "a list of objects":
            raise RemoteDeniedError(f"{url}: 403")
        return ask(url, remote, what, make, *more)

    monkeypatch.setattr(object_store, "request_with_retries", refusing_lists)
    alone = FileList.of(url, names, s3_server.options)
    assert np.array_equal(alone.times, files.times[:30][::-1])


def test_a_list_ends_where_few_of_its_objects_are_sought(s3_server, monkeypatch):
    store, asked = [f"a/{number:05}" for number in range(20_000)], []

    def list_some(_store, _prefix, *, offset, chunk_size):
        names = store[bisect_right(store, offset) :]
        for start in range(0, len(names), chunk_size):
            asked.append("list")
            yield [{"path": name, "size": int(name[2:]), "e_tag": name} for name in names[start : start + chunk_size]]

    def head(_store, key):
        asked.append(key)
        return {"size": int(key[2:]), "e_tag": key}

    monkeypatch.setattr(obstore, "list", list_some)
    monkeypatch.setattr(obstore, "head", head)
    dense, sparse = [*range(2_000, 4_000, 2)], [*range(5_000, 20_000, 500)]
    files = FileList.of(s3_server.url("a/"), [f"{number:05}" for number in dense + sparse])
    assert files.sizes.tolist() == dense + sparse
    assert len(set(files.times.tolist())) == len(files.times)
    assert asked.count("list") == 2 + 1
    assert sorted(set(asked) - {"list"}) == [f"a/{number:05}" for number in sparse[2:]]


def test_a_name_of_an_object_leads_nowhere_else(s3_server):
    for name in ("/etc/passwd", "../b/x", "s3://other/x", "a/../../x", "b/../x"):
        files = FileList.of(s3_server.url("a"), [name], s3_server.options, np.array([[5, 5]]))
        assert files.path(0) == s3_server.url(f"a/{name}")
        with pytest.raises(OptionError, match="is no address of a file"):
            opened(files).load(0, 5)


def test_a_list_names_the_files_that_lie_outside(tmp_path):
    inside = ["a/b.jpg", "a..b", "..c", "d..", "/x"[1:], "", "a/.../b"]
    outside = ["/etc/passwd", "../a", "a/../b", "a/.."]
    for names in (inside, outside, [*inside, *outside], []):
        files = FileList.of(str(tmp_path), names)
        assert [files.path(number) for number in range(len(names))] == [
            f"{tmp_path / name}{'/' * (not name)}" for name in names
        ]
        assert FileList.from_bytes(files.to_bytes()).outside == [name for name in names if name in outside]


def test_a_file_that_changed_is_named_when_it_is_read_and_the_others_are_not(tmp_path):
    names, whole = write(tmp_path, [30, 40, 50])
    source = opened(FileList.of(str(tmp_path), names))
    for change in (
        lambda path: os.utime(path, ns=(0, 0)),
        lambda path: path.write_bytes(bytes(41)),
        lambda path: path.unlink(),
        lambda path: path.mkdir(),
    ):
        change(tmp_path / names[1])
        for read in (source.read, source.load):
            with pytest.raises(StorageError, match=names[1]):
                read(0, 100)
        assert source.read_exactly(0, 32) == whole[:32]


def test_a_file_that_becomes_a_pipe_is_named(tmp_path):
    names, _ = write(tmp_path, [30])
    source = opened(FileList.of(str(tmp_path), names))
    (tmp_path / names[0]).unlink()
    os.mkfifo(tmp_path / names[0])
    with pytest.raises(StorageError, match=names[0]):
        source.load(0, 30)


def test_a_missing_file_and_a_folder_have_no_bytes(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"x")
    files = FileList.of(str(tmp_path), ["folder", "missing", "pipe", "zero\0byte", "file", ""])
    assert files.sizes.tolist() == [0, 0, 0, 0, 1, 0]
    assert opened(files).read(0, 99) == b"x" + bytes(15)
    assert opened(FileList.of(str(tmp_path), ["file"])).read(0, 99) == b"x"


def test_the_identity_changes_with_the_files_and_can_be_sent_to_another_process(tmp_path):
    names, _ = write(tmp_path, [30, 40])
    identity = FileListIdentity.of(FileList.of(str(tmp_path), names))
    assert FileListIdentity.of(FileList.of(str(tmp_path), names)) == identity == pickle.loads(pickle.dumps(identity))
    identity.check(identity.name, identity)
    os.utime(tmp_path / names[1], ns=(0, 0))
    changed = FileListIdentity.of(FileList.of(str(tmp_path), names))
    assert (changed == identity, changed.is_same_source(identity)) == (False, True)
    with pytest.raises(StorageError, match=f"files://{tmp_path}"):
        identity.check(identity.name, changed)


def test_files_cannot_be_opened_without_their_list(tmp_path):
    with pytest.raises(StorageError, match=f"files://{tmp_path}: .*list"):
        open_bytes(f"files://{tmp_path}")


@given(st.data())
def test_damaged_lists_are_refused_or_have_places_that_fit(tmp_path, data):
    names, _ = write(tmp_path, [30, 40, 0, 50])
    content = bytearray(FileList.of(str(tmp_path), names).to_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=3)):
        content[place] ^= data.draw(st.integers(1, 255))
    stop = data.draw(st.integers(0, len(content)) | st.just(len(content)))
    try:
        files = FileList.from_bytes(content[:stop])
    except FormatError:
        return
    assert (np.diff(files.starts) >= files.sizes[:-1]).all()
    assert (files.sizes >= 0).all()
    assert len("".join(files._name(number) for number in range(4)).encode("utf-8", "surrogateescape")) == len(
        files.names
    )


def test_lists_that_are_cut_or_have_impossible_sizes_are_refused(tmp_path):
    names, _ = write(tmp_path, [30, 40])
    content = FileList.of(str(tmp_path), names).to_bytes()
    for damaged in (b"", content[:23], content[:-1], content + b"x"):
        with pytest.raises(FormatError, match="list of"):
            FileList.from_bytes(damaged)
    for size in (-1, 1 << 62, (1 << 63) - 1):
        with pytest.raises(FormatError, match="a size"):
            FileList.from_bytes(content[:24] + size.to_bytes(8, "little", signed=True) + content[32:])
    with pytest.raises(FormatError, match="ends of their names"):
        FileList.from_bytes(content[:56] + b"\xff" * 4 + content[60:])
