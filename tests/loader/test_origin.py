"""A state describes the source of its epoch's samples, in spite of later assignments to the loader."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from gpubeton._plan.places import Rank
from gpubeton.errors import OptionError, StateError
from gpubeton.traversal_order import Random, TraversalOrder, Weighted
from tests.loader.pipelines import labels, make, samples


def saved(loader):
    return json.loads(json.dumps(loader.state_dict()))


def give_indices(loader):
    loader.indices = range(40)


def give_order(loader):
    loader.order = "random"


def give_object(loader):
    loader.traversal_order = Random(loader)


def give_the_order_indices(loader):
    loader.traversal_order.indices = np.arange(30)


CHANGES = [give_indices, give_order, give_object, give_the_order_indices]


@pytest.mark.parametrize("change", CHANGES)
def test_a_state_in_an_epoch_is_of_the_samples_with_which_it_began(photos, change):
    loader = make(photos)
    batches = iter(loader)
    next(batches)
    change(loader)
    state = saved(loader)
    resumed, changed = make(photos), make(photos)
    change(changed)
    with pytest.raises(StateError, match=r"here and"):
        changed.load_state_dict(state)
    resumed.load_state_dict(state)
    assert labels(resumed) == [batch.tolist() for (batch,) in batches]
    changed.set_epoch(1)
    changed_state = saved(loader)
    assert changed_state == saved(changed)
    assert labels(loader) == labels(changed)


@pytest.mark.parametrize("change", CHANGES)
def test_an_epoch_of_which_a_state_was_loaded_does_not_go_on_with_other_samples(photos, change):
    loader = make(photos)
    batches = iter(loader)
    next(batches)
    resumed = make(photos)
    resumed.load_state_dict(saved(loader))
    with pytest.raises(OptionError, match="batch 1 of epoch 0"):
        change(resumed) or iter(resumed)
    resumed.set_epoch(0)
    change(resumed)
    changed = make(photos)
    change(changed)
    assert samples(resumed) == samples(changed)


def test_indices_of_the_order_stay_when_a_state_brings_its_seed(photos):
    loader, resumed = (make(photos, order="random", seed=seed) for seed in (3, None))
    for current in (loader, resumed):
        current.traversal_order.indices = np.arange(20)
    batches = iter(loader)
    next(batches)
    resumed.load_state_dict(saved(loader))
    assert labels(resumed) == [batch.tolist() for (batch,) in batches]


def test_an_order_that_cannot_be_made_is_not_asked_for_again(photos):
    loader = make(photos)
    with pytest.raises(TypeError, match=r"weights"):
        loader.order = Weighted
    loader.indices = [4, 2]
    assert (loader.order.name, samples(loader)) == ("SEQUENTIAL", [[4, 2]])


@pytest.mark.parametrize("order", ["sequential", "random", "quasi_random"])
@pytest.mark.parametrize("indices", [[-1], [50], np.ones(50, bool), [1.5], [[1, 2]], "abc"])
def test_indices_of_the_order_that_are_none_are_refused(photos, order, indices):
    loader = make(photos, order=order)
    loader.traversal_order.indices = indices
    for ask in (len, iter):
        with pytest.raises(OptionError, match=r"indices of the order h"):
            ask(loader)
    assert loader.next_epoch == 0
    loader.traversal_order.indices = [4, 2]
    assert sorted(*samples(loader)) == [2, 4]


class Own(TraversalOrder):
    def sample_order(self, epoch):
        return self.indices


@pytest.mark.parametrize("order", ["sequential", "random", Own])
def test_a_sampler_stays_when_other_indices_come(photos, order, monkeypatch):
    monkeypatch.setattr("gpubeton.traversal_order.base.rank_of_process", partial(Rank, 0, 2))
    loader = make(photos, distributed=True, order=order)
    before, sampler = saved(loader)["order"], [2, 0]
    loader.traversal_order.sampler = sampler
    loader.indices = [7, 8, 9]
    assert loader.traversal_order.sampler is sampler
    if order is not Own:
        assert saved(loader)["order"] == f"{before}, sampled by list"
        assert (len(loader), samples(loader)) == (1, [[9, 7]])
        assert len(loader) == 1
        sampler.append(1)
        assert samples(loader) == [[9, 7, 8]]
        loader.indices = [7, 8]
        with pytest.raises(OptionError, match=r"sampler .* 2 .* 2 indices"):
            iter(loader)
    loader.order = "sequential"
    assert loader.traversal_order.sampler is None


class WithSampler(Own):
    def __init__(self, loader):
        super().__init__(loader)
        self.sampler = range(len(self.indices))


def test_an_order_that_makes_its_own_sampler_makes_it_of_the_other_indices(photos):
    loader = make(photos, order=WithSampler)
    loader.indices = [7, 8, 9]
    assert loader.traversal_order.sampler == range(3)
