from __future__ import annotations

import io
import tarfile
from collections import Counter
from unittest import mock

import pytest

from gpubeton._writing import find_tar_files, list_samples, read_range
from gpubeton.errors import OptionError

CONTENT = {"a/0.jpg": b"picture", "a/0.cls": b"1", "._a.jpg": b"macOS", "b.seg.png": b"", "b.CLS": b"2", "README": b"x"}


@pytest.fixture
def tar_path(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("a"))
        folder = tarfile.TarInfo("b")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in CONTENT.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return tmp_path / "a.tar"


def members_of(path):
    return [member for sample in list_samples(path, Counter()) for member in sample.members.values()]


def test_a_sample_is_the_files_with_one_name_before_the_first_dot_and_their_bytes_lie_at_their_offsets(tar_path):
    samples = list(list_samples(tar_path, hidden := Counter()))
    assert {sample.key: list(sample.members) for sample in samples} == {"a/0": ["jpg", "cls"], "b": ["seg.png", "cls"]}
    assert hidden == {"hidden": 1}
    with tar_path.open("rb") as file:
        contents = {m.name: read_range(file, m.offset, m.size, m.name) for m in members_of(tar_path)}
    assert contents == {name: content for name, content in CONTENT.items() if name not in {"._a.jpg", "README"}}


def test_members_are_listed_without_reading_their_bytes(tmp_path):
    with tarfile.open(tmp_path / "large.tar", "w") as tar:
        for name in ("0.jpg", "1.jpg"):
            member = tarfile.TarInfo(name)
            member.size = 8 << 20
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    counts = []
    with mock.patch.object(tarfile, "bltn_open", lambda path, mode: CountingFile(open(path, mode), counts)):
        assert [member.size for member in members_of(tmp_path / "large.tar")] == [8 << 20] * 2
    assert 0 < sum(counts) < 1 << 16


class CountingFile:
    def __init__(self, file, counts):
        self._file, self._counts = file, counts
        self.name = file.name
        self.mode = file.mode

    def read(self, size=-1):
        content = self._file.read(size)
        self._counts.append(len(content))
        return content

    def __getattr__(self, name):
        return getattr(self._file, name)


def test_the_end_of_a_cut_tar_file_is_an_error(tar_path):
    (member, *_) = (member for member in members_of(tar_path) if member.size)
    with tar_path.open("r+b") as file:
        file.truncate(member.offset + 3)
        file.seek(0)
        with pytest.raises(EOFError, match=r"picture: 3 bytes, expected 7"):
            read_range(file, member.offset, member.size, "picture")


def test_a_compressed_file_and_a_missing_one_are_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("0.jpg"))
    with pytest.raises(OptionError, match="Decompress"):
        members_of(tmp_path / "a.tar.gz")
    with pytest.raises(OptionError, match=r"a-1\.tar: no such tar file \(2 of 2 are missing\)"):
        find_tar_files(f"{tmp_path}/a-{{1..2}}.tar")
