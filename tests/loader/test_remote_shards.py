"""Loaders of many shards in a store, which a manifest describes: how many requests they make, and when."""

from __future__ import annotations

import json
import shutil
import threading
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

from gpubeton._bytes import object_store
from gpubeton.dataset import Settings, convert, copy_samples, index_images, index_shards, open_source
from gpubeton.errors import LoaderClosedError
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.reader import Reader
from gpubeton.transforms import ToTensor
from tests.objects import read_object
from tests.picture_folders import write_folder


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Files of a converted folder; those with an odd number have entry points beside them, too."""
    folder = tmp_path_factory.mktemp("shards")
    write_folder(folder / "source", 24)
    convert(open_source(folder / "source"), folder / "all.beton", Settings(page_size=1 << 21), num_workers=1)
    (folder / "shards").mkdir()
    for number in range(6):
        path = folder / "shards" / f"{number}.beton"
        copy_samples(folder / "all.beton", path, range(4 * number, 4 * number + 4))
        if number % 2:
            index_images(path, overwrite=True)
    return folder / "shards"


@pytest.fixture
def requests(monkeypatch):
    """The requests that are made: the name of the object, and the kind of request."""
    results, ask = [], object_store.request_with_retries

    def counted(url, remote, what, *arguments):
        results.append((url.rpartition("/")[2], what))
        return ask(url, remote, what, *arguments)

    monkeypatch.setattr(object_store, "request_with_retries", counted)
    return results


def uploaded(shards, s3_server, count=6):
    for path in sorted(shards.iterdir()):
        if int(path.name[0]) < count:
            s3_server.put(f"data/{path.name}", path)
    url = s3_server.url("data/")
    index_shards(url)
    object_store._CACHED.clear()
    return url


def opened(files, **options):
    image = [RandomResizedCropRGBImageDecoder((16, 16)), ToTensor()]
    pipelines = {"image": image, "label": None}
    return Loader(files, 2, num_workers=1, drop_last=False, pipelines=pipelines, **options)


def batches(loader):
    with loader:
        return [batch[0].numpy().tobytes() for batch in loader]


def points(loader):
    return [own.tolist() for own in loader._resources.entry_points["image"].of(np.arange(24))[1:3]]


def quietly(files, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return opened(files, **options)


@pytest.mark.parametrize("count", [2, 6])
def test_a_loader_is_opened_with_as_many_requests_for_any_number_of_shards(shards, s3_server, requests, count):
    url = uploaded(shards, s3_server, count)
    requests.clear()
    loader = quietly(url)
    assert sorted(name for name, _ in requests) == ["", "index.bin", "index.json"]
    assert loader.reader.class_names == Reader(str(shards / "0.beton")).class_names
    assert len(requests) == 3
    loader.close()


def test_entry_points_of_a_shard_come_with_one_request_when_it_is_needed_first(shards, s3_server, requests, capsys):
    loader = quietly(uploaded(shards, s3_server), indices=range(8, 24))
    requests.clear()
    for _ in range(2):
        assert sum(len(batch[0]) for batch in loader) == 16
    entries = [(name, what) for name, what in requests if name.endswith(".index")]
    # The first six batches do without: shard 2 is decoded before any are asked for, then come those of 3.
    assert {name for name, _ in requests} == {*(f"{number}.beton" for number in range(2, 6)), *dict(entries)}
    for number in (3, 5):
        place = loader.reader.index.files[number].entry_place
        assert entries.count((f"{number}.beton.index", f"bytes {place.start} to {place.stop}")) == 1
    assert len(entries) == 2
    loader.explain()
    assert "4 shards, loaded when they are needed" in capsys.readouterr().out
    with opened(list(map(str, sorted(shards.glob("*.beton"))))) as local:
        assert points(loader) == points(local)
    loader.explain()
    assert "needed" not in capsys.readouterr().out
    loader.close()


def test_batches_of_indexed_shards_are_those_of_the_files(shards, s3_server, tmp_path, requests):
    url, files = uploaded(shards, s3_server), list(map(str, sorted(shards.glob("*.beton"))))
    for order in ("random", "window"):
        expected = batches(opened(files, order=order, seed=5))
        assert batches(quietly(url, order=order, seed=5)) == expected
        for _ in range(2):
            requests.clear()
            loader = quietly(url, order=order, seed=5, cache_dir=tmp_path / "cache", cache_limit="1 GB")
            assert batches(loader) == expected
    assert not [name for name, _ in requests if name.endswith(".index")]  # they are in the cache


def rewrite(url, s3_server, change):
    """Change the content of the manifest, with a right checksum."""
    content = json.loads(read_object(f"{url}index.json"))["content"]
    change(content)
    text = json.dumps(content)
    s3_server.put("data/index.json", json.dumps({"checksum": zlib.crc32(text.encode()), "content": content}).encode())
    object_store._CACHED.clear()


def test_a_manifest_of_an_earlier_format_has_no_checksums_and_is_not_used(shards, s3_server):
    def make_old(content):
        content["format"] = "gpubeton index 2"

    url = uploaded(shards, s3_server)
    rewrite(url, s3_server, make_old)
    with pytest.warns(UserWarning, match="gpubeton index 2"), opened(url) as loader, opened(str(shards)) as local:
        assert points(loader) == points(local)


def move(content):
    content["shards"][0]["entry_place"]["stop"] -= 8


def swap(content):
    first, second = content["shards"][0], content["shards"][2]
    first["entry_place"], second["entry_place"] = second["entry_place"], first["entry_place"]


@pytest.mark.parametrize("change", [move, swap])
def test_entry_points_are_found_where_the_manifest_has_another_place(shards, s3_server, change):
    url = uploaded(shards, s3_server)
    rewrite(url, s3_server, change)
    with quietly(url) as loader, opened(str(shards)) as local:
        assert points(loader) == points(local)


def add(shards, s3_server):
    path = s3_server.put("data/0.beton.index", shards / "1.beton.index")
    return path, "belong to another file"


def replace(shards, s3_server):
    path = s3_server.put("data/1.beton.index", shards / "3.beton.index")
    return path, "belong to another file"


@pytest.mark.parametrize("change", [add, replace])
def test_entry_points_beside_a_shard_that_changed_are_looked_at_in_the_first_epoch(shards, s3_server, change):
    url = uploaded(shards, s3_server)
    path, fault = change(shards, s3_server)
    with opened(url) as loader, opened(str(shards)) as local:
        with pytest.warns(UserWarning, match=f"{path}.*{fault}") as warned:
            list(loader)
        assert len(warned) == 1
        assert points(loader) == points(local)  # those in the shard


def test_entry_points_that_are_replaced_after_opening_are_left_out_with_a_warning(shards, s3_server):
    url = uploaded(shards, s3_server)
    with quietly(url) as loader, opened(str(shards)) as local:
        path, fault = replace(shards, s3_server)
        with pytest.warns(UserWarning, match=f"{path}.*{fault}"):
            assert points(loader) == points(local)


def test_closing_ends_the_waiting_for_entry_points(shards, s3_server, monkeypatch):
    loader = quietly(uploaded(shards, s3_server))
    is_asked, goes_on = threading.Event(), threading.Event()
    load = object_store.ObjectFile.load

    def wait(self, start, size):
        if self.name.endswith(".index"):
            is_asked.set()
            goes_on.wait()
        return load(self, start, size)

    monkeypatch.setattr(object_store.ObjectFile, "load", wait)
    iterator = iter(loader)
    is_asked.wait()
    loader.close()
    goes_on.set()
    with pytest.raises(LoaderClosedError):
        list(iterator)


def test_a_copied_folder_is_read_from_its_own_files(shards, tmp_path):
    folder = Path(shutil.copytree(shards, tmp_path / "copy"))
    index_shards(folder)
    (folder / "1.beton.index").unlink()
    with quietly(str(folder)) as loader, opened(str(shards)) as local:
        assert points(loader) == points(local)
