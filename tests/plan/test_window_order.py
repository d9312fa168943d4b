from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton._plan import order as order_module
from gpubeton._plan.order import IdRange, WindowIds, WindowOrder, share
from gpubeton._plan.places import Rank, StreamPlaces
from gpubeton.format.index import PageRuns
from tests.plan.test_order import files, open_pages
from tests.reference.window_order import window as reference


def window(indices, pages, streams, width, seed, epoch):
    ids = np.asarray(indices, np.uint64)
    result = np.asarray(WindowIds.all(WindowOrder(ids, PageRuns.join([pages]), streams, width, seed, epoch)))
    assert result.dtype == np.uint64
    return result


def test_the_window_order_stays_as_it_is():
    order = window(range(24), np.arange(24) // 3, 3, 2, 5, 7)
    expected = "11 8 17 10 23 16 4 21 2 5 22 0 9 19 14 3 18 1 6 20 13 7 15 12"
    assert order.tolist() == list(map(int, expected.split()))


@given(files(), st.integers(1, 9), st.integers(1, 6), st.integers(0, 2**31), st.integers(0, 50), st.data())
def test_any_part_of_a_window_order_is_that_of_the_whole(file, streams, width, seed, epoch, data):
    indices, pages, _ = file
    order = WindowOrder(indices, PageRuns.join([pages]), streams, width, seed, epoch)
    expected = reference(indices, pages, streams, width, seed, epoch)
    start = data.draw(st.integers(0, len(indices) - 1))
    places = np.arange(start, data.draw(st.integers(start + 1, len(indices))), data.draw(st.integers(1, 5)))
    assert order.at(places).tolist() == expected[places].tolist()


@given(
    st.integers(0, 90), st.integers(1, 7), st.integers(1, 5), st.none() | st.integers(0, 11), st.integers(1, 12),
    st.integers(0, 90), st.integers(1, 40), st.integers(1, 17),
)  # fmt: skip
def test_the_shares_of_ranks_are_those_of_the_whole_for_all_sizes_of_blocks(
    total, per_page, streams, number, world, first, least, batch
):
    rank, first, pages = None if number is None else Rank(number % world, world), min(first, total), np.arange(total)
    pages //= per_page
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_module, "_LEAST_BLOCK", least)
        whole = WindowIds.all(WindowOrder(IdRange(total), PageRuns.join([pages]), streams, 1, 3, 4))
        result, expected = (
            share(whole, rank, first),
            share(reference(range(total), pages, streams, 1, 3, 4), rank, first),
        )
        assert len(result) == len(expected)
        assert np.asarray(result).tolist() == expected.tolist()
        for start in range(0, len(expected), batch):
            assert result[start : start + batch].tolist() == expected[start : start + batch].tolist()
            back = max(start - batch, 0)  # bytes are asked for ahead of the batches that are made
            assert result[back:start].tolist() == expected[back:start].tolist()


@given(
    st.integers(1, 90), st.integers(1, 7), st.integers(1, 9), st.integers(0, 90), st.integers(1, 12),
    st.integers(1, 40), st.integers(1, 17),
)  # fmt: skip
def test_each_batch_of_all_ranks_is_a_stretch_of_the_order_also_where_they_take_streams(
    total, streams, world, first, batch_size, least, batch
):
    first, pages = min(first, total), np.arange(total) // 5
    order = reference(range(total), pages, streams, 1, 3, 4).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_module, "_LEAST_BLOCK", least)
        whole = WindowIds.all(WindowOrder(IdRange(total), PageRuns.join([pages]), streams, 1, 3, 4))
        shares = []
        for number in range(world):
            places = StreamPlaces(Rank(number, world), streams, batch_size, first, total)
            share_ids = WindowIds(whole.order, places)
            shares.append(np.asarray(share_ids).tolist())
            parts = [share_ids[start : start + batch].tolist() for start in range(0, len(share_ids), batch)]
            assert [sample for part in parts for sample in part] == shares[-1]
            assert shares[-1] == [order[place % total] for place in places[:]]
    assert {len(share) for share in shares} == {-(-(total - first) // world)}
    padded = order[first:] + order * world
    for start in range(0, len(shares[0]), batch_size):
        results = [sample for share in shares for sample in share[start : start + batch_size]]
        assert sorted(results) == sorted(padded[start * world : start * world + len(results)])


@pytest.mark.parametrize("world", [3, 5, 6, 7, 12, 24])
def test_ranks_that_take_streams_share_few_of_them(world):
    shares = [StreamPlaces(Rank(number, world), 64, 256, 0, 300_000)[:] % 64 for number in range(world)]
    # Each has its own, and a part of one on either side; those of which it gets few do not count.
    assert (
        sum(np.count_nonzero(np.bincount(share, minlength=64) > len(share) / 640) for share in shares) <= 64 + 2 * world
    )


def test_a_rank_has_only_the_newest_blocks_in_memory_and_makes_each_once(monkeypatch):
    results = []
    at = WindowOrder.at
    monkeypatch.setattr(WindowOrder, "at", lambda order, places: results.append(len(places)) or at(order, places))
    runs = PageRuns.join([np.arange(2_000_000) // 50])
    ids = share(WindowIds.all(WindowOrder(IdRange(2_000_000), runs, 8, 4, 0, 0)), Rank(1, 4))
    for start in range(0, 100_000, 1000):
        assert len(ids[start : start + 1000]) == 1000
        assert len(ids[max(start - 1500, 0) : start]) == min(start, 1500)
    assert sum(results) == -(-100_000 // results[0]) * results[0]
    assert sum(block.nbytes for block in ids._blocks.values()) == 2 * 4 * (1 << 16) // 4
    results.clear()
    assert len(ids[400_000:400_010]) == 10
    assert len(results) == 1


@given(files(), st.integers(1, 9), st.integers(1, 6), st.integers(0, 2**31), st.integers(0, 50))
def test_a_window_order_is_a_permutation_whose_streams_need_few_pages(file, streams, width, seed, epoch):
    indices, pages, _ = file
    order = window(indices, pages, streams, width, seed, epoch)
    assert sorted(order.tolist()) == sorted(indices.tolist())
    page_of = dict(zip(indices.tolist(), pages.tolist(), strict=True))
    # A page's samples lie at most `width` pages apart, before and after the page itself.
    parts = [order[number::streams] for number in range(streams)]
    assert max(max(open_pages(part, page_of, 1)) for part in parts if len(part)) <= 2 * width + 1
    assert np.array_equal(order, window(indices, pages, streams, width, seed, epoch))


def batch_of_a_rank(total, runs):
    ids = share(WindowIds.all(WindowOrder(IdRange(total), runs, 8, 4, 0, 0)), Rank(1, 4))[500_000:500_256]
    assert len(ids) == 256


def test_a_batch_of_a_rank_takes_no_array_of_all_samples(memory_of):
    total = 3_000_000
    assert memory_of(batch_of_a_rank, total, PageRuns.join([np.arange(total) // 50])).peak < 2 * total


def test_streams_of_a_window_order_share_few_pages_and_their_samples_are_mixed():
    pages = np.arange(4000) // 10
    order = window(range(4000), pages, 8, 4, 0, 0).astype(int)
    read = [set(pages[order[number::8]]) for number in range(8)]
    assert sum(map(len, read)) <= 400 + 7
    # Neighbors in a stream come from one page as seldom as 4 pages allow.
    alike = [np.mean(np.diff(pages[order[number::8]]) == 0) for number in range(8)]
    assert 0.1 < np.mean(alike) < 0.35
