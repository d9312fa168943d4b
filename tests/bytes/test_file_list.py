from __future__ import annotations

import os
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton._bytes import open_bytes
from gpubeton._bytes.file_list import FileList, FileListIdentity
from gpubeton._bytes.object_store import list_tree
from gpubeton.errors import FormatError, OptionError, StorageError


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
