"""`gpubeton fetch`: all pages of a dataset in the cache of the machine, each requested once."""

from __future__ import annotations

import json
import re
import zlib

import pytest
from typer.testing import CliRunner

from gpubeton._bytes import node_cache
from gpubeton.cli.app import app
from gpubeton.dataset import index_shards
from tests.bytes.fault_server import Fault
from tests.bytes.versioned_source import forget_requests, path_of, put, requests_of
from tests.cli.test_json import documented
from tests.small_files import write_photos

PAGE = 1 << 14


def fetch(url, folder, *options, code=0):
    done = CliRunner().invoke(app, ["fetch", url, "--cache-dir", str(folder), "--cache-limit", "1 GB", *options])
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.setattr(node_cache, "PAGE_SIZE", PAGE)
    return put(tmp_path / "train.beton", write_photos(tmp_path / "photos.beton", 60).read_bytes())


def pages(url):
    """List the requests for whole pages, and that for the last one."""
    size = path_of(url).stat().st_size
    return [
        request
        for request in requests_of(url)
        if request[0] % PAGE == 0 and (request[1] == PAGE or sum(request) == size)
    ]


def test_all_pages_come_once_and_the_keys_are_those_of_the_guide(url, tmp_path):
    size = path_of(url).stat().st_size
    assert "1 file" in fetch(url, tmp_path / "cache")
    assert sorted(set(pages(url))) == [(at, min(PAGE, size - at)) for at in range(0, size, PAGE)]
    (data,) = (tmp_path / "cache" / "objects").glob("*/data")
    assert data.read_bytes() == path_of(url).read_bytes()
    forget_requests(url)
    result = json.loads(fetch(url, tmp_path / "cache", "--json"))
    assert result == {"cache_dir": str(tmp_path / "cache"), "files": 1, "bytes": size}
    assert documented()["fetch"] == (set(result), {})
    assert len(pages(url)) < size / PAGE / 2  # the header and the tables are read to open the file


def test_a_file_larger_than_the_limit_is_an_error_and_cached_pages_stay(url, tmp_path):
    assert "--cache-limit" in fetch(url, tmp_path / "cache", "--cache-limit", str(3 * PAGE), code=1)
    (data,) = (tmp_path / "cache" / "objects").glob("*/data")
    assert 0 < data.stat().st_blocks * 512 <= 3 * PAGE
    first = set(pages(url))
    forget_requests(url)
    fetch(url, tmp_path / "cache")
    assert data.read_bytes() == path_of(url).read_bytes()
    assert first - set(pages(url))


@pytest.fixture
def served(tmp_path, fault_server):
    """A folder of a web server, whose index.json names its shard; a function of the name gives the URL."""
    (tmp_path / "store").mkdir()
    write_photos(tmp_path / "store" / "a.beton", 10)
    index_shards(tmp_path / "store")
    files = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}

    def name(shard):
        content = json.loads(files["index.json"])["content"]
        content["shards"][0]["name"] = shard
        text = json.dumps(content)
        whole = json.dumps({"checksum": zlib.crc32(text.encode()), "content": content}).encode()
        fault_server.objects |= {
            "in21k/index.json": whole,
            "in21k/index.bin": files["index.bin"],
            f"in21k/{shard}": files["a.beton"],
        }
        return fault_server.url("in21k/")

    return name


@pytest.mark.filterwarnings("ignore:.*other copies")
@pytest.mark.parametrize("name", ["a.beton", "run.sh", ".bashrc"])
def test_no_name_of_a_server_becomes_a_name_of_a_file(served, tmp_path, name):
    fetch(served(name), tmp_path / "cache")
    written = {str(path.relative_to(tmp_path / "cache")) for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert all(re.fullmatch("space|uses|objects/[0-9a-f]{32}/(data|pages|info.json)", path) for path in written)


@pytest.mark.parametrize("name", ["../a.beton", "..", "x/a.beton"])
def test_a_name_that_leaves_the_folder_is_refused(served, tmp_path, name):
    assert "index.json" in fetch(served(name), tmp_path / "cache", code=1)
    assert not (tmp_path / "cache").exists()


def test_a_server_without_versions_is_named_and_a_file_of_this_machine_needs_no_cache(served, tmp_path, fault_server):
    path = write_photos(tmp_path / "a.beton", 4)
    assert "expected a URL" in fetch(str(path), tmp_path / "cache", code=2)
    assert not (tmp_path / "cache").exists()
    served("a.beton")
    fault_server.always = Fault(headers={"ETag": ""})
    assert "ETag" in fetch(fault_server.url("in21k/a.beton"), tmp_path / "cache", code=1)
