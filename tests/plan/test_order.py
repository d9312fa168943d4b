from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpubeton._plan.order import IdRange, id_dtype, random, rows_of, share
from gpubeton._plan.order import quasi_random as quasi_random_of_runs
from gpubeton._plan.places import Rank
from gpubeton.errors import OptionError
from gpubeton.format.index import PageRuns
from tests.reference import quasi_random_order

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "orders.json").read_text())["cases"]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("order", ["SEQUENTIAL", "RANDOM"])
def test_orders_are_ffcvs(order, world):
    cases = [case for case in GOLDEN if case["order"] == order and case["world"] == world]
    assert len(cases) >= 9
    for case in cases:
        indices = range(case["num_samples"]) if case["indices"] is None else case["indices"]
        rank = Rank(case["rank"], world) if world > 1 else None
        shuffled = random(indices, case["seed"], case["epoch"], for_ranks=world > 1)
        result = share(np.asarray(indices, np.uint64) if order == "SEQUENTIAL" else shuffled, rank)
        assert result.tolist() == case["result"], case
        assert result.dtype == np.uint64


def quasi_random(ids, pages, batch_size, seed, epoch, rank=None):
    ids = np.asarray(ids, np.uint64)
    return quasi_random_of_runs(ids, PageRuns.join([np.asarray(pages)]), batch_size, seed, epoch, rank)


@st.composite
def files(draw):
    """Pages of the samples of a file, the samples asked for, and a batch size."""
    pages = np.array(draw(st.lists(st.integers(1, 30), min_size=1, max_size=120)), np.int64)
    indices = np.array(draw(st.permutations(range(len(pages)))), np.uint64)[: draw(st.integers(1, len(pages)))]
    return indices, pages[indices.astype(int)], draw(st.integers(1, 8))


def open_pages(order, page_of, batch_size):
    """Pages open during each batch: touched by it, or before it and after it."""
    batch = np.arange(len(order)) // batch_size
    touched = {}
    for number, sample in zip(batch, order, strict=True):
        touched.setdefault(page_of[int(sample)], []).append(number)
    return [sum(seen[0] <= number <= seen[-1] for seen in touched.values()) for number in range(batch[-1] + 1)]


@given(files(), st.integers(0, 2**31), st.integers(0, 50))
def test_quasi_random_is_a_permutation_from_few_pages(file, seed, epoch):
    indices, pages, batch_size = file
    order = quasi_random(indices, pages, batch_size, seed, epoch)
    assert sorted(order.tolist()) == sorted(indices.tolist())
    page_of = dict(zip(indices.tolist(), pages.tolist(), strict=True))
    assert max(open_pages(order, page_of, batch_size)) <= 2 * batch_size
    assert np.array_equal(order, quasi_random(indices, pages, batch_size, seed, epoch))


@given(files(), st.integers(1, 7), st.integers(0, 99))
def test_ranks_share_a_quasi_random_epoch(file, world, epoch):
    indices, pages, batch_size = file
    shares = [quasi_random(indices, pages, batch_size, 1, epoch, Rank(number, world)) for number in range(world)]
    length = -(-len(indices) // world)
    assert [len(share) for share in shares] == [length] * world
    together, times = np.unique(np.concatenate(shares), return_counts=True)
    assert together.tolist() == sorted(indices.tolist())
    assert times.sum() - len(indices) == length * world - len(indices)
    if len(indices) >= world:
        assert times.max() <= 2
    page_of = dict(zip(indices.tolist(), pages.tolist(), strict=True))
    assert max(max(open_pages(share, page_of, batch_size)) for share in shares) <= 2 * batch_size


@given(files(), st.integers(0, 7), st.integers(0, 99))
def test_quasi_random_is_the_order_that_is_made_from_the_page_of_each_sample(file, world, epoch):
    ids, pages, batch_size = file
    for number in range(world) or [None]:
        place, rank = (None, None) if number is None else ((number, world), Rank(number, world))
        expected = quasi_random_order.quasi_random(ids, pages, batch_size, 5, epoch, place)
        assert quasi_random(ids, pages, batch_size, 5, epoch, rank).tolist() == expected.tolist()
    everything = IdRange(len(ids))
    assert (
        quasi_random_of_runs(everything, PageRuns.join([pages]), batch_size, 5, epoch).tolist()
        == quasi_random_order.quasi_random(np.arange(len(ids)), pages, batch_size, 5, epoch).tolist()
    )


def test_quasi_random_takes_the_memory_of_the_samples_of_a_rank(memory_of):
    total = 1 << 20
    runs = PageRuns.join([np.arange(total) // 400])
    assert memory_of(quasi_random_of_runs, IdRange(total), runs, 256, 0, 0, Rank(3, 8)).peak < 80 * total // 8


def test_ids_are_kept_in_as_few_bytes_as_their_number_needs_and_those_of_a_range_are_not_changed():
    for for_ranks in (False, True):
        assert random(IdRange(10), 0, 0, for_ranks=for_ranks).dtype == np.uint32
    assert [id_dtype(total) for total in (0, 1 << 32, (1 << 32) + 1)] == ["u4", "u4", "u8"]
    assert np.asarray(IdRange(10)).dtype == np.uint64
    assert not IdRange(10).array.flags.writeable


def test_quasi_random_epochs_begin_with_other_pages_mix_samples_and_ranks_read_different_pages():
    pages = np.arange(4000) // 10
    first, second = (quasi_random(range(4000), pages, 16, 0, epoch).astype(int) for epoch in (0, 1))
    assert len({*pages[first[:300]]} & {*pages[second[:300]]}) < 20
    assert abs(np.corrcoef(first, np.arange(4000))[0, 1]) < 0.1
    assert (np.diff(pages[first]) == 0).mean() < 0.1  # about 1 in 32 neighbors share a page
    read = [set(pages[quasi_random(range(4000), pages, 16, 0, 0, Rank(number, 4)).astype(int)]) for number in range(4)]
    assert sum(map(len, read)) <= 400 + 3 + 1


@given(st.integers(0, 60), st.integers(1, 7), st.integers(0, 70))
def test_the_ranks_share_the_samples_that_remain(count, world, first):
    ids = np.arange(100, 100 + count, dtype=np.uint64)
    shares = [share(ids, Rank(number, world), first) for number in range(world)]
    assert len({len(share) for share in shares}) == 1
    dealt = np.stack(shares, axis=1).ravel().tolist()
    assert dealt[: max(count - first, 0)] == ids[first:].tolist()
    assert len(dealt) < max(count - first, 0) + world
    assert set(dealt) <= set(ids.tolist())
    assert share(ids, None, first).tolist() == ids[first:].tolist()


def test_an_empty_epoch_is_empty():
    nothing = np.zeros(0, np.int64)
    assert len(quasi_random(nothing, nothing, 4, 0, 0)) == len(random([], 0, 0)) == 0
    empty = np.zeros(0, np.uint64)
    assert len(share(empty, None)) == len(share(empty, Rank(1, 2))) == len(share(empty, Rank(1, 2), 3)) == 0
    assert len(quasi_random(nothing, nothing, 4, 0, 0, Rank(1, 2))) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rank(2, 2), "rank 2 of 2; expected a rank from 0 to 1"),
        (lambda: Rank(-1, 2), "rank -1"),
        (lambda: quasi_random([1, 2], np.array([1]), 1, 0, 0), "1 pages for 2 samples"),
        (lambda: quasi_random([1], np.array([1]), 0, 0, 0), "batch_size is 0"),
    ],
)
def test_impossible_arguments_are_refused(make, message):
    with pytest.raises(OptionError, match=message):
        make()


places = st.integers(0, 40)


@given(places, st.integers(1, 9), places, st.none() | st.integers(0, 8), st.integers(1, 11))
def test_a_range_of_ids_is_the_array_of_them(total, world, first, number, size):
    rank = None if number is None else Rank(number % world, world)
    first = min(first, total)
    result, expected = share(IdRange(total), rank, first), share(np.arange(total, dtype=np.uint64), rank, first)
    assert len(result) == len(expected)
    assert np.asarray(result).tolist() == np.array(result).tolist() == result.array.tolist() == expected.tolist()
    for start in range(0, len(expected), size):
        part = result[start : start + size]
        assert (part.dtype, part.tolist()) == (np.uint64, expected[start : start + size].tolist())
    chosen = np.arange(len(expected))[::-2]
    assert result[chosen].tolist() == expected[chosen].tolist()
    assert np.arange(total)[rows_of(IdRange(total))].tolist() == list(range(total))
    ids = result if isinstance(result, IdRange) else IdRange(total)
    assert np.arange(total)[rows_of(ids)].tolist() == np.asarray(ids).tolist()


@given(places, st.integers(0, 1 << 31), st.integers(0, 5), st.booleans())
def test_all_ids_are_shuffled_as_the_array_of_them(total, seed, epoch, for_ranks):
    result = random(IdRange(total), seed, epoch, for_ranks=for_ranks)
    assert result.tolist() == random(np.arange(total), seed, epoch, for_ranks=for_ranks).tolist()


@pytest.mark.parametrize("count", [1, 2, 1000, 100_003])
def test_torch_shuffles_numbers_of_32_bits_as_those_of_64(count):
    generator = torch.Generator()
    expected = torch.randperm(count, generator=generator.manual_seed(7 + 2))
    result = random(IdRange(count), 7, 2, for_ranks=True)
    assert (result.dtype, result.tolist()) == (np.uint32, expected.tolist())
