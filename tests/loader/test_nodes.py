"""Loaders of several hosts whose pages belong to virtual nodes. Torch's fake process groups replace the ranks."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from gpubeton._bytes import node_cache
from gpubeton.cli.app import app
from gpubeton.errors import OptionError, StateError
from gpubeton.fields import BytesField, IntField
from gpubeton.fields.decoders import IntDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import ToTensor
from gpubeton.traversal_order import window
from tests.bytes.versioned_source import forget_requests, put, requests_of
from tests.loader.test_elastic import LABELS, photos, rank_of, run, samples_in  # noqa: F401  a fixture
from tests.small_files import write

NODES = 12
PAGE = 2 << 20
PAGES, PER_PAGE = 48, 16


def of(hosts, nodes=NODES):
    return {"order_kwargs": {"nodes": nodes, "width": 2, "hosts": hosts}}


def sets_of(batches):
    """Give the samples of each global batch, sorted, and their images in this order."""
    for shares in batches:
        samples = np.concatenate([samples for samples, _ in shares])
        yield np.sort(samples).tolist(), torch.cat([images for _, images in shares])[np.argsort(samples)]


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch):
    for name in ("GROUP_WORLD_SIZE", "GROUP_RANK", "SLURM_NNODES", "SLURM_NODEID"):
        monkeypatch.delenv(name, raising=False)


def test_global_batches_are_the_same_to_the_bit_for_8_4_3_and_1_hosts(photos):  # noqa: F811
    whole = list(sets_of(run(photos, 1, 24, **of(1))[0]))
    assert sorted(sum((samples for samples, _ in whole), [])) == list(range(96))  # noqa: RUF017  four lists
    for hosts, ranks, batch_size in ((8, 8, 3), (4, 8, 3), (3, 6, 4), (1, 2, 12)):
        for (samples, images), (expected, theirs) in zip(
            sets_of(run(photos, ranks, batch_size, **of(hosts))[0]), whole, strict=True
        ):
            assert samples == expected
            assert torch.equal(images, theirs)


def test_hosts_that_stop_are_followed_by_others_and_no_sample_is_lost_or_comes_twice(photos):  # noqa: F811
    whole = [samples for samples, _ in sets_of(run(photos, 1, 24, **of(1))[0])]
    for stop in (1, 2, 3):
        _, state = run(photos, 8, 3, None, stop, **of(8))
        for hosts, ranks, batch_size in ((8, 8, 3), (3, 6, 4), (6, 6, 4), (4, 4, 6)):
            rest, _ = run(photos, ranks, batch_size, state, **of(hosts))
            assert [samples for samples, _ in sets_of(rest)] == whole[stop:]
    with pytest.raises(StateError, match="order is"):
        run(photos, 8, 3, state, **of(8, nodes=16))


def test_stories_of_hosts_that_come_and_go(photos):  # noqa: F811
    rng = np.random.default_rng(0)
    for _ in range(20):  # tests of the plan have more
        indices, seen, state = np.arange(int(rng.integers(20, 97))), [], None
        while len(seen) < len(indices):
            hosts = int(rng.integers(1, 4))
            ranks, batch_size, count = hosts * int(rng.integers(1, 3)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
            changes = {**of(hosts), "pipelines": LABELS["pipelines"], "indices": indices}
            left = -(-(len(indices) - len(seen)) // (ranks * batch_size))
            batches, state = run(photos, ranks, batch_size, state, min(count, left), **changes)
            seen += [sample for shares in batches for samples, _ in shares for sample in samples]
        padding = len(seen) - len(indices)
        assert set(seen) == set(indices.tolist())
        assert padding < ranks


@pytest.mark.parametrize(("count", "number"), [("GROUP_WORLD_SIZE", "GROUP_RANK"), ("SLURM_NNODES", "SLURM_NODEID")])
def test_the_launcher_names_the_host(photos, monkeypatch, count, number):  # noqa: F811
    kwargs = {**LABELS, "order_kwargs": {"nodes": NODES}, "distributed": True}
    expected, _ = run(photos, 4, 3, **LABELS, **of(2))
    monkeypatch.setenv(count, "2")
    for rank in range(4):
        monkeypatch.setenv(number, str(rank // 2))
        with rank_of(rank, 4), Loader(photos, 3, **kwargs) as loader:
            assert loader.traversal_order.hosts == (0, 0, 1, 1)
            assert samples_in(loader) == [sample for shares in expected for sample in shares[rank][0]]
            monkeypatch.setenv(number, str(1 - rank // 2))
            with pytest.raises(OptionError, match=f"rank {rank} on host {1 - rank // 2}.*each rank's host"):
                Loader(photos, 3, **kwargs)
    with Loader(photos, 12, **{**kwargs, "distributed": False}) as loader:  # such as one for validation
        assert sorted(samples_in(loader)) == list(range(96))


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        (3, "3 hosts for 4 ranks"),
        ([0, 0, 1], "3 numbers for 4 ranks"),
        ([0, 0, 0, NODES], f"number {NODES}, and there are {NODES} virtual"),
        (0, "hosts is 0"),
        ([0, 0, 0, -1], "is -1"),
    ],
)
def test_hosts_that_do_not_fit_are_named(photos, hosts, message):  # noqa: F811
    with rank_of(0, 4), pytest.raises(OptionError, match=message):
        Loader(photos, 3, **LABELS, **of(hosts), distributed=True)


def test_hosts_may_have_unequal_numbers_of_ranks_and_keep_their_numbers(photos):  # noqa: F811
    whole = [samples for samples, _ in sets_of(run(photos, 1, 24, **of(1))[0])]
    batches, _ = run(photos, 4, 6, **of([0, 0, 3, 5]))
    assert [samples for samples, _ in sets_of(batches)] == whole


def test_the_virtual_nodes_of_the_host_are_explained(photos, capsys):  # noqa: F811
    with rank_of(3, 4), Loader(photos, 6, **LABELS, **of([0, 0, 3, 5], nodes=13), distributed=True) as loader:
        loader.explain()
    assert "\nvirtual nodes: this host, number 5, of 3 hosts has 4 of 13\n" in capsys.readouterr().out
    with Loader(photos, 6, **LABELS) as loader:
        loader.explain()
    assert "virtual nodes" not in capsys.readouterr().out


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """A file of 48 pages."""
    rng = np.random.default_rng(0)
    size = PAGE // PER_PAGE - 64
    samples = [(rng.integers(0, 256, size, np.uint8), number) for number in range(PAGES * PER_PAGE)]
    path = tmp_path_factory.mktemp("pages") / "pages.beton"
    return write(path, {"image": BytesField(), "label": IntField()}, samples, page_size=PAGE).read_bytes()


@pytest.fixture
def url(content, tmp_path, monkeypatch):
    monkeypatch.setattr(node_cache, "PAGE_SIZE", PAGE)
    monkeypatch.setattr(window, "_PART", PAGE)
    return put(tmp_path / "pages.beton", content)


def epochs_of_host(url, folder, host, hosts, count=2, **changes):
    """Let a host of one rank go through epochs; give the bytes that the store sent in each, and from the cache."""
    results = []
    arguments = {"num_workers": 1, "seed": 3, "order": "window", "cache_limit": PAGE * (PAGES // hosts + 3), **changes}
    pipelines = {"label": [IntDecoder(), ToTensor()]}
    with (
        rank_of(host, hosts),
        Loader(url, 96 // hosts, distributed=True, pipelines=pipelines, cache_dir=folder, **arguments) as loader,
    ):
        for _ in range(count):
            forget_requests(url)
            list(loader)
            results.append((sum(size for _, size in requests_of(url)), loader.stats().cached_bytes))
    return results


def test_from_the_second_epoch_on_the_caches_of_eight_hosts_have_nearly_all_bytes(url, content, tmp_path):
    results = [epochs_of_host(url, tmp_path / f"{host}", host, 8, **of(8, 8)) for host in range(8)]
    first, second = np.array(results).sum(0)
    assert first[0] < 1.25 * len(content)  # pages at the borders of virtual nodes come twice
    assert second[0] < 0.05 * len(content)
    assert second[1] > 0.95 * PAGES * (PAGE - 1024)
    plain = [
        epochs_of_host(url, tmp_path / f"plain{host}", host, 8, order_kwargs={"streams": 8, "width": 2})
        for host in range(2)
    ]
    assert np.array(plain).sum(0)[1, 0] > 0.5 * 2 / 8 * len(content)


def test_pages_of_a_file_that_share_a_page_of_the_cache_belong_to_one_virtual_node(url, content, tmp_path, monkeypatch):
    assert window._PART == node_cache.PAGE_SIZE
    monkeypatch.setattr(node_cache, "PAGE_SIZE", 4 * PAGE)
    monkeypatch.setattr(window, "_PART", 4 * PAGE)
    limit = {"cache_limit": "1 GB"}
    results = [epochs_of_host(url, tmp_path / f"{host}", host, 3, 1, **of(3, 3), **limit) for host in range(3)]
    assert np.array(results).sum(0)[0, 0] < 1.4 * len(content)


def test_the_cache_of_a_host_is_not_filled_with_the_shares_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(node_cache, "PAGE_SIZE", PAGE)
    monkeypatch.setattr(window, "_PART", PAGE)
    samples = [(np.full(PAGE // 4 - 64, number, np.uint8), number) for number in range(8)]
    path = write(tmp_path / "shard.beton", {"image": BytesField(), "label": IntField()}, samples, page_size=PAGE)
    shards = [put(tmp_path / f"{number}.beton", path.read_bytes()) for number in range(6)]
    results = []
    for host in range(3):
        for shard in shards:
            forget_requests(shard)
        pipelines = {"label": [IntDecoder(), ToTensor()]}
        cache = {"cache_dir": tmp_path / f"{host}", "cache_limit": "1 GB"}
        arguments = {"order": "window", "seed": 0, "num_workers": 1, **cache, **of(3, 3)}
        with rank_of(host, 3), Loader(shards, 4, distributed=True, pipelines=pipelines, **arguments) as loader:
            list(loader)
        results.append(sum(size for shard in shards for _, size in requests_of(shard)))
    assert sum(results) < 1.7 * len(shards) * path.stat().st_size


def test_a_host_whose_share_was_fetched_requests_nothing_in_its_first_epoch(url, content, tmp_path):
    command = ["fetch", url, "--nodes", "8", "--hosts", "4", "--host", "2", "--cache-dir", str(tmp_path / "cache")]
    forget_requests(url)
    done = CliRunner().invoke(app, [*command, "--cache-limit", "1 GB", "--json"])
    assert done.exit_code == 0, done.output
    fetched = json.loads(done.stdout)["bytes"]
    assert 0.2 * len(content) < fetched < 0.4 * len(content)
    assert fetched <= sum(size for _, size in requests_of(url)) < 0.4 * len(content)
    ((sent, cached),) = epochs_of_host(url, tmp_path / "cache", 2, 4, 1, **of(4, 8))
    assert sent < 0.03 * len(content)
    assert cached > 0.24 * PAGES * (PAGE - 1024)


def test_a_share_needs_virtual_nodes_and_a_host_among_them(url, tmp_path):
    for options in (
        ["--host", "1"],
        ["--nodes", "4", "--hosts", "2"],
        ["--nodes", "4", "--hosts", "5"],
        ["--nodes", "4", "--hosts", "2", "--host", "2"],
    ):
        done = CliRunner().invoke(app, ["fetch", url, "--cache-dir", str(tmp_path / "cache"), *options])
        assert done.exit_code != 0
        assert "host" in done.output
