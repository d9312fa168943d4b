"""The parts of an epoch: every region is in one, in the order of need, and no longer than its last batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton._bytes.file_list import FileList, FileListIdentity
from gpubeton._plan.order import EpochBatches, Rank, StreamPlaces
from gpubeton._plan.page_plan import MAX_REQUEST, PagePlan
from gpubeton.format.data_files import first_offset
from gpubeton.format.regions import Regions
from tests.reference.window_order import window

MIB = 1 << 20


@dataclass
class File:
    size: int
    page_size: int
    identity: object = None


def dataset(num_pages, page_size=8 * MIB, per_page=4, size=None, files=1):
    """Files of full pages with samples of one size in the order of the file: regions, files, and pages of samples."""
    size = page_size // per_page - 100 if size is None else size
    place = (1 + np.arange(num_pages))[:, None] * page_size + np.arange(per_page) * size
    offset = np.concatenate([place.reshape(-1).astype(np.uint64) + first_offset(number) for number in range(files)])
    sizes = np.full(len(offset), size, np.uint64)
    pages = np.arange(len(offset)) // per_page
    return Regions(offset, sizes), [File((num_pages + 2) * page_size, page_size)] * files, pages


def plan_of(regions, files, order, batch_size=4, **options):
    return PagePlan(
        EpochBatches(np.asarray(order, np.uint64), batch_size, drop_last=False), [regions], files, **options
    )


def all_parts(plan):
    return [part for group in plan.groups() for part in group.pages]


def check(plan, regions, order, batch_size=4, first_batch=0):
    """Every region of every batch is in the part that is found for it, at the time when it is there."""
    parts = {part.number: part for part in all_parts(plan)}
    assert sorted(parts) == list(range(len(parts)))
    seen = []
    for group in plan.groups():
        assert [part.first for part in group.pages] == sorted(part.first for part in group.pages)
        for batch in group.batches:
            seen.append(batch)
            samples = np.asarray(order, np.uint64)[batch * batch_size : (batch + 1) * batch_size]
            is_filled = regions.size[samples] > 0
            result = plan.find(group, batch, regions.offset[samples], is_filled).tolist()
            for sample, number in zip(samples[is_filled].tolist(), result, strict=True):
                part, start = parts[number], int(regions.offset[sample])
                assert part.start <= start < start + int(regions.size[sample]) <= part.stop
                assert part.first <= batch <= part.last
    assert seen == list(range(first_batch, -(-len(order) // batch_size)))
    return list(parts.values())


@given(
    sizes=st.lists(st.integers(0, 3 * MIB), min_size=1, max_size=40),
    page_size=st.sampled_from([4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB]),
    files=st.integers(1, 3),
    batch_size=st.integers(1, 7),
    data=st.data(),
)
def test_every_region_is_in_a_part_that_is_there_while_its_batch_is_made(sizes, page_size, files, batch_size, data):
    offset, at = [], page_size
    for size in sizes:
        at = at if at // page_size == (at + max(size, 1) - 1) // page_size else -(-at // page_size) * page_size
        offset.append(at)
        at += size
    offset = np.concatenate([np.array(offset, np.uint64) + first_offset(number) for number in range(files)])
    regions = Regions(
        np.where(np.tile(sizes, files) > 0, offset, 0).astype(np.uint64), np.tile(np.uint64(sizes), files)
    )
    order = data.draw(st.lists(st.integers(0, len(offset) - 1), min_size=1, max_size=60))
    first = data.draw(st.integers(0, -(-len(order) // batch_size) - 1))
    most = data.draw(st.sampled_from([None, 0, 20 * MIB]))
    plan = plan_of(
        regions, [File(at + page_size, page_size)] * files, order, batch_size, first_batch=first, most_bytes=most
    )
    parts = check(plan, regions, order, batch_size, first)
    assert max((part.stop - part.start for part in parts), default=0) <= MAX_REQUEST
    used = regions.size[np.array(order[first * batch_size :])]
    assert plan.cost.used_bytes == used.sum()
    assert plan.cost.samples == len(used)


def test_all_samples_in_order_are_whole_pages_each_loaded_once():
    regions, files, _ = dataset(10)
    parts = check(plan := plan_of(regions, files, range(40)), regions, range(40))
    assert [part.start // (8 * MIB) for part in parts] == list(range(1, 11))
    assert [(part.first, part.last) for part in parts] == [(page, page) for page in range(10)]
    assert plan.cost.requests == 10
    assert plan.cost.requests_per_1000 == pytest.approx(10_000 / plan.cost.samples)
    assert plan.cost.fetched_bytes == plan.cost.used_bytes == regions.size.sum()


def test_small_pages_that_are_needed_one_after_the_other_are_one_request():
    regions, files, _ = dataset(10, page_size=2 * MIB)
    parts = check(plan_of(regions, files, range(40)), regions, range(40))
    assert [round((part.stop - part.start) / MIB) for part in parts] == [8, 8, 4]
    backwards = check(plan_of(regions, files, range(39, -1, -1)), regions, range(39, -1, -1))
    assert len(backwards) == 10


def test_pages_of_two_files_are_never_one_request():
    regions, files, _ = dataset(3, page_size=2 * MIB, files=2)
    assert len(check(plan_of(regions, files, range(24)), regions, range(24))) == 2


def test_large_pages_are_cut_between_samples():
    regions, files, _ = dataset(2, page_size=32 * MIB, per_page=11)
    parts = check(plan_of(regions, files, range(22)), regions, range(22))
    assert len(parts) == 16
    assert max(part.stop - part.start for part in parts) <= MAX_REQUEST
    assert sum(part.stop - part.start for part in parts) == regions.size.sum()


def test_a_sample_larger_than_a_part_is_one_request():
    regions, files, _ = dataset(2, page_size=32 * MIB, per_page=1)
    assert [part.stop - part.start for part in check(plan_of(regions, files, [1, 0]), regions, [1, 0])] == [
        32 * MIB - 100
    ] * 2


def test_of_a_page_that_is_used_by_less_than_half_only_ranges_are_loaded():
    regions, files, _ = dataset(4, per_page=80)
    few = [*range(38), 79, *range(80, 120)]  # 39 samples of page 1, half of page 2
    plan = plan_of(regions, files, few)
    parts = check(plan, regions, few)
    sizes = sorted(round((part.stop - part.start) / int(regions.size[0])) for part in parts)
    assert sizes == [1, 38, 40]


def test_neighbors_within_a_gap_are_one_range():
    regions, files, _ = dataset(4, per_page=80)  # samples of 102 KiB
    order = [0, 3, 10]  # 205 KiB and 614 KiB between them
    parts = check(plan_of(regions, files, order, 3), regions, order, 3)
    assert [round((part.stop - part.start) / int(regions.size[0])) for part in parts] == [4, 1]


def test_an_order_that_needs_too_many_pages_at_a_time_loads_ranges():
    regions, files, _ = dataset(50, per_page=40)
    order = np.random.default_rng(0).permutation(2000)
    whole, ranges = (plan_of(regions, files, order, 20, most_bytes=most) for most in (None, 200 * MIB))
    assert len(check(whole, regions, order, 20)) == 50
    assert len(check(ranges, regions, order, 20)) > 500
    assert ranges.whole_page_bytes == whole.whole_page_bytes > 390 * MIB
    assert ranges.in_use == (0, 0)


@pytest.mark.parametrize("world", [3, 5, 7])
def test_ranks_that_do_not_divide_the_streams_load_mostly_whole_pages(world):
    regions, files, pages = dataset(400, per_page=40)
    order, requests = window(np.arange(16_000), pages, 16, 4, 0, 0), 0
    for number in range(world):
        places = StreamPlaces(Rank(number, world), 16, 64, 0, len(order))[:]
        requests += plan_of(regions, files, order[places % len(order)], 64).cost.requests
    assert requests < 16_000 / 8  # every world-th place would be nearly as many requests as samples


def test_a_page_plan_is_a_function_of_the_order_and_the_first_batch():
    regions, files, pages = dataset(60, per_page=20)
    order = window(np.arange(1200), pages, 4, 4, 0, 0)
    again = [all_parts(plan_of(regions, files, order, 16, first_batch=20)) for _ in range(2)]
    assert again[0] == again[1]
    assert check(plan_of(regions, files, order, 16, first_batch=20), regions, order, 16, 20) == again[0]
    later = [part for part in all_parts(plan_of(regions, files, order, 16)) if part.last >= 20]
    assert {part.start // (8 * MIB) for part in again[0]} == {part.start // (8 * MIB) for part in later}
    assert sum(part.stop - part.start for part in again[0]) < sum(part.stop - part.start for part in later)


@pytest.mark.parametrize(("world", "streams"), [(1, 8), (2, 8), (8, 8), (4, 16)])
def test_the_pages_of_a_window_in_use_are_those_of_its_streams(world, streams):
    regions, files, pages = dataset(400, per_page=40)
    order = window(np.arange(16_000), pages, streams, 4, 0, 0)[::world]
    plan = plan_of(regions, files, order, 64)
    check(plan, regions, order, 64)
    # The streams of the rank, each `width` pages, and a page more that begins while another ends.
    assert 0.9 * 4 * streams / world <= plan.in_use[0] <= (4 + 2) * streams / world + 2
    # At the ends of streams two ranks share a page.
    assert plan.cost.requests <= 400 / world + 2 * streams


@given(
    sizes=st.lists(st.integers(0, 3 * MIB) | st.just(0), min_size=1, max_size=40),
    batch_size=st.integers(1, 7),
    most=st.sampled_from([None, 0]),
    data=st.data(),
)
def test_every_object_of_a_store_is_one_part(sizes, batch_size, most, data):
    count = len(sizes)
    states = np.array([(size, 1) for size in sizes], np.int64)
    identity = FileListIdentity.of(FileList.of("s3://bucket/a/", [*map(str, range(count))], states=states))
    tar, _, _ = dataset(1)
    offset = np.concatenate([tar.offset, identity.files.starts.astype(np.uint64) + first_offset(1)])
    regions = Regions(offset, np.concatenate([tar.size, np.array(sizes, np.uint64)]))
    files = [File(24 * MIB, 8 * MIB), File(identity.size, 8 * MIB, identity)]
    order = data.draw(st.lists(st.integers(0, 3 + count), min_size=1, max_size=60))
    plan = plan_of(regions, files, order, batch_size, most_bytes=most)
    parts = check(plan, regions, order, batch_size)
    if most is None:
        objects = [(part.start, part.stop) for part in parts if part.start >= 1 << 48]
        used = {sample for sample in order if sample > 3 and regions.size[sample]}
        ends = (regions.offset + regions.size).tolist()
        assert sorted(objects) == sorted((int(offset[sample]), ends[sample]) for sample in used)
