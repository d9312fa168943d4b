from __future__ import annotations

from functools import partial
from itertools import chain

import numpy as np
import pytest
import torch

from gpubeton._plan.order import draw_weighted
from gpubeton._plan.places import Rank
from gpubeton.errors import NoSuchFieldError, OptionError, StateError
from gpubeton.loader import Loader
from gpubeton.traversal_order import Balanced, Weighted
from tests.loader.pipelines import ONLY_LABEL, labels
from tests.small_files import write

WEIGHTS = np.arange(50) % 7


def make(path, order=Weighted, *, indices=None, batch_size=4, drop_last=False, pipelines=ONLY_LABEL, **kwargs):
    kwargs = kwargs if order is Balanced else {"weights": WEIGHTS, **kwargs}
    return Loader(
        path,
        batch_size,
        num_workers=1,
        order=order,
        order_kwargs=kwargs,
        seed=5,
        indices=indices,
        drop_last=drop_last,
        pipelines=pipelines,
    )


def drawn(loader, epoch=0):
    return [int(sample) for batch in loader.plan(epoch) for sample in batch.samples]


@pytest.mark.parametrize("weights", [WEIGHTS, WEIGHTS.tolist(), torch.tensor(WEIGHTS, dtype=torch.float32)])
def test_an_epoch_consists_of_the_drawn_samples(photos, weights):
    loader = make(photos, weights=weights, num_samples=30)
    expected = draw_weighted(WEIGHTS.astype(float), 30, 5, 0, replacement=True)
    assert drawn(loader) == expected.tolist()
    assert len(loader) == 8
    assert list(chain(*labels(loader))) == (expected * 10).tolist()
    assert drawn(loader) != drawn(loader, 1)


def test_without_replacement_each_sample_comes_once_at_most(photos):
    draws = drawn(make(photos, replacement=False, num_samples=42))
    assert sorted(draws) == np.flatnonzero(WEIGHTS).tolist()
    assert draws != sorted(draws)


def test_of_indices_only_those_are_drawn_with_the_weights_of_their_samples_also_after_a_filter(photos):
    assert len(drawn(make(photos))) == 50
    assert len(drawn(make(photos, indices=[1, 2, 3]))) == 3
    assert set(drawn(make(photos, indices=[20, 7, 6, 14], num_samples=200))) == {20, 6}
    filtered = make(photos, num_samples=100).filter("label", lambda value: int(value) >= 400)
    assert set(drawn(filtered)) == {number for number in range(40, 50) if WEIGHTS[number]}
    assert len(make(photos, num_samples=3).filter("label", lambda value: int(value) < 0)) == 0


@pytest.mark.parametrize("as_weights", [np.asarray, list, torch.tensor])
def test_the_state_of_a_loader_with_other_weights_is_refused(photos, as_weights):
    other = WEIGHTS.copy()
    other[25] += 1
    state = make(photos, weights=as_weights(WEIGHTS)).state_dict()
    make(photos, weights=as_weights(WEIGHTS)).load_state_dict(state)
    assert len(state["order"]) < 150
    with pytest.raises(StateError, match=r"order is .*Weighted\{'weights': "):
        make(photos, weights=as_weights(other)).load_state_dict(state)
    with pytest.raises(StateError, match=r"order is"):
        make(photos, weights=as_weights(WEIGHTS), replacement=False, num_samples=9).load_state_dict(state)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"weights": [1.0] * 49}, r"shape \(49,\), .* 50 samples"),
        ({"weights": [1.0] * 49 + [-1]}, r"sample 49 is -1\.0"),
        ({"weights": [float("nan")] + [1.0] * 49}, "sample 0 is nan"),
        ({"weights": ["a"] * 50}, "no array of numbers"),
        ({"num_samples": 0}, "num_samples is 0; .*at least 1"),
        ({"num_samples": 2.5}, "num_samples is 2.5; .*whole number"),
        ({"num_samples": 43, "replacement": False}, "43 samples"),
    ],
)
def test_impossible_weights_are_refused_by_the_constructor(photos, kwargs, message):
    with pytest.raises(OptionError, match=message):
        make(photos, **kwargs)


def test_ranks_draw_the_same_and_share_it(photos, monkeypatch):
    shares = []
    for number in range(3):
        monkeypatch.setattr("gpubeton.traversal_order.base.rank_of_process", partial(Rank, number, 3))
        kwargs = {"weights": WEIGHTS, "num_samples": 32}
        common = {"num_workers": 1, "seed": 5, "pipelines": ONLY_LABEL}
        shares.append(drawn(Loader(photos, 1, order=Weighted, order_kwargs=kwargs, distributed=True, **common)))
    together = list(chain(*zip(*shares, strict=True)))
    alone = drawn(make(photos, num_samples=32))
    assert together == [*alone, alone[0]]


# Class 0 nine times as often as class 1, and a class 2 of one sample.
CLASSES = [*(int(number % 10 == 0) for number in range(50)), 2]


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    from gpubeton.fields import FloatField, IntField

    path = tmp_path_factory.mktemp("classes") / "classes.beton"
    return write(
        path,
        {"label": IntField(), "value": FloatField()},
        [(label, float(number)) for number, label in enumerate(CLASSES)],
    )


def test_balanced_draws_every_class_equally_often(classes):
    count = 9000
    loader = make(classes, Balanced, field="label", num_samples=count, pipelines=None)
    result = np.array(drawn(loader))
    shares = np.bincount(np.array(CLASSES)[result], minlength=3) / count
    assert np.all(np.abs(shares - 1 / 3) <= 5 * np.sqrt(2 / 9 / count))
    assert len(np.unique(result)) == 51


def test_balanced_counts_the_classes_among_the_indices(classes):
    count = 4000
    loader = make(classes, Balanced, field="label", num_samples=count, pipelines=None, indices=[0, 10, 20, 1])
    shares = np.bincount(drawn(loader), minlength=51)[[0, 10, 20, 1]] / count
    chances = np.array([1 / 6] * 3 + [1 / 2])
    assert np.all(np.abs(shares - chances) <= 5 * np.sqrt(chances * (1 - chances) / count))


def test_balanced_refuses_fields_without_classes(classes):
    with pytest.raises(OptionError, match=r"'value' .*IntField"):
        make(classes, Balanced, field="value", pipelines=None)
    with pytest.raises(NoSuchFieldError):
        make(classes, Balanced, field="nothing", pipelines=None)
