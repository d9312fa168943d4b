from __future__ import annotations

import math
from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from gpubeton._plan.order import choose, draw_weighted, minus_log
from gpubeton.errors import OptionError

WEIGHTS = np.array([1.0, 0.0, 2.0, 5.0])


def test_the_logarithm_is_that_of_the_library_to_a_few_units_in_the_last_place():
    numbers = np.concatenate([np.random.default_rng(0).random(5000), [2.0**-53, 0.5, 0.5**0.5, 1 - 2.0**-53]])
    expected = np.array([-math.log(number) for number in numbers])
    np.testing.assert_allclose(minus_log(numbers), expected, rtol=1e-15)


def test_with_replacement_each_comes_in_proportion_to_its_weight():
    count = 40_000
    shares = np.bincount(draw_weighted(WEIGHTS, count, 1, 0, replacement=True), minlength=4) / count
    chances = WEIGHTS / WEIGHTS.sum()
    # Five standard deviations of a binomial share.
    assert np.all(np.abs(shares - chances) <= 5 * np.sqrt(chances * (1 - chances) / count))


def test_without_replacement_the_remaining_samples_are_drawn_in_proportion_to_their_weights():
    count = 6000
    result = Counter(tuple(draw_weighted(WEIGHTS, 3, seed, 0, replacement=False).tolist()) for seed in range(count))
    assert sum(result.values()) == count
    for order in permutations([0, 2, 3]):
        first, second, _ = WEIGHTS[list(order)]
        chance = first / 8 * second / (8 - first)
        assert abs(result[order] / count - chance) <= 5 * math.sqrt(chance * (1 - chance) / count), order


@pytest.mark.parametrize("replacement", [True, False])
def test_seed_and_epoch_decide_the_draws(replacement):
    weights = np.arange(1.0, 101)

    def draw(seed, epoch):
        return draw_weighted(weights, 50, seed, epoch, replacement=replacement).tolist()

    assert draw(3, 4) == draw(3, 4)
    assert draw(3, 4) != draw(3, 5) != draw(4, 4)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e200, 3e307])
@pytest.mark.parametrize("replacement", [True, False])
def test_weights_may_be_as_small_and_as_large_as_they_like(scale, replacement):
    drawn = draw_weighted(WEIGHTS * scale, 3, 0, 0, replacement=replacement)
    assert set(drawn.tolist()) <= {0, 2, 3}
    assert len(drawn) == 3


def test_a_chance_on_a_border_is_the_next_ones_and_the_largest_never_leads_past_the_end():
    assert choose(np.array([1.0, 3.0]), np.array([0.25, 1.0])).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("weights", "count", "replacement", "message"),
    [
        (WEIGHTS, 4, False, "4 samples .* without replacement, but of 4 only 3 have a weight .* replacement=True"),
        (np.zeros(2), 1, True, "1 samples .* with replacement, but of 2 only 0 have a weight above 0"),
    ],
)
def test_too_few_weights_are_refused_with_advice(weights, count, replacement, message):
    with pytest.raises(OptionError, match=message):
        draw_weighted(weights, count, 0, 0, replacement=replacement)
