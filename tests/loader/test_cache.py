"""A loader of remote files with the node's cache: the same batches, each page fetched once, mapped in the end."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

from gpubeton._bytes import node_cache
from gpubeton.errors import StorageError
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import IntDecoder, SimpleRGBImageDecoder
from gpubeton.loader import Loader, resources
from gpubeton.transforms import ToTensor
from tests.bytes.s3_server import Bucket, running_s3
from tests.bytes.versioned_source import VersionedSource, forget_requests, put, requests_of
from tests.loader.pipelines import same
from tests.small_files import picture, write
from tests.waiting import wait_until

PAGE = 1 << 20
SAMPLES = 240


def write_pictures(path, first=0):
    samples = [(picture(first + number, 100, 150), number) for number in range(SAMPLES)]
    return write(path, {"image": RGBImageField("raw"), "label": IntField()}, samples)


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """Two versions of a file of eleven megabytes."""
    folder = tmp_path_factory.mktemp("pictures")
    return [write_pictures(folder / f"{first}.beton", first).read_bytes() for first in (0, 1000)]


@pytest.fixture
def names(contents, tmp_path, monkeypatch):
    """Two shards, with a cache of small pages."""
    monkeypatch.setattr(node_cache, "PAGE_SIZE", PAGE)
    return [put(tmp_path / f"{number}.beton", contents[0]) for number in range(2)]


def make(names, folder, **arguments):
    pipelines = {"image": [SimpleRGBImageDecoder(), ToTensor()], "label": [IntDecoder(), ToTensor()]}
    defaults = {"num_workers": 2, "seed": 3, "drop_last": False, "cache_dir": folder, "cache_limit": "1 GB"}
    return Loader(names, 17, pipelines=pipelines, **{**defaults, **arguments})


def local(names, **arguments):
    paths = [name.partition("://")[2] for name in names]
    return make(paths, None, **arguments)


def all_requests(names):
    """List the requests but for the short ones by which loaders open files."""
    requests = [(name, *request) for name in names for request in requests_of(name)]
    return [request for request in requests if request[2] >= 20_000]


def forget_all(names):
    for name in names:
        forget_requests(name)


@pytest.mark.parametrize("order", ["sequential", "random", "quasi_random", "window"])
def test_batches_are_those_of_local_files_and_from_the_second_epoch_on_nothing_is_requested(names, tmp_path, order):
    with make(names, tmp_path / "cache", order=order) as loader, local(names, order=order) as expected:
        forget_all(names)
        assert same(loader, expected)
        requests = all_requests(names)
        assert len(requests) == len(set(requests))
        assert all(start % PAGE == 0 for _, start, _ in requests)
        assert same(loader, expected)  # the metadata and the allocation tables are requested
        forget_all(names)
        assert same(loader, expected)
        stats = loader.stats()
    assert all_requests(names) == []
    assert (stats.requests, stats.fetched_bytes, stats.cached_bytes) == (0, 0, stats.stored_bytes)


def test_pages_that_are_fetched_before_the_first_epoch_are_counted(names, contents, tmp_path, monkeypatch):
    monkeypatch.setattr(node_cache, "PAGE_SIZE", 8 * PAGE)  # so few that they are fetched at once
    with make(names, tmp_path / "cache") as loader:
        list(loader)
        stats = loader.stats()
        assert (stats.requests, stats.fetched_bytes, stats.cached_bytes) == (4, 2 * len(contents[0]), 0)
        list(loader)
        stats = loader.stats()
        assert (stats.requests, stats.fetched_bytes, stats.cached_bytes) == (0, 0, stats.stored_bytes)


def test_a_file_that_is_there_completely_is_mapped_by_later_loaders(names, tmp_path):
    with make(names, tmp_path / "cache") as loader:
        list(loader)
        list(loader)
    with make(names, tmp_path / "cache") as loader, local(names) as expected:
        forget_all(names)
        assert same(loader, expected)
        assert all_requests(names) == []


def test_pages_beyond_the_limit_are_loaded_in_each_epoch_and_cached_ones_stay(names, contents, tmp_path):
    with make(names, tmp_path / "cache", cache_limit=8 * PAGE) as loader, local(names) as expected:
        node = loader._resources.cache.node
        forget_all(names)
        assert same(loader, expected)
        wait_until(lambda: node.used > 7 * PAGE)
        first = sum(size for _, _, size in all_requests(names))
        forget_all(names)
        for _ in range(2):
            assert same(loader, expected)
    later = sum(size for _, _, size in all_requests(names))
    stats = loader.stats(total=True)
    assert stats.fetched_bytes == first + later
    # The second and the third epoch, and the parts that are asked ahead for a fourth.
    assert later <= 3 * (len(names) * len(contents[0]) - 7 * PAGE)
    assert stats.cached_bytes >= 2 * 8 * PAGE
    assert 7 * PAGE < node.used <= 8 * PAGE + 4096 * len(names)  # a file may take a block for the list of its blocks


def test_another_version_of_a_file_gives_its_own_samples(names, contents, tmp_path):
    with make(names, tmp_path / "cache") as old:
        list(old)
        put(tmp_path / "0.beton", contents[1])
        with make(names, tmp_path / "cache") as loader, local(names) as expected:
            assert same(loader, expected)


@pytest.mark.parametrize("limit", ["1 GB", 5 * PAGE])
def test_single_ranges_are_requested_while_the_cache_fills_in_the_background(names, tmp_path, monkeypatch, limit):
    # So that pages are not held as a whole, and that the few requests of this small file are too many.
    monkeypatch.setattr(resources, "memory_for_pages", lambda: 0)
    monkeypatch.setattr(resources, "_LEAST_REQUESTS", -1)
    monkeypatch.setattr(resources, "_TOO_MANY", 0)
    expected = list(local(names, order="random"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if limit != "1 GB" else "error")  # about the cost
        loader = make(names, tmp_path / "cache", order="random", cache_limit=limit)
        with loader:
            assert same(loader, expected)
            loader._resources.cache._filler.join()
            num_pages = [
                loader._resources.cache.node.count_pages(identity)[0] for identity in loader._resources.files.identities
            ]
    whole = [request for request in all_requests(names) if request[2] == PAGE]
    assert len(whole) == len(set(whole))
    assert sum(num_pages) == 5 if limit != "1 GB" else sum(num_pages) > 20


def test_filling_in_the_background_shows_its_error_and_begins_again(names, tmp_path, monkeypatch):
    def fail(*_):
        raise StorageError("out of reach")

    with make(names, tmp_path / "cache") as loader:
        cache = loader._resources.cache
        with monkeypatch.context() as patch:
            patch.setattr(VersionedSource, "load", fail)
            cache.begin_filling()
            with pytest.raises(StorageError, match="out of reach"):
                cache._filler.join()
        with pytest.warns(UserWarning, match="out of reach"):
            cache.begin_filling()
        cache._filler.join()
        cache.begin_filling()
        assert cache.files.is_mappable


def test_a_small_part_of_the_samples_does_not_fill_the_cache_with_the_rest(names, tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "_is_costly", lambda _: True)
    monkeypatch.setattr(resources.Resources, "_warn_of_cost", lambda *_: None)
    part = np.arange(0, 480, 3)
    with make(names, tmp_path / "cache", order="random", indices=part) as loader:
        assert same(loader, local(names, order="random", indices=part))
        assert loader._resources.cache._filler is None


def test_objects_of_a_store_are_cached_by_their_versions(contents, tmp_path, monkeypatch):
    monkeypatch.setattr(node_cache, "PAGE_SIZE", PAGE)
    (tmp_path / "local.beton").write_bytes(contents[0])
    (tmp_path / "other.beton").write_bytes(contents[1])
    with running_s3() as address:
        bucket = Bucket.make(address, "cached", monkeypatch)
        url = bucket.put("train/0.beton", contents[0])
        for path in ("local.beton", "other.beton"):
            with make(url, tmp_path / "cache") as loader, make(str(tmp_path / path), None) as expected:
                for epoch in range(3):
                    assert same(loader, expected)
                    stats = loader.stats()
                    assert (stats.requests > 0) == (epoch < 2)  # the second one requests the metadata
                assert stats.cached_bytes == stats.stored_bytes
            bucket.put("train/0.beton", contents[1])
    assert len(list((tmp_path / "cache" / "objects").iterdir())) == 2


def test_explain_names_the_cache_its_limit_and_its_content(names, tmp_path, capsys):
    with make(names, tmp_path / "cache", cache_limit="10 MB") as loader:
        loader.explain()
        first = capsys.readouterr().out
        list(loader)
        loader.explain()
        then = capsys.readouterr().out
    size = (tmp_path / "0.beton").stat().st_size
    pages = 2 * -(-size // PAGE)
    assert f"0 of {pages} pages of {2 * size / 1e9:.3f} GB" in first
    assert str(tmp_path / "cache") in first
    assert "at most 0.010 GB; what does not fit" in first
    assert f"9 of {pages} pages" in then


def test_the_environment_names_the_directory_and_files_of_this_machine_need_none(names, tmp_path, monkeypatch):
    monkeypatch.setenv("GPUBETON_CACHE_DIR", str(tmp_path / "named"))
    with local(names) as loader:
        assert loader.cache_dir == str(tmp_path / "named")
        list(loader)
    assert not (tmp_path / "named" / "objects").exists()
    with make(names, None) as loader:
        list(loader)
    assert len(list((tmp_path / "named" / "objects").iterdir())) == 2


def test_a_loader_of_a_local_file_imports_neither_the_cache_nor_indices_of_folders(names):
    path = names[0].partition("://")[2]
    code = (
        f"import sys; from gpubeton.loader import Loader; list(Loader({path!r}, 4, num_workers=1)); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"gpubeton._bytes.node_cache", "gpubeton.format.manifest"} & set(loaded)


def test_samples_of_copies_and_filters_use_the_same_cache(names, tmp_path):
    with make(names, tmp_path / "cache") as loader:
        list(loader)
        list(loader)
        forget_all(names)
        part = loader.filter("label", lambda label: label < 20)
        with part:
            assert len(part.indices) == 40
            assert np.concatenate([labels.numpy().ravel() for _, labels in part]).max() < 20
    assert all_requests(names) == []
