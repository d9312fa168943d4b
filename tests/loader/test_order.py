from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpubeton.errors import OptionError
from gpubeton.loader import Loader, OrderOption
from gpubeton.traversal_order import TraversalOrder
from tests.loader.pipelines import ONLY_LABEL, labels

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "orders.json").read_text())["cases"]


@pytest.mark.parametrize("order", ["SEQUENTIAL", "RANDOM"])
def test_orders_are_ffcvs(photos, order):
    cases = [case for case in GOLDEN if case["order"] == order and case["world"] == 1 and case["num_samples"] <= 50]
    assert len(cases) >= 5
    for case in cases:
        indices = range(case["num_samples"]) if case["indices"] is None else case["indices"]
        if max(indices, default=0) >= 50:
            continue
        loader = Loader(photos, 1, order=OrderOption[order], seed=case["seed"], indices=indices, pipelines=ONLY_LABEL)
        plan = loader.plan(case["epoch"])
        assert [int(batch.samples[0]) for batch in plan] == case["result"]


def test_epochs_are_counted_from_0_and_may_be_chosen(photos):
    loader = Loader(photos, 10, num_workers=1, order=OrderOption.RANDOM, seed=7, pipelines=ONLY_LABEL)
    epochs = []
    for epoch in range(3):
        assert loader.next_epoch == epoch
        epochs.append(labels(loader))
    assert epochs[0] != epochs[1] != epochs[2]
    loader.next_epoch = 1
    assert labels(loader) == epochs[1]
    assert loader.next_epoch == 2
    loader.set_epoch(0)
    assert labels(loader) == epochs[0]
    with pytest.raises(OptionError, match=r"epoch is -1"):
        loader.set_epoch(-1)


@pytest.mark.parametrize("order", [OrderOption.RANDOM, "random", "RANDOM"])
def test_an_order_may_be_given_by_its_name(photos, order):
    loader = Loader(photos, 50, num_workers=1, order=order, seed=7, pipelines=ONLY_LABEL)
    assert labels(loader) == [(np.random.default_rng(7).permutation(50) * 10).tolist()]


def test_an_order_of_ones_own_decides(photos):
    class Backwards(TraversalOrder):
        def __init__(self, loader, step=1):
            super().__init__(loader)
            self.step = step

        def sample_order(self, epoch):
            return [int(index) for index in self.indices[:: -self.step]][epoch:]

    loader = Loader(
        photos,
        3,
        num_workers=1,
        order=Backwards,
        order_kwargs={"step": 2},
        pipelines=ONLY_LABEL,
        drop_last=False,
        indices=range(10),
    )
    assert labels(loader) == [[90, 70, 50], [30, 10]]
    assert len(loader) == 2
    assert labels(loader) == [[70, 50, 30], [10]]


class Beginning(TraversalOrder):
    """Two batches of the loader's size, or another number of samples."""

    def __init__(self, loader):
        super().__init__(loader)
        self.loader = loader

    def sample_order(self, epoch):
        return self.indices[: getattr(self, "count", 2 * self.loader.batch_size)]


def test_the_length_follows_a_batch_size_and_an_attribute_that_the_order_reads(photos):
    loader = Loader(photos, 4, num_workers=1, order=Beginning, pipelines=ONLY_LABEL)
    assert len(loader) == 2
    loader.batch_size = 20
    assert len(loader) == 2
    loader.traversal_order.count = 20
    assert len(loader) == 1
    del loader.traversal_order.count
    assert len(loader) == 2


def test_an_order_with_an_unknown_sample_is_refused(photos):
    class Wrong(TraversalOrder):
        def sample_order(self, epoch):
            return [0, 50]

    loader = Loader(photos, 1, num_workers=1, order=Wrong, pipelines=ONLY_LABEL)
    with pytest.raises(OptionError, match=r"order .*50 .* 50 "):
        iter(loader)
