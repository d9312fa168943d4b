"""The steps of AugMix: a weighed sum of changed images."""

from __future__ import annotations

import numpy as np
import pytest

from gpubeton._batch.step_rows import ADD, FINISH, HSV, SAVE, TURN, WARP_BILINEAR
from gpubeton.transforms.warps import affine_rows
from tests.cpu.carried_out import KINDS, carried_out, noise, row_of, size_of, warp_row

ONE = 1 << 15


def mixed(images, weights):
    total = sum(weight * image.astype(np.int64) for image, weight in zip(images, weights, strict=True))
    return np.clip((total + ONE // 2) // ONE, 0, np.iinfo(images[0].dtype).max).astype(images[0].dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_is_the_weighed_sum_rounded(kind):
    random = np.random.default_rng(0)
    for number in range(32):
        size = size_of(random, number)
        image, fill = noise(random, *size, kind)
        warp = warp_row(WARP_BILINEAR, fill, affine_rows(size, angle=20.0, scale=1.2)[0])
        turn, colors = row_of(TURN, 1), row_of(HSV, 40000, 30000, 500)
        chains = [[], [turn], [warp], [turn, colors, warp]]
        shares = random.dirichlet(np.ones(4))
        weights = [*np.floor(shares[:3] * ONE).astype(int).tolist()]
        weights.append(ONE - sum(weights))
        rows = [row_of(SAVE)]
        for chain, weight in zip(chains, weights, strict=True):
            rows += [*chain, row_of(ADD, weight)]
        result = carried_out(image, np.concatenate([*rows, row_of(FINISH)]))
        changed = [carried_out(image, np.concatenate(chain)) if chain else image for chain in chains]
        assert np.array_equal(result, mixed(changed, weights)), (size, weights)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kept_image_comes_back_and_whole_weights_lose_nothing(kind):
    image, _ = noise(np.random.default_rng(0), 37, 50, kind)
    once = [row_of(SAVE), row_of(TURN, 1), row_of(ADD, 0), row_of(ADD, ONE), row_of(FINISH)]
    assert np.array_equal(carried_out(image, np.concatenate(once)), image)
    assert np.array_equal(carried_out(image, np.concatenate(once * 2)), image)


def test_sums_are_limited_to_the_levels():
    image, _ = noise(np.random.default_rng(0), 37, 50, "rgb")
    rows = [row_of(SAVE), row_of(ADD, 3 * ONE), row_of(ADD, -ONE), row_of(FINISH)]
    assert np.array_equal(carried_out(image, np.concatenate(rows)), np.minimum(2 * image.astype(int), 255))
    rows = [row_of(SAVE), row_of(ADD, -ONE), row_of(FINISH)]
    assert not carried_out(image, np.concatenate(rows)).any()
