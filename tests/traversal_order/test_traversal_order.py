from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch.distributed as dist

from gpubeton.errors import OptionError
from gpubeton.plan.order import Rank, quasi_random, random, sequential
from gpubeton.traversal_order import QuasiRandom, Random, Sequential, TraversalOrder

PAGES = np.arange(60) // 6 + 1
INDICES = np.arange(50, 5, -1, dtype=np.uint64)


def loader(*, distributed=False):
    return SimpleNamespace(indices=INDICES, seed=3, distributed=distributed, batch_size=2, sample_pages=lambda: PAGES)


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("epoch", [0, 5])
@pytest.mark.parametrize("rank", [None, Rank(0, 1)])
def test_the_classes_give_the_plans_orders(epoch, rank, request):
    if rank is not None:
        request.getfixturevalue("process_group")
    asks = loader(distributed=rank is not None)
    pages = PAGES[INDICES.astype(int)]
    assert Sequential(asks).sample_order(epoch).tolist() == sequential(INDICES, rank).tolist()
    assert Random(asks).sample_order(epoch).tolist() == random(INDICES, 3, epoch, rank).tolist()
    assert QuasiRandom(asks).sample_order(epoch).tolist() == quasi_random(INDICES, pages, 2, 3, epoch, rank).tolist()


def test_distributed_without_a_process_group_says_what_to_call():
    with pytest.raises(OptionError, match="init_process_group"):
        Sequential(loader(distributed=True))


def test_an_order_of_ones_own_needs_only_sample_order():
    class Backwards(TraversalOrder):
        def sample_order(self, epoch):
            return self.indices[::-1]

    assert Backwards(loader()).sample_order(0)[0] == 6
