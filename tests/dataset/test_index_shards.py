from __future__ import annotations

import json
import shutil
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gpubeton._bytes import list_shards, object_store
from gpubeton._bytes.object_store import put_object
from gpubeton.cli.app import app
from gpubeton.dataset import index_shards
from gpubeton.errors import FormatError, RemoteDeniedError
from gpubeton.fields import BytesField, IntField
from gpubeton.fields.registry import open_index
from gpubeton.loader import Loader
from tests.bytes.s3_server import Bucket, running_s3
from tests.objects import read_object
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


@pytest.fixture
def indexed(bucket, folder):
    url = f"s3://{bucket.name}/{Path(folder).parent.name}/"
    for path in list_shards(folder):
        put_object(url + Path(path).name, Path(path), bucket.options)
    index_shards(url, remote=bucket.options)
    return url


def replace(url, folder, options):
    rows = [(np.full(100 + row % 7, row, np.uint8), 7000 + row) for row in range(5)]
    path = write(Path(folder) / "1.beton", {"note": BytesField(), "label": IntField()}, rows)
    put_object(f"{url}1.beton", path, options, overwrite=True)


def add(url, folder, options):
    shutil.copy(Path(folder) / "0.beton", Path(folder) / "3.beton")
    put_object(f"{url}3.beton", Path(folder) / "3.beton", options)


@pytest.mark.parametrize("change", [replace, add])
def test_an_index_of_other_shards_of_a_bucket_is_noticed_at_once(change, indexed, bucket, folder):
    change(indexed, folder, bucket.options)
    expected = labels(Loader(list_shards(folder), 7, drop_last=False, num_workers=1))
    with pytest.warns(UserWarning, match=r"index\.json does not describe"):
        loader = Loader(indexed, 7, drop_last=False, num_workers=1, remote=bucket.options)
    assert labels(loader) == expected


def test_an_index_is_used_where_the_list_of_a_store_is_denied(indexed, bucket, folder, monkeypatch):
    def deny(*arguments):
        raise RemoteDeniedError("no list")

    monkeypatch.setattr("gpubeton.format.manifest.list_objects", deny)
    monkeypatch.setattr("gpubeton.format.dataset.read_index", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_index(indexed, remote=bucket.options)[0].num_samples == 76


def test_a_copy_here_is_opened_by_its_index_and_a_copy_in_another_bucket_too(indexed, bucket, tmp_path, monkeypatch):
    expected = open_index(indexed, remote=bucket.options)[0].column("label").tolist()
    other = f"s3://{bucket.name}/other-{tmp_path.name}/"
    (tmp_path / "here").mkdir()
    for url, _, _ in object_store.list_objects(indexed, bucket.options):
        path = tmp_path / "here" / url.rpartition("/")[2]
        path.write_bytes(read_object(url, bucket.options))
        put_object(other + path.name, path, bucket.options)
    description = json.loads((tmp_path / "here" / "index.json").read_bytes())["content"]
    description["shards"][2]["version"] = '"another"'
    text = json.dumps(description)
    text = json.dumps({"checksum": zlib.crc32(text.encode()), "content": description})
    put_object(f"{other}index.json", text.encode(), bucket.options, overwrite=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_index(str(tmp_path / "here"))[0].column("label").tolist() == expected
    with pytest.warns(UserWarning, match=f"1 of the shards.*gpubeton index {other}"):
        assert open_index(other, remote=bucket.options)[0].column("label").tolist() == expected


@pytest.fixture
def copied(fault_server, folder):
    """A folder of a web server whose shards were indexed elsewhere; and the names of requested files."""
    index_shards(folder)
    fault_server.objects.update({f"copied/{path.name}": path.read_bytes() for path in Path(folder).iterdir()})

    def requests():
        names = [request.path.rpartition("/")[2] for request in fault_server.requests]
        fault_server.forget()
        object_store._CACHED.clear()
        return names

    return fault_server.url("copied/"), requests


def test_copied_shards_of_a_web_server_are_compared_once_by_a_process(copied, folder, fault_server):
    url, requests = copied
    shards = [Path(path).name for path in list_shards(folder)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_index(url)
        assert len(requests()) > 2 * len(shards)
        open_index(url)
    assert sorted(requests()) == sorted([*shards, "index.bin", "index.json"])
    path = write(Path(folder) / "1.beton", {"note": BytesField(), "label": IntField()}, [(np.zeros(9, np.uint8), 1)])
    fault_server.objects["copied/1.beton"] = path.read_bytes()
    with pytest.raises(FormatError, match=r"1\.beton"):
        open_index(url)


@pytest.fixture
def asked(monkeypatch):
    """The names of files in stores that are requested."""
    names, ask = [], object_store.request_with_retries

    def counted(url, *arguments):
        names.append(url.rpartition("/")[2])
        return ask(url, *arguments)

    monkeypatch.setattr(object_store, "request_with_retries", counted)
    return names


def test_copied_shards_of_a_bucket_are_compared_once(bucket, folder, asked, tmp_path):
    index_shards(folder)
    url = f"s3://{bucket.name}/copied-{tmp_path.name}/"
    for path in Path(folder).iterdir():
        put_object(url + path.name, path, bucket.options)
    with pytest.warns(UserWarning, match=f"3 of the shards.*gpubeton index {url}") as warned:
        open_index(url, remote=bucket.options)
    assert len(warned) == 1
    object_store._CACHED.clear()
    asked.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index = open_index(url, remote=bucket.options)[0]
    assert set(asked) <= {"", "index.json", "index.bin"}
    with index.files[1].open() as source:  # the version in the list is that of answers
        assert source.size == Path(folder, "1.beton").stat().st_size
        assert source.read_exactly(0, source.size) == Path(folder, "1.beton").read_bytes()
    replace(url, folder, bucket.options)
    with pytest.warns(UserWarning, match=r"1\.beton was replaced"):
        result = open_index(url, remote=bucket.options)[0]
    assert result.column("label").tolist() == open_index(list_shards(folder))[0].column("label").tolist()


@pytest.mark.filterwarnings("ignore:.*other copies")
def test_a_damaged_index_of_a_web_server_is_named(copied, fault_server):
    url, _ = copied
    for name, content in (("index.bin", b"x"), ("index.json", b"{}")):
        fault_server.objects[f"copied/{name}"] = content
        for names in (url, [url, fault_server.url("copied/0.beton")]):
            with pytest.raises(FormatError, match=r"copied/index\.json.*gpubeton index"):
                open_index(names)
