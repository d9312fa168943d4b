from __future__ import annotations

import gc
import json

import pytest
from torchdata import nodes

from gpubeton.integrations.torchdata import BetonNode
from gpubeton.loader import Loader
from tests.integrations.conftest import LABELS


def make(path, **changes):
    return BetonNode(Loader(path, **{"batch_size": 4, "order": "random", "seed": 3, "pipelines": LABELS, **changes}))


def numbers_of(batch):
    return batch[0].tolist()


GRAPHS = {
    "alone": lambda node: node,
    "mapped": lambda node: nodes.Mapper(node, tuple),
    "mapped by threads": lambda node: nodes.ParallelMapper(node, tuple, num_workers=2, method="thread"),
    "ahead": lambda node: nodes.Prefetcher(node, prefetch_factor=2),
    "ahead, with few snapshots": lambda node: nodes.Prefetcher(node, prefetch_factor=2, snapshot_frequency=3),
    "mapped, then ahead": lambda node: nodes.Prefetcher(nodes.Mapper(node, tuple), prefetch_factor=1),
}


@pytest.fixture(params=GRAPHS)
def graph(request):
    """A function that makes a loader of torchdata's from a node, through other nodes."""
    # Nodes that are collected join their thread, which is an error if it is that thread that collects garbage.
    gc.disable()
    yield lambda node: nodes.Loader(GRAPHS[request.param](node))
    gc.collect()
    gc.enable()


def two_epochs(path):
    loader = Loader(path, 4, order="random", seed=3, pipelines=LABELS)
    return [[numbers_of(batch) for batch in loader] for _ in range(2)]


def test_each_pass_is_an_epoch_of_the_loader(numbers, graph):
    loader = graph(make(numbers))
    assert [[numbers_of(batch) for batch in loader] for _ in range(2)] == two_epochs(numbers)


@pytest.mark.parametrize("received", range(6))
def test_a_state_resumes_with_exactly_the_remaining_batches(numbers, graph, received):
    first, second = two_epochs(numbers)
    saved = graph(make(numbers))
    batches = iter(saved)
    assert [numbers_of(next(batches)) for _ in range(received)] == first[:received]
    state = json.loads(json.dumps(saved.state_dict()))
    resumed = graph(make(numbers))
    resumed.load_state_dict(state)
    left = [] if received == len(first) else [first[received:]]  # torchdata begins the next epoch at the end of one
    assert [[numbers_of(batch) for batch in resumed] for _ in range(len(left) + 1)] == [*left, second]


def test_a_source_that_has_ended_stays_ended_in_a_state(numbers):
    node = make(numbers)
    assert len(list(node)) == 5
    with pytest.raises(StopIteration):
        next(node)
    other = make(numbers)
    other.reset(node.state_dict())
    assert list(other) == []
    other.reset()
    assert [numbers_of(batch) for batch in other] == two_epochs(numbers)[1]


def test_a_reset_begins_at_the_first_batch(numbers):
    node = make(numbers)
    next(node)
    other = make(numbers)
    other.reset(node.state_dict())
    other.reset()
    assert len(list(other)) == 5


def test_nodes_that_mix_sources_resume_exactly(numbers):
    def mixed():
        sources = {"one": make(numbers), "other": make(numbers, seed=8)}
        weights = {"one": 0.7, "other": 0.3}
        return nodes.Loader(nodes.MultiNodeWeightedSampler(sources, weights, stop_criteria="ALL_DATASETS_EXHAUSTED"))

    expected = [numbers_of(batch) for batch in mixed()]
    for received in range(len(expected)):
        saved = mixed()
        batches = iter(saved)
        for _ in range(received):
            next(batches)
        resumed = mixed()
        resumed.load_state_dict(saved.state_dict())
        assert [numbers_of(batch) for batch in resumed] == expected[received:]


def test_batches_are_dicts_with_names(numbers):
    node = BetonNode(Loader(numbers, 4, pipelines=LABELS), names=["label"])
    assert next(node)["label"].tolist() == [0, 1, 2, 3]
