from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

from gpubeton._plan.order import Rank
from gpubeton.errors import OptionError
from gpubeton.format.index import PageRuns
from gpubeton.traversal_order import QuasiRandom, Random, Repeated, Sequential, TraversalOrder, Window, base
from tests.reference.quasi_random_order import quasi_random
from tests.reference.window_order import window

PAGES = np.arange(60) // 6 + 1
INDICES = np.arange(50, 5, -1, dtype=np.uint64)


def loader(*, distributed=False):
    return SimpleNamespace(
        indices=INDICES,
        seed=3,
        distributed=distributed,
        batch_size=2,
        reader=SimpleNamespace(index=SimpleNamespace(page_runs=lambda: PageRuns.join([PAGES]))),
    )


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("epoch", [0, 5])
@pytest.mark.parametrize("distributed", [False, True])
def test_orders_are_those_of_the_reference(epoch, distributed, request):
    shuffled = np.random.default_rng(3 + epoch).permutation(INDICES)
    if distributed:
        request.getfixturevalue("process_group")
        shuffled = INDICES[torch.randperm(len(INDICES), generator=torch.Generator().manual_seed(3 + epoch)).numpy()]
    pages = PAGES[INDICES.astype(int)]
    expected = {
        Sequential: INDICES,
        Random: shuffled,
        Window: window(INDICES, pages, 64, 4, 3, epoch),
        QuasiRandom: quasi_random(INDICES, pages, 2, 3, epoch, (0, 1) if distributed else None),
    }
    for order_class, samples in expected.items():
        assert order_class(loader(distributed=distributed)).sample_order(epoch).tolist() == samples.tolist()


@pytest.mark.parametrize("order_class", [Sequential, Random, Window])
def test_a_sampler_that_is_set_is_followed_by_the_orders_of_ranks(order_class, process_group):
    order = order_class(loader(distributed=True))
    assert order.sampler is None
    order.sampler = DistributedSampler(range(len(INDICES)), num_replicas=2, rank=1, shuffle=True, seed=9)
    for epoch in (0, 4):
        result = order.sample_order(epoch)
        order.sampler.set_epoch(epoch)
        assert (result.dtype, result.tolist()) == (np.uint64, INDICES[list(order.sampler)].tolist())
    order.sampler = [4, 0]
    assert order.sample_order(0).tolist() == INDICES[[4, 0]].tolist()
    alone = order_class(loader())
    alone.sampler = [4, 0]
    assert len(alone.sample_order(0)) == len(INDICES)


def test_distributed_without_a_process_group_names_the_missing_call():
    with pytest.raises(OptionError, match="init_process_group"):
        Sequential(loader(distributed=True))


def test_an_order_of_ones_own_needs_only_sample_order():
    class Backwards(TraversalOrder):
        def sample_order(self, epoch):
            return self.indices[::-1]

    assert Backwards(loader()).sample_order(0)[0] == 6


@pytest.mark.parametrize("world", [3, 4, 8])
def test_repeats_go_to_different_ranks_that_draw_differently(world, monkeypatch):
    orders = []
    for number in range(world):
        monkeypatch.setattr(base, "rank_of_process", lambda number=number: Rank(number, world))
        orders.append(Repeated(loader(distributed=True), 3))
    shares = [order.sample_order(2) for order in orders]
    assert len({order.draw_offset for order in orders}) == world
    shuffled = INDICES[torch.randperm(len(INDICES), generator=torch.Generator().manual_seed(3 + 2)).numpy()]
    assert all(len(share) == len(INDICES) // world == len(set(share.tolist())) for share in shares)
    together = np.stack(shares, axis=1).reshape(-1)
    # As timm's and DeiT's sampler, but for its rounding to 256 samples.
    assert together.tolist() == np.repeat(shuffled, 3)[: len(together)].tolist()


@pytest.mark.parametrize("world", [1, 2])
def test_a_rank_must_not_have_a_sample_twice(world, monkeypatch):
    monkeypatch.setattr(base, "rank_of_process", lambda: Rank(0, world))
    with pytest.raises(OptionError, match=f"num_repeats is 3, with {world} rank.*at least as many ranks"):
        Repeated(loader(distributed=True), 3)
    with pytest.raises(OptionError, match="distributed=False"):
        Repeated(loader(), 3)
