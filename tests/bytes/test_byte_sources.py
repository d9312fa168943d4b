"""The kinds of byte source keep what all of them promise; so does the double of a store that other tests use."""

from __future__ import annotations

from functools import partial

import pytest

from gpubeton._bytes import open_bytes
from gpubeton._bytes.file_list import FileList, FileListIdentity
from tests.bytes.contract import CONTENT, SIZE, ByteSourceContract, StoredFile
from tests.bytes.test_node_cache import make_cache
from tests.bytes.versioned_source import put


class TestLocalFile(ByteSourceContract):
    @pytest.fixture
    def stored(self, tmp_path):
        def replace(content):
            (tmp_path / "new").write_bytes(content)
            (tmp_path / "new").rename(path)

        path = tmp_path / "file"
        path.write_bytes(CONTENT)
        return StoredFile(str(path), replace)


class TestObject(ByteSourceContract):
    @pytest.fixture
    def stored(self, s3_server):
        return StoredFile(s3_server.put("file", CONTENT), partial(s3_server.put, "file"))


class TestVersionedSource(ByteSourceContract):
    @pytest.fixture
    def stored(self, tmp_path):
        return StoredFile(put(tmp_path / "file", CONTENT), partial(put, tmp_path / "file"))


class TestCachedFile(ByteSourceContract):
    @pytest.fixture(params=[1 << 30, 100_000, 0])
    def stored(self, tmp_path, request):
        def open_cached(name, identity=None):
            source = open_bytes(name, identity)
            return cache.open(source, source.identity())

        cache = make_cache(tmp_path / "cache", limit=request.param)
        return StoredFile(put(tmp_path / "file", CONTENT), partial(put, tmp_path / "file"), open_cached)


class TestListedFiles(ByteSourceContract):
    @pytest.fixture
    def stored(self, tmp_path):
        def write(content):
            for number, name in enumerate(names):
                (tmp_path / name).write_bytes(content[number * 16_000 : (number + 1) * 16_000])

        def open_listed(name, identity=None):
            if name.endswith(".none"):
                raise FileNotFoundError(name)  # a list has no missing files
            return open_bytes(name, identity or FileListIdentity.of(FileList.of(str(tmp_path), names)))

        names = [f"{number}.jpg" for number in range(SIZE // 16_000 + 1)]
        write(CONTENT)
        return StoredFile(f"files://{tmp_path}", write, open_listed)
