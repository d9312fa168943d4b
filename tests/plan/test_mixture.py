"""Shares of the sources of a mixture, over epochs, batches, ranks and restarts, beside a plain reference."""

from __future__ import annotations

import random
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._plan.order import EpochBatches, IdRange
from gpubeton._plan.page_plan import PagePlan
from gpubeton._plan.places import Rank
from gpubeton.errors import OptionError
from gpubeton.format.index import PageRuns
from gpubeton.pipeline.draw_ids import repeats_of
from gpubeton.traversal_order import Random, Sequential, Window
from gpubeton.traversal_order.mixed import Mixed, MixtureRules

NUM_STORIES = 180


class Story:
    """A mixture with sizes, weights, batches and ranks by chance."""

    def __init__(self, number):
        self.chance = chance = random.Random(number)
        count = chance.randint(1, 5)
        self.sizes = [chance.randint(1, 60) for _ in range(count)]
        self.starts = [sum(self.sizes[:source]) for source in range(count + 1)]
        weights = [chance.choice([0.5, chance.random(), chance.random() ** 3]) + 0.02 for _ in range(count)]
        later = [0.0 if chance.random() < 0.2 else chance.random() + 0.02 for _ in range(count)]
        self.weights = [weights, later if any(later) else weights, weights]
        self.samples = chance.randint(60 * count, 400)
        self.world, self.batch_size = chance.choice([(1, 7), (2, 5), (3, 8), (4, 16)])
        self.seed, self.kind = chance.randint(0, 99), chance.choice([Sequential, Random])

    def order(self, world=1, rank=0, batch_size=None, **changes):
        """The order of a rank; by default that of the global batches."""
        loader = SimpleNamespace(
            _ids=IdRange(self.starts[-1]), seed=self.seed, distributed=False,
            batch_size=batch_size or self.world * self.batch_size, reader=None,
        )  # fmt: skip
        rules = MixtureRules(
            [f"s{source}" for source in range(len(self.sizes))], lambda epoch: self.weights[min(epoch, 2)],
            None, self.samples, None, True,
        )._replace(**changes)  # fmt: skip
        order = Mixed(loader, rules, self.starts, self.kind, {})
        order.rank = Rank(rank, world)
        return order

    def shares(self, epoch):
        exact = [Fraction(str(weight)) for weight in self.weights[epoch]]
        return [weight / sum(exact) for weight in exact]

    def pass_of(self, source, number):
        """The samples of one pass of a source, as a loader of the source alone has them."""
        ids = np.arange(self.sizes[source])
        if self.kind is Random:
            ids = np.random.default_rng(self.seed + number).permutation(ids)
        return (ids + self.starts[source]).tolist()


def sources_of(story, ids):
    return np.bincount(np.searchsorted(story.starts, ids, side="right") - 1, minlength=len(story.sizes))


@pytest.mark.parametrize("first", range(0, NUM_STORIES, 60))
def test_each_batch_and_epoch_has_its_shares_and_each_source_goes_through_its_samples(first):
    for number in range(first, first + 60):
        story = Story(number)
        order, size = story.order(), story.world * story.batch_size
        served = [0] * len(story.sizes)
        for epoch in range(3):
            ids = order.global_ids(epoch)
            draws, samples = ids.draw_ids(slice(None)), ids[:].tolist()
            assert len(samples) == order.num_ids(epoch) == story.samples
            for start in range(0, story.samples // size * size, size):
                counts = sources_of(story, samples[start : start + size])
                assert all(abs(n - share * size) < 1 for n, share in zip(counts, story.shares(epoch), strict=True))
            counts = sources_of(story, samples)
            assert all(abs(n - share * story.samples) < 1 for n, share in zip(counts, story.shares(epoch), strict=True))
            for source, count in enumerate(counts.tolist()):
                mine = [sample for sample in samples if story.starts[source] <= sample < story.starts[source + 1]]
                passes = [divmod(place, story.sizes[source]) for place in range(served[source], served[source] + count)]
                assert mine == [story.pass_of(source, turn)[place] for turn, place in passes]
                served[source] += count
            # The draws for a sample differ each time that it comes.
            assert len(set(draws.tolist())) == story.samples
            assert ids.repeats_samples == repeats_of(draws).any() or len(set(samples)) == story.samples


@pytest.mark.parametrize("first", range(0, NUM_STORIES, 60))
def test_ranks_share_the_same_batches_and_others_go_on_anywhere(first):
    for number in range(first, first + 60):
        story = Story(number)
        size, epoch = story.world * story.batch_size, story.chance.randrange(3)
        whole = story.order().global_ids(epoch).draw_ids(slice(None)).tolist()
        shares = [story.order(story.world, rank, story.batch_size).ids_of(epoch, 0) for rank in range(story.world)]
        parts = [share.draw_ids(slice(None)).reshape(-1) for share in shares]
        for batch in range(story.samples // size):
            rows = slice(batch * story.batch_size, (batch + 1) * story.batch_size)
            assert sorted(np.concatenate([part[rows] for part in parts]).tolist()) == sorted(
                whole[batch * size : (batch + 1) * size]
            )
        # Any part of a rank's samples, found without the ones before.
        start = story.chance.randrange(len(parts[0]))
        fresh = story.order(story.world, 0, story.batch_size).ids_of(epoch, 0)
        assert fresh.draw_ids(slice(start, start + 3)).tolist() == parts[0][start : start + 3].tolist()
        # Other ranks, with other batches, go on after some batches with the very samples that are left.
        begun = story.chance.randrange(story.samples // size + 1) * size
        world, batch_size = story.chance.choice([(1, 4), (2, 9), (5, 3)])
        rest = []
        for rank in range(world):
            order = story.order(world, rank, batch_size)
            order.begun = (epoch, size)
            rest += order.ids_of(epoch, begun).draw_ids(slice(None)).tolist()
        filled = -(-(story.samples - begun) // world) * world - (story.samples - begun)
        assert sorted(rest) == sorted([*whole[begun:], *whole[:filled]])


@pytest.mark.parametrize("number", range(20))
def test_an_epoch_that_stops_ends_before_a_source_is_used_up_and_begins_all_again(number):
    story = Story(number)
    order = story.order(repeats=False, samples=None)
    for epoch in range(2):
        samples = order.global_ids(epoch)[:].tolist()
        assert len(set(samples)) == len(samples) == order.num_ids(epoch)
        counts, shares = sources_of(story, samples), story.shares(epoch)
        assert any(n + 1 > size - share for n, size, share in zip(counts, story.sizes, shares, strict=True) if share)
        for source, count in enumerate(counts.tolist()):
            mine = [sample for sample in samples if story.starts[source] <= sample < story.starts[source + 1]]
            assert mine == story.pass_of(source, epoch)[:count]
    assert story.order(repeats=False, samples=2 * len(story.sizes)).num_ids(0) <= 2 * len(story.sizes)


def test_shares_of_an_epoch_are_the_same_for_any_batch_size_and_nearly_exact_in_its_parts():
    story = Story(3)
    story.samples = 20_000
    orders = [story.order(batch_size=size, block=4096).global_ids(0)[:].tolist() for size in (5, 64)]
    assert orders[0] == orders[1]
    for start in range(0, 19_000, 117):
        counts = sources_of(story, orders[0][start : start + 100])
        assert all(abs(n - 100 * share) < 3 for n, share in zip(counts, story.shares(0), strict=True))


def test_an_epoch_far_away_is_found_without_those_before():
    story = Story(5)
    order = story.order(constant_from=2)
    for epoch in range(6):
        assert order.epoch(epoch) == story.order().epoch(epoch)
    assert len(order.global_ids(10**9)[:]) == story.samples


@pytest.mark.parametrize(
    ("weights", "size", "message"),
    [([1, 1e-9], 30, "s1 has 30 samples .* its share is 5e-08"), ([1, 1], 0, "s1 has 0 samples .* its share is 25")],
)
def test_a_source_without_a_sample_is_refused(weights, size, message):
    story = Story(0)
    story.sizes, story.starts, story.samples, story.weights = [30, size], [0, 30, 30 + size], 50, [weights] * 3
    with pytest.raises(OptionError, match=message):
        story.order()


def order_of(weights, size, samples, block):
    """An order of sources of the same size, each in the order of its file."""
    story = Story(0)
    story.sizes, story.weights, story.samples = [size] * len(weights), [weights] * 3, samples
    story.starts, story.kind = [size * number for number in range(len(weights) + 1)], Sequential
    return story.order(block=block)


def test_a_part_in_the_middle_of_a_large_epoch_needs_no_list():
    ids = order_of([0.7, 0.3], 10**11, 10**11, 256).global_ids(0)[5 * 10**10 : 5 * 10**10 + 10_000]
    first = ids[ids < 10**11]
    assert abs(len(first) - 7000) <= 40
    assert abs(int(first[0]) - 35 * 10**9) < 256


def test_pages_are_asked_for_once_in_each_pass_and_only_those_of_the_window_are_in_memory():
    # Three files of pages of 8 MiB with 50 images each; the second one comes four times in the epoch.
    page, images, pages, times = 8 << 20, 50, (40, 15, 20), (1, 4, 1)
    starts = [images * sum(pages[:number]) for number in range(4)]
    files = [SimpleNamespace(page_size=page, size=(1 + count) * page, first_sample=start, identity=None)
             for count, start in zip(pages, starts, strict=False)]  # fmt: skip
    number = np.arange(starts[-1])
    file = np.searchsorted(starts, number, side="right") - 1
    offset = (np.array(starts)[file] * -1 + number) * (page // images) + page + (file << 48)
    regions = SimpleNamespace(offset=offset.astype(np.uint64), size=np.full(len(number), page // images, np.uint64))
    runs = PageRuns.join([number // images])
    index = SimpleNamespace(page_runs=lambda: runs)
    loader = SimpleNamespace(
        _ids=IdRange(starts[-1]), seed=1, distributed=False, batch_size=32, reader=SimpleNamespace(index=index)
    )
    weights = [float(count * often) for count, often in zip(pages, times, strict=True)]
    samples = images * sum(int(weight) for weight in weights)
    rules = MixtureRules(["a", "b", "c"], lambda _: weights, 0, samples, None, True)
    order = Mixed(loader, rules, starts, Window, {"streams": 6, "width": 2})
    plan = PagePlan(EpochBatches(order.ids_of(0, 0), 32, False), [regions], files)
    assert plan.cost.requests == sum(weights)
    # No more than of the sources alone, and of the second one in two passes at a time.
    alone = [
        PagePlan(EpochBatches(source.order(0)[:] + np.uint64(source.first_sample), 32, False), [regions], files)
        for source in order.global_ids(0).sources
    ]
    assert plan.in_use[0] <= sum(pages.in_use[0] for pages in alone) + alone[1].in_use[0]
    # Each sample is in the part that is found for it, at its time.
    for group in plan.groups():
        parts = {part.number: part for part in group.pages}
        for batch in group.batches:
            ids = order.ids_of(0, 0)[32 * batch : 32 * (batch + 1)]
            found = plan.find(group, batch, regions.offset[ids], np.ones(len(ids), bool)).tolist()
            for sample, part in zip(ids.tolist(), found, strict=True):
                if part in parts:
                    assert parts[part].first <= batch <= parts[part].last
                    assert parts[part].start <= offset[sample] < parts[part].stop


@settings(max_examples=100)
@given(
    weights=st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(any),
    samples=st.integers(150, 400),
    block=st.integers(1, 60),
    data=st.data(),
)
def test_any_part_of_an_epoch_is_found_without_the_places_before(weights, samples, block, data):
    order = order_of(list(map(float, weights)), 400, samples, block)
    whole, start = order.global_ids(0)[:].tolist(), data.draw(st.integers(0, samples - 1))
    stop = data.draw(st.integers(start + 1, samples))
    assert order.global_ids(0)[start:stop].tolist() == whole[start:stop]
