"""A loader keeps to the protocol of torchdata's StatefulDataLoader, as code that knows that one uses it."""

from __future__ import annotations

import pytest
from torch.distributed.checkpoint.stateful import Stateful

from gpubeton.loader import Loader
from tests.loader.pipelines import ONLY_LABEL, labels


def make(path, **changes):
    return Loader(path, 8, pipelines=ONLY_LABEL, order="random", seed=1, **changes)


def test_torch_takes_it_for_something_with_a_state(photos):
    assert isinstance(make(photos), Stateful)


@pytest.mark.parametrize("received", [0, 1, 4])
def test_state_dict_in_the_middle_of_an_epoch_and_load_state_dict_in_another_loader(photos, received):
    first, second = make(photos), make(photos, num_workers=1, batches_ahead=1)
    batches = iter(first)
    for _ in range(received):
        next(batches)
    state = first.state_dict()
    second.load_state_dict(state)
    assert labels(second) == [batch.tolist() for (batch,) in batches]
    assert labels(second) == labels(first)  # and the epochs after it, too


def test_a_state_taken_after_an_epoch_begins_the_next_one(photos):
    first, second = make(photos), make(photos)
    labels(first)
    second.load_state_dict(first.state_dict())
    assert labels(second) == labels(first) != labels(make(photos))


def test_loading_a_state_leaves_an_iterator_that_is_in_use_alone(photos):
    loader = make(photos)
    whole = labels(make(photos))
    batches = iter(loader)
    state = loader.state_dict()
    received = [next(batches)[0].tolist() for _ in range(2)]
    loader.load_state_dict(state)
    assert received + [batch.tolist() for (batch,) in batches] == whole
    assert labels(loader) == whole
