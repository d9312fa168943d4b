from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpubeton.dataset import choose, split
from gpubeton.errors import OptionError


@given(st.integers(4, 200), st.lists(st.floats(0.05, 0.3), min_size=1, max_size=3), st.booleans(), st.integers(0, 9))
def test_parts_share_no_sample_and_the_last_one_takes_the_rest(count, shares, shuffle, seed):
    assume(all(share * count >= 2 for share in shares))
    parts = split(count, [*shares, None], shuffle=shuffle, seed=seed)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(count))
    assert all(abs(len(part) - share * count) <= 1 for part, share in zip(parts, shares, strict=False))


@given(st.lists(st.integers(0, 4), min_size=20, max_size=200), st.floats(0.2, 0.8), st.integers(0, 9))
def test_each_class_is_divided_in_the_same_proportion(labels, share, seed):
    labels = np.array(labels)
    first, second = split(len(labels), [share, None], labels=labels, seed=seed)
    assert len(first) == round(share * len(labels))
    for label in np.unique(labels):
        members = (labels == label).sum()
        assert abs((labels[first] == label).sum() - share * members) <= 2
    assert np.array_equal(np.sort(np.concatenate([first, second])), np.arange(len(labels)))


def test_shares_of_one_are_all_samples_and_the_seed_decides():
    assert [len(part) for part in split(3, [0.5, 0.5])] == [2, 1]
    one, again, other = (split(50, [0.5, None], seed=seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([8, 3], "would get 11 samples, but there are 10"),
        ([None, None], "more than one"),
        ([1.5], "a share of 1.5"),
        ([0], "a share of 0"),
        ([10, None], "part 2 would get none"),
    ],
)
def test_shares_that_cannot_be_are_refused(shares, message):
    with pytest.raises(OptionError, match=message):
        split(10, shares)


LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1])


def test_samples_are_chosen_by_index_class_and_number():
    assert choose(8, indices=[7, 2, 2]).tolist() == [7, 2, 2]
    assert choose(8, labels=LABELS, classes=[1]).tolist() == [1, 4, 7]
    assert choose(8, labels=LABELS, per_class=2).tolist() == [0, 1, 2, 3, 4, 5]
    assert choose(8, labels=LABELS, classes=[0, 1], per_class=2, count=3).tolist() == [0, 1, 3]
    assert choose(8, count=2).tolist() == [0, 1]


def test_chance_chooses_by_seed():
    chosen = choose(100, count=10, shuffle=True, seed=3)
    assert len(set(chosen.tolist())) == 10
    assert chosen.tolist() != list(range(10))
    assert np.array_equal(chosen, choose(100, count=10, shuffle=True, seed=3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"indices": [8]}, "no sample 8; there are 8"),
        ({"indices": [-1]}, "no sample -1"),
        ({"classes": [0]}, "--label FIELD"),
        ({"labels": LABELS, "classes": [9]}, "no sample of 8 is left"),
    ],
)
def test_choices_that_cannot_be_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        choose(8, **options)
