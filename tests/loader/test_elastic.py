"""An epoch that some ranks began and others continue. Torch's fake process groups replace the ranks."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from gpubeton.errors import OptionError, StateError
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.integrations.data_loader import DataLoaderAdapter
from gpubeton.loader import Loader
from gpubeton.transforms import Cutout, RandomHorizontalFlip, ToTensor
from gpubeton.traversal_order import Random
from tests.small_files import write_photos

PIPELINES = {"image": [RandomResizedCropRGBImageDecoder((16, 16)), RandomHorizontalFlip(), Cutout(3), ToTensor()]}
NUM_SAMPLES = 96
# Entries of a state at the beginning of the second epoch.
NEXT = {"epoch": 1, "samples": 0, "first": 0, "batch": 0}
# A loader of labels only.
LABELS = {"num_workers": 1, "order": "window", "seed": 4, "drop_last": False, "pipelines": {"image": None}}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("elastic") / "photos.beton", NUM_SAMPLES)


@contextmanager
def rank_of(rank, world):
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def run(path, world, batch_size, state=None, num_batches=None, **changes):
    """Let each rank load a state and receive batches; return the batches of all ranks, side by side, and the state."""
    arguments = {"num_workers": 1, "order": "window", "seed": 4, "pipelines": PIPELINES, "drop_last": False, **changes}
    shares, states = [], []
    for rank in range(world):
        with rank_of(rank, world), Loader(path, batch_size, distributed=True, **arguments) as loader:
            if state is not None:
                loader.load_state_dict(state)
            batches, share = iter(loader), []
            for _ in range(len(batches) if num_batches is None else num_batches):
                outputs = next(batches)
                share.append((batches.samples.tolist(), outputs[0]))
            shares.append(share)
            states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    return list(zip(*shares, strict=True)), states[0]


def global_batches(batches):
    """Join the shares of each batch: the samples in the epoch's order, and their images."""
    for shares in batches:
        samples = [sample for row in zip(*(share for share, _ in shares), strict=True) for sample in row]
        yield samples, torch.stack([images for _, images in shares], 1).flatten(0, 1)


def samples_of(batches):
    return [sample for samples, _ in global_batches(batches) for sample in samples]


def samples_in(loader):
    batches = iter(loader)
    return [sample for _ in batches for sample in batches.samples.tolist()]


@pytest.mark.parametrize("order", ["window", "random", "sequential"])
def test_ranks_that_stop_are_followed_by_other_numbers_of_ranks_and_no_sample_is_lost_or_comes_twice(photos, order):
    seen, state, whole = [], None, samples_of(run(photos, 4, 8, order=order)[0])
    for world, batch_size, num_batches in ((8, 2, 2), (3, 4, 2), (5, 2, 1), (2, 3, None)):
        batches, state = run(photos, world, batch_size, state, num_batches, order=order)
        seen += samples_of(batches)
        # The same epoch in one go, in the same order; where the ranks take streams, each batch of all has another.
        if world in (8, 2):
            assert seen[-len(samples_of(batches)) :] == whole[len(seen) - len(samples_of(batches)) : len(seen)]
        assert sorted(seen) == sorted(whole[: len(seen)])
    assert sorted(seen) == list(range(NUM_SAMPLES))
    # After its last batch the next epoch begins, for any number of ranks.
    assert len(run(photos, 1, 32, {**state, "epoch": 1, "samples": 0, "first": 0}, order=order)[0]) == 3


@pytest.mark.parametrize("order", ["window", "random"])
def test_the_global_batches_stay_the_same_to_the_bit_if_their_size_does(photos, order):
    whole = list(global_batches(run(photos, 8, 3, order=order)[0]))
    first, state = run(photos, 8, 3, None, 2, order=order)
    for world, batch_size in ((4, 6), (3, 8), (2, 12), (1, 24)):
        rest, _ = run(photos, world, batch_size, state, order=order)
        results = [*global_batches(first), *global_batches(rest)]
        for (samples, images), (expected, theirs) in zip(results, whole, strict=True):
            assert world == 3 or samples == expected
            places = [samples.index(sample) for sample in expected]
            assert torch.equal(images[places], theirs)


@pytest.mark.parametrize("order", ["window", "random", "sequential"])
def test_a_loader_without_ranks_goes_on_with_an_epoch_of_ranks_and_they_with_its_epochs(photos, order):
    whole = samples_of(run(photos, 4, 8, order=order)[0])
    _, state = run(photos, 3, 4, None, 2, order=order)
    following = samples_of(run(photos, 4, 8, {**state, **NEXT}, order=order)[0])
    with Loader(photos, 8, **{**LABELS, "order": order}) as loader:
        loader.load_state_dict(state)
        other = Loader(photos, 8, **{**LABELS, "order": order})
        other.load_state_dict(loader.state_dict())
        # It shuffles as they do from then on.
        for expected in (whole[24:], following):
            assert samples_in(loader) == samples_in(other) == expected
        loader.batch_size, loader.indices = 16, range(1, NUM_SAMPLES)
        loader.indices = range(NUM_SAMPLES)
        batches = iter(loader)
        next(batches)
        first, state = batches.samples.tolist(), loader.state_dict()
    assert (state["epoch"], state["samples"], state["world_size"]) == (2, 16, 1)
    third = samples_of(run(photos, 2, 8, {**state, **NEXT, "epoch": 2}, order=order)[0])
    assert first + samples_of(run(photos, 4, 5, state, order=order)[0]) == third


@pytest.mark.parametrize("order", ["window", "random", "sequential"])
def test_ranks_go_on_with_an_epoch_of_a_loader_without_ranks(photos, order):
    with Loader(photos, 8, **{**LABELS, "order": order}) as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        state = loader.state_dict()
        left = [batches.samples.tolist() for _ in batches]
        following = samples_in(loader)
    rest, _ = run(photos, 2, 4, state, order=order)
    assert [samples for samples, _ in global_batches(rest)] == left
    assert samples_of(run(photos, 2, 4, {**state, **NEXT}, order=order)[0]) == following


def test_samples_that_cannot_be_shared_evenly_are_filled_up_with_few(photos):
    first, state = run(photos, 8, 2, None, 3)
    rest, _ = run(photos, 5, 4, state)
    seen = samples_of(first) + samples_of(rest)
    assert set(seen) == set(range(NUM_SAMPLES))
    assert len(seen) == 48 + 5 * 10


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("drop_last", [False, True])
def test_nothing_is_left_of_an_epoch_that_is_over(photos, drop_last):
    indices = range(10)
    _, state = run(photos, 1, 4, None, 2 if drop_last else 3, drop_last=drop_last, indices=indices)
    for batch_size in (4, 2, 5):
        rest, _ = run(photos, 1, batch_size, state, drop_last=drop_last, indices=indices)
        assert rest == []
    too_far = {**state, "samples": 16}
    with pytest.raises(StateError, match="batch 4, but epoch 0 has"):
        run(photos, 1, 2, too_far, drop_last=drop_last, indices=indices)


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"batch_size": 3}, "batch_size is 3 here and 2"), ({"world": 4}, "number of ranks is 4 here and 2")],
)
def test_a_quasi_random_epoch_needs_as_many_ranks_and_as_large_batches_and_gives_the_reason(photos, changes, named):
    _, state = run(photos, 2, 2, None, 1, order="quasi_random")
    with pytest.raises(StateError, match=f"{named}.*QuasiRandom.*order='window'"):
        run(photos, **{"world": 2, "batch_size": 2, "state": state, "order": "quasi_random", **changes})


class OfMine(Random):
    def sample_order(self, epoch):
        return super().sample_order(epoch)[::-1]


def test_an_order_that_changes_the_samples_of_a_rank_only_is_not_global(photos):
    _, state = run(photos, 2, 2, None, 1, order=OfMine)
    run(photos, 2, 2, state, 1, order=OfMine)
    with pytest.raises(StateError, match="number of ranks is 3 here and 2"):
        run(photos, 3, 2, state, order=OfMine)


class BackwardsForAll(Random):
    def global_order(self, epoch):
        return super().global_order(epoch)[::-1]


def test_an_order_of_a_user_may_be_global(photos):
    first, state = run(photos, 4, 4, None, 2, order=BackwardsForAll)
    rest, _ = run(photos, 2, 8, state, order=BackwardsForAll)
    whole, _ = run(photos, 1, 16, order=BackwardsForAll)
    assert samples_of(first) + samples_of(rest) == samples_of(whole)


@pytest.mark.parametrize("order", ["window", "random"])
@pytest.mark.parametrize("world", [1, 2])
def test_a_state_of_version_1_loads_as_before(photos, world, order):
    first, state = run(photos, world, 8, None, 2, order=order)
    old = {name: value for name, value in state.items() if name not in ("samples", "first", "distributed")}
    old |= {"version": 1, "batch": 2}
    for state_of_it in (old, state):
        rest, _ = run(photos, world, 8, state_of_it, order=order)
        assert sorted(samples_of(first) + samples_of(rest)) == list(range(NUM_SAMPLES))
    # It may be loaded by other ranks, too.
    rest, _ = run(photos, 3, 4, old, order=order)
    assert set(samples_of(first) + samples_of(rest)) == set(range(NUM_SAMPLES))


def test_the_length_of_a_continued_epoch_does_not_change_the_remaining_samples(photos):
    _, state = run(photos, 2, 4, None, 2)
    rest, _ = run(photos, 3, 4, state)
    with rank_of(0, 3):
        loader = Loader(photos, 4, distributed=True, **LABELS)
        adapter = DataLoaderAdapter(loader)
        adapter.load_state_dict(state)
        assert len(adapter) == len(loader) == 8
        assert len(iter(adapter)) == 7
        batches = iter(loader)
        assert len(batches) == 7
        results = [batches.samples.tolist() for _ in batches]
    assert results == [shares[0][0] for shares in rest]


def test_an_epoch_that_is_gone_on_with_fixes_samples_and_batches_until_it_has_begun(photos):
    _, state = run(photos, 2, 4, None, 2)
    with rank_of(0, 3):
        loader = Loader(photos, 4, distributed=True, **LABELS)
        loader.load_state_dict(state)
        with pytest.raises(OptionError, match="sample 16 of epoch 0"):
            loader.batch_size = 5
        iter(loader).close()
        loader.batch_size = 5


def test_where_a_sampler_shares_the_samples_as_many_ranks_have_to_go_on(photos):
    with rank_of(0, 2):
        loader = Loader(photos, 4, distributed=True, **LABELS)
        loader.traversal_order.sampler = range(40)
        next(iter(loader))
        state = loader.state_dict()
    with rank_of(0, 3):
        other = Loader(photos, 4, distributed=True, **LABELS)
        other.traversal_order.sampler = range(40)
        with pytest.raises(StateError, match="number of ranks is 3 here and 2"):
            other.load_state_dict(state)
