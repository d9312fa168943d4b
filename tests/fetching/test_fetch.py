"""`fetch` and its command: complete or not there, resumed, checked, each byte fetched once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import zlib

import pytest
from typer.testing import CliRunner

from gpubeton import fetching
from gpubeton.cli.app import app
from gpubeton.errors import FormatError, OptionError, RemoteDamagedError, RemoteMissingError, StorageError
from gpubeton.fetching import fetch
from gpubeton.indexing import index_images, index_shards
from gpubeton.writer import DatasetWriter
from tests.files.fault_server import Fault
from tests.files.s3_server import Bucket, running_s3
from tests.files.versioned_source import forget_requests, path_of, put, requests_of
from tests.small_files import Photos, damage, photo_fields, write_photos

PAGE = 1 << 18


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """A file with checksums."""
    path = tmp_path_factory.mktemp("noted") / "noted.beton"
    writer = DatasetWriter(path, photo_fields("raw"), num_workers=1, progress=False, page_size=1 << 21, notes={"a": 1})
    writer.from_indexed_dataset(Photos(100))
    return path.read_bytes()


@pytest.fixture
def url(content, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "PAGE_SIZE", PAGE)
    (tmp_path / "store").mkdir()
    return put(tmp_path / "store" / "train.beton", content)


def pages(url):
    """List the requests for whole pages."""
    size = path_of(url).stat().st_size
    return [each for each in requests_of(url) if each[1] == PAGE or sum(each) == size]


def visible(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_a_file_is_fetched_once_checked_and_complete_under_its_name(url, content, tmp_path):
    progress = []
    (file,) = fetch(url, tmp_path / "here", on_progress=lambda *numbers: progress.append(numbers))
    assert file.path == tmp_path / "here" / "train.beton"
    assert file.path.read_bytes() == content
    assert (file.url, file.bytes, file.was_there) == (url, len(content), False)
    assert file.checksums > 100
    assert progress[-1] == (len(content), len(content))
    assert len(pages(url)) == len(set(pages(url))) == -(-len(content) // PAGE)
    assert sorted(path.name for path in file.path.parent.iterdir()) == [".train.beton.fetched", "train.beton"]
    forget_requests(url)
    (again,) = fetch(url, tmp_path / "here")
    assert (again.was_there, again.checksums) == (True, file.checksums)
    assert requests_of(url) == []


KILLED = """
import os, signal, sys
from gpubeton import fetching
import tests.files.versioned_source
fetching.PAGE_SIZE = 1 << 18
url, folder, count = sys.argv[1:]
seen = []
def progress(done, size):
    seen.append(done)
    if len(seen) == int(count):
        os.kill(os.getpid(), signal.SIGKILL)
fetching.fetch(url, folder, on_progress=progress)
"""


def start(url, folder, count=0):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", KILLED, url, str(folder), str(count)], env=environment)


def test_after_kill_9_only_the_missing_pages_are_fetched(url, content, tmp_path):
    assert start(url, tmp_path, 3).wait() == -signal.SIGKILL
    assert visible(tmp_path) == ["store"]
    before = set(pages(url))
    assert len(before) >= 3
    (file,) = fetch(url, tmp_path)
    assert file.path.read_bytes() == content
    repeated = [each for each in pages(url) if pages(url).count(each) > 1]
    assert len(set(repeated)) <= 8  # those that were on their way
    assert len(set(pages(url))) == -(-len(content) // PAGE)


def test_two_processes_fetch_each_page_once(url, content, tmp_path):
    processes = [start(url, tmp_path / "here") for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert (tmp_path / "here" / "train.beton").read_bytes() == content
    assert len(pages(url)) == -(-len(content) // PAGE)


def test_another_version_takes_the_place_of_the_old_one_and_of_its_parts(url, content, tmp_path):
    fetch(url, tmp_path)
    changed = bytearray(content)
    put(path_of(url), bytes(changed))
    assert start(url, tmp_path, 2).wait() == -signal.SIGKILL
    other = write_photos(tmp_path / "other.beton", 30).read_bytes()
    put(path_of(url), other)
    (file,) = fetch(url, tmp_path)
    assert (file.path.read_bytes(), file.was_there, file.checksums) == (other, False, 0)
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".fetching")] == []


def test_bytes_that_differ_from_their_checksums_get_no_name(url, tmp_path):
    damage(path_of(url), 40)
    with pytest.raises(RemoteDamagedError, match=r"train.beton.*1 samples, the first is 40"):
        fetch(url, tmp_path / "here")
    assert visible(tmp_path / "here") == []


def test_a_damaged_copy_is_fetched_again(url, content, tmp_path):
    (file,) = fetch(url, tmp_path)
    for keeps_time in (True, False):
        before = file.path.stat()
        damage(file.path, 7)
        if keeps_time:
            os.utime(file.path, ns=(before.st_atime_ns, before.st_mtime_ns))
        (again,) = fetch(url, tmp_path)
        assert not again.was_there
        assert file.path.read_bytes() == content


def test_a_file_that_is_none_gets_no_name(url, tmp_path):
    put(path_of(url), b"x" * 1000)
    with pytest.raises(FormatError):
        fetch(url, tmp_path / "here")
    put(path_of(url), b"")
    with pytest.raises(StorageError, match="no bytes"):
        fetch(url, tmp_path / "here")
    assert visible(tmp_path / "here") == []


def test_a_full_disk_is_named_and_what_is_there_is_kept(url, content, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(fetching, "allocate", fail)
        with pytest.raises(StorageError, match=r"here.*No space left"):
            fetch(url, tmp_path / "here")
    assert fetch(url, tmp_path / "here")[0].path.read_bytes() == content


@pytest.mark.parametrize("share", [(1, 1), (-1, 2), (0, 0)])
def test_a_share_that_is_none_is_an_error(url, tmp_path, share):
    with pytest.raises(OptionError, match="share"):
        fetch(url, tmp_path, share=share)


def test_a_single_file_is_that_of_the_first_share(url, tmp_path):
    assert fetch(url, tmp_path / "second", share=(1, 2)) == []
    assert [file.path.name for file in fetch(url, tmp_path / "first", share=(0, 2))] == ["train.beton"]


def test_a_question_mark_in_the_name_of_an_object_is_a_character_like_others(url, content, tmp_path):
    name = put(tmp_path / "store" / "a?b.beton", content)
    (file,) = fetch(name, tmp_path / "here")
    assert (file.path.name, file.path.read_bytes()) == ("a?b.beton", content)
    assert file.checksums > 100


def test_names_that_leave_the_folder_are_refused(tmp_path):
    with pytest.raises(OptionError, match="name of a file"):
        fetch("https://127.0.0.1:1/a/..", tmp_path)


def test_shares_of_a_folder_are_all_its_shards_with_their_entry_points(tmp_path, monkeypatch):
    names = [f"{letter}.beton" for letter in "abcde"]
    with running_s3() as address:
        bucket = Bucket.make(address, "shards", monkeypatch)
        for number, name in enumerate(names):
            path = write_photos(tmp_path / name, 10 + number)
            index_images(path, num_workers=1)
            for each in (path, path.with_name(f"{name}.index")):
                bucket.put(f"in21k/{each.name}", each)
        bucket.put("in21k/readme.txt", b"no shard")
        for share in range(2):
            fetch(bucket.url("in21k/"), tmp_path / f"node{share}", share=(share, 2))
        with pytest.raises(RemoteMissingError):
            fetch(bucket.url("empty/"), tmp_path)
    assert visible(tmp_path / "node0") == sorted([*names[::2], *(f"{name}.index" for name in names[::2])])
    assert visible(tmp_path / "node1") == sorted([*names[1::2], *(f"{name}.index" for name in names[1::2])])
    for share in range(2):
        for name in visible(tmp_path / f"node{share}"):
            assert (tmp_path / f"node{share}" / name).read_bytes() == (tmp_path / name).read_bytes()


def test_a_folder_of_a_web_server_is_what_its_index_describes(tmp_path, fault_server):
    (tmp_path / "store").mkdir()
    for name in "ab":
        write_photos(tmp_path / "store" / f"{name}.beton", 10)
    index_images(tmp_path / "store" / "a.beton", num_workers=1)
    index_shards(tmp_path / "store")
    files = {f"in21k/{path.name}": path.read_bytes() for path in (tmp_path / "store").iterdir()}
    fault_server.objects.update(files)
    fetch(fault_server.url("in21k/"), tmp_path / "here")
    assert visible(tmp_path / "here") == ["a.beton", "a.beton.index", "b.beton", "index.bin", "index.json"]
    assert {f"in21k/{name}": (tmp_path / "here" / name).read_bytes() for name in visible(tmp_path / "here")} == files
    with pytest.raises(OptionError, match=r"empty.*index\.json"):
        fetch(fault_server.url("empty/"), tmp_path)
    fault_server.objects["in21k/index.json"] = b"{}"
    with pytest.raises(FormatError, match=r"in21k/index\.json"):
        fetch(fault_server.url("in21k/"), tmp_path)


@pytest.fixture
def served(tmp_path, fault_server):
    """A folder of a web server; `change` changes its index.json, and gives the URL."""
    (tmp_path / "store").mkdir()
    write_photos(tmp_path / "store" / "a.beton", 10)
    index_shards(tmp_path / "store")
    files = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}

    def change(**shard):
        content = json.loads(files["index.json"])["content"]
        content["shards"][0].update(shard)
        text = json.dumps(content)
        whole = {
            **files,
            "index.json": json.dumps({"checksum": zlib.crc32(text.encode()), "content": content}).encode(),
        }
        whole[content["shards"][0]["name"]] = files["a.beton"]
        fault_server.objects.update({f"in21k/{name}": content for name, content in whole.items()})
        return fault_server.url("in21k/")

    return change


@pytest.mark.parametrize("name", ["run.sh", ".bashrc", ".a.beton", "beton"])
def test_a_server_gets_files_of_shards_written_and_no_others(served, tmp_path, name):
    with pytest.raises(FormatError, match=re.escape(repr(name))):
        fetch(served(name=name), tmp_path / "here")
    assert list((tmp_path / "here").iterdir()) == []


def test_a_shard_of_another_size_than_the_index_tells_gets_no_name(served, tmp_path):
    with pytest.raises(FormatError, match=r"a\.beton.*expected 12345678"):
        fetch(served(size=12345678), tmp_path / "here")
    assert visible(tmp_path / "here") == []


@pytest.mark.parametrize("name", ["a.beton", "index.json"])
def test_a_file_that_was_not_fetched_is_not_replaced(served, tmp_path, name):
    (tmp_path / name).write_text("mine")
    for _ in range(2):
        with pytest.raises(StorageError, match=f"{name}.*not fetched"):
            fetch(served(), tmp_path)
    assert (tmp_path / name).read_text() == "mine"
    (tmp_path / name).unlink()
    fetch(served(), tmp_path)


def test_files_of_a_server_without_versions_are_fetched_again(served, tmp_path, fault_server):
    fault_server.always = Fault(headers={"ETag": ""})
    for _ in range(2):
        assert not any(file.was_there for file in fetch(served(), tmp_path))


def test_the_command_fetches_and_describes(url, content, tmp_path):
    run = CliRunner().invoke(app, ["fetch", url, str(tmp_path / "here")])
    assert run.exit_code == 0, run.output
    assert "fetched" in run.output
    assert "agree with their checksums" in run.output
    run = CliRunner().invoke(app, ["fetch", url, str(tmp_path / "here"), "--json"])
    (file,) = json.loads(run.stdout)["files"]
    assert (file["bytes"], file["was_there"]) == (len(content), True)
    run = CliRunner().invoke(app, ["fetch", url, str(tmp_path), "--share", "2"])
    assert run.exit_code == 2
    assert "K/N" in run.output
