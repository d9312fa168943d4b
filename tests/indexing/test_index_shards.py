from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gpubeton.cli.app import app
from gpubeton.errors import RemoteChangedError
from gpubeton.fields import BytesField, IntField
from gpubeton.fields.registry import open_index
from gpubeton.files.object_store import put_object
from gpubeton.format import Index
from gpubeton.format.compact_index import BLOCK
from gpubeton.format.manifest import list_shards, write_manifest
from gpubeton.indexing import index_shards
from gpubeton.loader import Loader
from tests.files.s3_server import Bucket, running_s3
from tests.files.versioned_source import SCHEME, forget_requests, put, requests_of
from tests.small_files import write


@pytest.fixture(scope="module")
def s3():
    with running_s3() as address:
        yield address


@pytest.fixture
def bucket(s3, monkeypatch):
    return Bucket.make(s3, "indexed", monkeypatch)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shards").mkdir()
    for number, count in enumerate([30, 5, 41]):
        rows = [(np.full(100 + row % 7, row, np.uint8), 100 * number + row) for row in range(count)]
        write(tmp_path / "shards" / f"{number}.beton", {"note": BytesField(), "label": IntField()}, rows)
    return str(tmp_path / "shards")


def labels(loader):
    return [value for batch in loader for value in batch[1][:, 0].tolist()]


def test_a_loader_of_an_indexed_folder_gives_the_batches_of_its_files(folder, tmp_path):
    def epoch(files, **arguments):
        return labels(Loader(files, 7, order="random", seed=3, drop_last=False, num_workers=1, **arguments))

    expected = epoch(list_shards(folder))
    assert epoch(folder) == expected
    assert vars(index_shards(folder)) == {"folder": folder, "shards": 3, "samples": 76, "bytes": 1824}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert epoch(folder) == expected


def test_states_of_the_files_fit_the_indexed_folder(folder):
    first = Loader(list_shards(folder), 7, order="random", seed=3, num_workers=1)
    batches = iter(first)
    next(batches)
    state = first.state_dict()
    index_shards(folder)
    second = Loader(folder, 7, order="random", seed=3, num_workers=1)
    second.load_state_dict(state)
    assert labels(second) == labels(batches)


def test_the_command_indexes_a_folder(folder):
    result = CliRunner().invoke(app, ["index", folder, "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["files"] == [{"folder": folder, "shards": 3, "samples": 76, "bytes": 1824}]
    result = CliRunner().invoke(app, ["index", folder])
    assert "3 files with 76 samples in index.json and index.bin" in " ".join(result.stdout.split())


def test_a_folder_without_files_cannot_be_indexed(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"\.beton"):
        index_shards(tmp_path)


def test_an_indexed_folder_of_a_store_opens_with_the_requests_of_its_index(folder, tmp_path, monkeypatch):
    for path in list_shards(folder):
        put(Path(path), Path(path).read_bytes())
    url = f"{SCHEME}://{folder}/"
    index = open_index([f"{SCHEME}://{path}" for path in list_shards(folder)])[0]

    def store(url, path, remote, *, overwrite):
        put(Path(url.partition("://")[2]), path.read_bytes())

    monkeypatch.setattr("gpubeton.format.manifest.put_object", store)
    written = write_manifest(url, index)
    monkeypatch.setattr(Index, "open", None)
    for cache in (None, tmp_path / "cache", tmp_path / "cache"):
        for path in Path(folder).iterdir():
            forget_requests(f"{SCHEME}://{path}")
        found = open_index(url, cache_dir=cache)[0]
        assert found.column("label").tolist() == index.column("label").tolist()
        assert [file.identity for file in found.files] == [file.identity for file in index.files]
        requested = {name: len(requests_of(url + name)) for name in ("index.json", "index.bin", "0.beton")}
        columns = 1 + written.num_bytes // BLOCK if not cache or not (cache / "done").exists() else 0
        assert requested == {"index.json": 1, "index.bin": columns, "0.beton": 0}
        if cache:
            (cache / "done").touch()


def test_shards_in_a_bucket_are_indexed_and_opened_and_a_replaced_one_is_noticed(bucket, folder):
    url = f"s3://{bucket.name}/shards/"
    for path in list_shards(folder):
        put_object(url + Path(path).name, Path(path), bucket.options)
    expected = open_index(list_shards(folder))[0]
    assert index_shards(url, remote=bucket.options).samples == 76
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index = open_index(url, remote=bucket.options)[0]
    assert index.column("label").tolist() == expected.column("label").tolist()
    with index.files[2].open() as source:
        own, offset = expected.regions("note"), int(index.regions("note").offset[-1]) % (1 << 48)
        assert source.read_exactly(offset, int(own.size[-1])) == bytes([40] * int(own.size[-1]))
    other = Path(folder) / "other.beton"
    shutil.copy(Path(folder) / "0.beton", other)
    put_object(url + "2.beton", other, bucket.options, overwrite=True)
    with pytest.raises(RemoteChangedError, match=r"2\.beton"), index.files[2].open() as source:
        source.read_exactly(offset, 10)
