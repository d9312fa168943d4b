from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._batch.step_rows import ADD, FINISH, KEEP, KIND, PARAMETERS, SAVE
from gpubeton.errors import OptionError
from gpubeton.pipeline import State
from gpubeton.transforms import AugMix, AutoAugment, RandAugment
from gpubeton.transforms.policies import AUG_MIX, AUTO_AUGMENT, dirichlet, magnitudes, policy_rows
from tests.reference.augment import GOLDEN, IMAGE
from tests.reference.color import ONE

COUNT, SIZE = 20_000, (24, 32)
NHWC = State(True, torch.device("cpu"), (*SIZE, 3), np.dtype("uint8"))


def uniform(count, rows=None):
    numbers = np.random.default_rng(2).random((COUNT, 60))[:, :count]
    return numbers if rows is None else numbers[rows]


@pytest.mark.parametrize(("name", "space"), [("AutoAugment", AUTO_AUGMENT), ("AugMix", AUG_MIX)])
def test_operations_and_magnitudes_are_torchvisions(name, space):
    theirs = {key.split()[2]: table for key, table in GOLDEN.items() if key.startswith(f"{name} 10 ")}
    assert {row[0] for row in space} == {"Identity", *theirs}
    for (operation, *_), ours in zip(space, magnitudes(space, 10, SIZE)[..., 0], strict=True):
        expected = theirs.get(operation, np.zeros(0))
        rounded = np.rint(ours) if operation == "Posterize" else ours
        assert rounded == pytest.approx(expected if len(expected) else np.zeros(10), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("policy", ["imagenet", "cifar10", "svhn"])
def test_pairs_probabilities_and_signs_are_torchvisions(policy):
    pairs, table = GOLDEN[f"AutoAugment {policy}"], magnitudes(AUTO_AUGMENT, 10, SIZE)
    drawn = AutoAugment(policy).drawn(uniform, COUNT, NHWC)
    number = (uniform(1)[:, 0] * 25).astype(int)
    for pair, steps in enumerate(pairs):
        operation, magnitude = (drawn[name][number == pair] for name in ("operation", "magnitude"))
        for place, (name, p, column) in enumerate(steps):
            is_done = operation[:, place] != 0
            assert abs(is_done.mean() - float(p)) < 0.08
            which = [row[0] for row in AUTO_AUGMENT].index(name)
            assert set(operation[is_done, place].tolist()) <= {which}
            most = table[which, 0 if column == "None" else int(column), 0]
            assert np.abs(magnitude[is_done, place]) == pytest.approx(abs(most))
            if AUTO_AUGMENT[which][3] and most > 0 and is_done.any():
                assert 0.3 < (magnitude[is_done, place] < 0).mean() < 0.7


def test_steps_of_a_pair_are_those_of_its_operations():
    augment = AutoAugment("cifar10", "bilinear", (7, 8, 9))
    rows, drawn = augment.draw(uniform, COUNT, NHWC), augment.drawn(uniform, COUNT, NHWC)
    possible = policy_rows(AUTO_AUGMENT, 10, SIZE, "bilinear", (7, 8, 9))
    table = magnitudes(AUTO_AUGMENT, 10, SIZE)
    for row, operation, magnitude in zip(rows[:300], drawn["operation"], drawn["magnitude"], strict=False):
        for step, which, size in zip(row, operation, magnitude, strict=True):
            columns = np.argwhere(table[which] == size)
            assert any(np.array_equal(step, possible[which, column, sign]) for column, sign in columns)
    assert (rows[..., KIND] == KEEP).mean() > 0.1


def test_a_policy_may_be_torchvisions_name_and_another_is_refused():
    assert AutoAugment(type("Policy", (), {"value": "svhn"})()).policy == "svhn"
    with pytest.raises(OptionError, match="policy is 'mnist'; expected one of 'imagenet', 'cifar10', 'svhn'"):
        AutoAugment("mnist")


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.5, 40.0])
@pytest.mark.parametrize("count", [2, 4])
def test_shares_have_the_moments_of_a_dirichlet_distribution(alpha, count):
    shares = dirichlet(alpha, np.random.default_rng(3).random((100_000, count)))
    assert shares.sum(axis=1) == pytest.approx(1)
    assert shares.mean(axis=0) == pytest.approx(1 / count, abs=0.006)
    variance = (count - 1) / count**2 / (count * alpha + 1)
    assert shares.var(axis=0) == pytest.approx(variance, rel=0.03)
    at_the_ends = dirichlet(alpha, np.array([[0.0] * count, [1 - 2.0**-32] * count]))
    assert at_the_ends == pytest.approx(1 / count)


def test_a_mixture_is_the_sum_of_its_chains():
    mix = AugMix(8, 3, -1, 1.0)
    rows, drawn = mix.draw(uniform, COUNT, NHWC), mix.drawn(uniform, COUNT, NHWC)
    kinds, weights = rows[..., KIND], rows[:, [1, 5, 9, 13], PARAMETERS]
    assert (kinds[:, [0, 1, 5, 9, 13, 14]] == [SAVE, ADD, ADD, ADD, ADD, FINISH]).all()
    assert (weights.sum(axis=1) == ONE).all()
    assert weights / ONE == pytest.approx(drawn["share"], abs=2.0**-14)
    for row, share in zip(rows[:40], weights[:40] / ONE, strict=True):
        chains = [np.zeros_like(row[:3]), *(row[start : start + 3] for start in (2, 6, 10))]
        changed = [RandAugment(3).apply(IMAGE[None].copy(), chain[None])[0].astype(float) for chain in chains]
        exact = sum(part * image for part, image in zip(share, changed, strict=True))
        assert np.abs(mix.apply(IMAGE[None].copy(), row[None])[0] - exact).max() <= 0.5


def test_chains_have_one_to_three_operations_of_all_kinds():
    drawn = AugMix(2).drawn(uniform, COUNT, NHWC)
    operation, magnitude = drawn["operation"], drawn["magnitude"]
    depth = (operation != 0).sum(axis=2)
    assert abs(np.bincount(depth.ravel(), minlength=4)[1:] / depth.size - 1 / 3).max() < 0.01
    assert (np.diff(operation != 0, axis=2).astype(int).sum(axis=2) <= 1).all()  # nothing after the end
    times = np.bincount(operation[..., 0].ravel(), minlength=14)
    assert times[0] == 0
    assert abs(times[1:] * 13 / times.sum() - 1).max() < 0.06
    table = magnitudes(AUG_MIX, 10, SIZE)
    assert set(np.abs(magnitude[operation == 1]).tolist()) == set(table[1, :2, 0].tolist())
    fixed = AugMix(1, 2, 4, all_ops=False).drawn(uniform, COUNT, NHWC)["operation"]
    assert fixed.shape == (COUNT, 2, 4)
    assert (fixed.min(), fixed.max()) == (1, 9)
