from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._plan import order as order_module
from gpubeton._plan.order import IdRange, WindowIds, WindowOrder
from gpubeton._plan.places import HostPlaces, Rank, nodes_of_hosts
from gpubeton.format.index import PageRuns
from tests.plan.test_order import files
from tests.reference.host_places import window_of_nodes as reference


def window(indices, pages, nodes, width, seed, epoch):
    ids = np.asarray(indices, np.uint64)
    runs = PageRuns.join([np.asarray(pages)])
    return np.asarray(WindowIds.all(WindowOrder(ids, runs, nodes, width, seed, epoch, keeps_pages=True)))


def test_the_order_of_virtual_nodes_stays_as_it_is():
    order = window(range(24), np.arange(24) // 3, 3, 2, 5, 7)
    expected = "7 3 10 23 8 9 21 16 11 6 17 5 22 15 14 18 2 4 19 0 13 20 1 12"
    assert order.tolist() == list(map(int, expected.split()))


@given(files(), st.integers(1, 9), st.integers(1, 6), st.integers(0, 2**31), st.integers(0, 50))
def test_the_order_is_that_of_the_reference_and_has_each_sample_once(file, nodes, width, seed, epoch):
    indices, pages, _ = file
    order = window(indices, pages, nodes, width, seed, epoch)
    assert sorted(order.tolist()) == sorted(indices.tolist())
    assert order.tolist() == reference(indices, pages, nodes, width, seed, epoch).tolist()


@given(files(), st.integers(1, 9), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9)), min_size=2, max_size=4))
def test_a_virtual_node_has_the_same_samples_in_all_epochs_and_of_pages_at_its_borders_alone_a_part(
    file, nodes, epochs
):
    indices, pages, _ = file
    orders = [window(indices, pages, nodes, 2, seed, epoch) for seed, epoch in epochs]
    parts = [[set(order[node::nodes].tolist()) for node in range(nodes)] for order in orders]
    assert all(part == parts[0] for part in parts)
    sizes = [len(part) for part in parts[0]]
    assert max(sizes) - min(sizes) <= 1
    page_of = dict(zip(indices.tolist(), pages.tolist(), strict=True))
    assert sum(len({page_of[sample] for sample in part}) for part in parts[0]) <= len(set(page_of.values())) + nodes - 1


def test_the_order_in_a_virtual_node_is_another_in_each_epoch_and_mixes_pages():
    pages = np.arange(6000) // 10
    orders = [window(range(6000), pages, 8, 4, 0, epoch)[3::8].astype(int) for epoch in range(3)]
    assert len({tuple(order.tolist()) for order in orders}) == 3
    assert np.mean(np.diff(pages[orders[0]]) == 0) < 0.35
    # The pages come in another order, too.
    first_seen = [list(dict.fromkeys(pages[order].tolist())) for order in orders]
    assert np.corrcoef(np.argsort(first_seen[0]), np.argsort(first_seen[1]))[0, 1] < 0.4


@given(st.integers(1, 200), st.integers(1, 20), st.integers(1, 20))
def test_hosts_that_come_or_go_move_their_virtual_nodes_only_and_get_them_again(nodes, before, after):
    dealt, then = nodes_of_hosts(nodes, range(before)), nodes_of_hosts(nodes, range(after))
    for hosts in (dealt, then):
        assert sorted(chain(*hosts.values())) == list(range(nodes))
        assert max(map(len, hosts.values())) - min(map(len, hosts.values())) <= 1
    few, many = sorted((dealt, then), key=len)
    assert all(set(many[host]) <= set(few[host]) for host in few)
    assert nodes_of_hosts(nodes, range(before)) == dealt


@given(st.integers(1, 200), st.sets(st.integers(0, 15), min_size=1), st.data())
def test_also_hosts_in_the_middle_may_be_missing(nodes, hosts, data):
    all_hosts = nodes_of_hosts(nodes, range(max(hosts) + 1))
    dealt = nodes_of_hosts(nodes, hosts)
    assert dealt.keys() == hosts
    assert sorted(chain(*dealt.values())) == list(range(nodes))
    assert max(map(len, dealt.values())) - min(map(len, dealt.values())) <= 1
    assert all(set(all_hosts[host]) <= set(dealt[host]) for host in hosts)


def test_of_64_virtual_nodes_8_hosts_6_hosts_and_8_again_move_16():
    eight, six = nodes_of_hosts(64, range(8)), nodes_of_hosts(64, range(6))
    moved = [set(six[host]) - set(eight[host]) for host in range(6)]
    assert sum(map(len, moved)) == 16 == len(set().union(*moved) & {*eight[6], *eight[7]})


@st.composite
def stories(draw):
    """An epoch that hosts begin and others go on with: total, pages, nodes, and (host of each rank, batch, batches)."""
    nodes = draw(st.integers(1, 24))
    phase = st.tuples(st.lists(st.integers(0, nodes - 1), min_size=1, max_size=8), st.integers(1, 9), st.integers(1, 4))
    return draw(st.integers(1, 300)), draw(st.integers(1, 12)), nodes, draw(st.lists(phase, min_size=1, max_size=5))


@settings(max_examples=150)
@given(stories(), st.integers(0, 9), st.integers(1, 40), st.integers(1, 17))
def test_for_any_hosts_each_global_batch_is_the_next_stretch_and_each_sample_comes_once(story, epoch, least, batch):
    total, per_page, nodes, phases = story
    pages = np.arange(total) // per_page
    order = reference(range(total), pages, nodes, 2, 3, epoch).tolist()
    window_order = WindowOrder(IdRange(total), PageRuns.join([pages]), nodes, 2, 3, epoch, keeps_pages=True)
    first, seen = 0, []
    for hosts, batch_size, count in [*phases, (phases[0][0], phases[0][1], 10**9)]:
        world = len(hosts)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(order_module, "_LEAST_BLOCK", least)
            shares = []
            for number in range(world):
                places = HostPlaces(Rank(number, world), nodes, batch_size, first, total, tuple(hosts))
                ids = WindowIds(window_order, places)
                assert len(ids) == len(places[:]) == max(-(-(total - first) // world), 0)
                parts = [ids[start : start + batch].tolist() for start in range(0, len(ids), batch)]
                shares.append([sample for part in parts for sample in part])
                assert shares[-1] == np.asarray(ids).tolist()
        for start in range(0, len(shares[0]), batch_size)[:count]:
            samples = [sample for share in shares for sample in share[start : start + batch_size]]
            expected = [order[place % total] for place in range(first, first + len(samples))]
            assert sorted(samples) == sorted(expected)
            seen += expected[: total - first]
            first = min(first + len(samples), total)
    assert seen == order


@pytest.mark.parametrize(
    ("hosts", "per_host", "batch_size"), [(8, 2, 24), (4, 4, 24), (2, 3, 64), (1, 8, 48), (6, 1, 64)]
)
def test_a_host_takes_the_samples_of_its_virtual_nodes_alone_if_their_numbers_divide(hosts, per_host, batch_size):
    nodes, total = 48, 9_600
    world = hosts * per_host
    dealt = nodes_of_hosts(nodes, range(hosts))
    for number in range(world):
        host_of_rank = tuple(np.repeat(range(hosts), per_host).tolist())
        places = HostPlaces(Rank(number, world), nodes, batch_size, 0, total, host_of_rank)[:]
        assert set(places % nodes) <= set(dealt[number // per_host])


@pytest.mark.parametrize(("hosts", "batch", "most"), [(8, 100, 0.03), (6, 96, 0.04), (5, 100, 0.05), (7, 64, 0.05)])
def test_where_they_do_not_divide_few_samples_come_from_nodes_of_others(hosts, batch, most):
    nodes, total = 64, 64_000
    dealt, foreign = nodes_of_hosts(nodes, range(hosts)), 0
    for number in range(hosts):
        places = HostPlaces(Rank(number, hosts), nodes, batch, 0, total, tuple(range(hosts)))[:]
        foreign += np.count_nonzero(~np.isin(places % nodes, dealt[number]))
    assert 0 < foreign / total < most


def test_ranks_of_one_host_share_its_virtual_nodes():
    hosts = tuple(np.repeat(range(4), 4).tolist())
    nodes = [set(HostPlaces(Rank(number, 16), 64, 64, 0, 64_000, hosts)[:] % 64) for number in range(16)]
    assert [len(part) for part in nodes] == [4] * 16
    assert len(set().union(*nodes)) == 64
    host = set().union(*nodes[4:8])
    assert host == set(nodes_of_hosts(64, range(4))[1])


def batch_of_a_rank(total, runs):
    order = WindowOrder(IdRange(total), runs, 16, 4, 0, 0, keeps_pages=True)
    places = HostPlaces(Rank(9, 16), 16, 256, 0, total, tuple(np.repeat(range(8), 2).tolist()))
    assert len(WindowIds(order, places)[50_000:50_256]) == 256


def test_a_batch_of_a_rank_takes_no_array_of_all_samples(memory_of):
    total = 3_000_000
    assert memory_of(batch_of_a_rank, total, PageRuns.join([np.arange(total) // 200])).peak < 2 * total
