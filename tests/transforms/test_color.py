from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from gpubeton._batch import step_rows
from gpubeton._batch.step_rows import KEEP, KIND, PARAMETERS, SPAN, STEP_COLUMNS
from gpubeton.pipeline import State
from gpubeton.transforms import ColorJitter, RandomBrightness, RandomContrast, RandomSaturation
from tests.apply import LAYOUTS, as_nhwc_array, in_layout
from tests.reference.color import BRIGHTNESS, CONTRAST, HUE, MAX_FACTOR, NEARLY, NEUTRAL, ONE, SATURATION, step
from tests.transforms.random_numbers import numbers

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 20, 30, 3), np.uint8)
IMAGES[4], IMAGES[5] = 255, 0
IMAGES[3, :, :15] = IMAGES[3, :, :15, :1]  # half of it gray
NHWC = State(True, "cpu", (20, 30, 3), np.dtype("uint8"))
#: Kinds of step rows, by those of the reference.
STEP_KINDS = np.array([step_rows.BRIGHTNESS, step_rows.CONTRAST, step_rows.SATURATION, step_rows.HUE])
KINDS = [BRIGHTNESS, CONTRAST, SATURATION, HUE]
BLENDS = [BRIGHTNESS, CONTRAST, SATURATION]
ANY = RandomBrightness(0.5)


def rows_of(steps):
    """The step rows of kinds and factors, (N, 2 * K)."""
    pairs = np.asarray(steps, np.int32).reshape(len(steps), -1, 2)
    rows = np.zeros((*pairs.shape[:2], STEP_COLUMNS), np.int32)
    rows[..., KIND], rows[..., SPAN], rows[..., PARAMETERS] = STEP_KINDS[pairs[..., 0]], 1, pairs[..., 1]
    return rows


def pairs_of(rows):
    """Kind and factor of each step, (N, K, 2); the factor of a step that changes nothing is -1."""
    kinds = np.searchsorted(STEP_KINDS, rows[..., KIND])
    return np.stack([kinds, np.where(rows[..., KIND] == KEEP, -1, rows[..., PARAMETERS])], axis=-1)


def applied(images, *row, layout="numpy"):
    """The images after the same steps for each."""
    rows = np.repeat(rows_of([row]), len(images), axis=0)
    return as_nhwc_array(ANY.apply(in_layout(images, layout), rows), layout)


def every_color():
    """An image with each combination of every fifteenth level."""
    level = np.arange(0, 256, 15, dtype=np.uint8)
    return np.stack(np.meshgrid(level, level, level), axis=-1).reshape(1, 18, -1, 3)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("factor", [0, 1, 9_999, ONE // 2, ONE - 1, ONE + 1, 50_000, 3 * ONE, 200 * ONE + 7])
@pytest.mark.parametrize("kind", BLENDS)
def test_a_blend_is_the_exact_one_rounded_down(kind, factor, layout):
    result = applied(IMAGES, kind, factor, layout=layout)
    for image, output in zip(IMAGES, result, strict=True):
        exact = step(image, kind, factor / ONE)
        # With a mean in float64 a sum that is a whole number may come out a little less than it.
        assert (output <= exact + NEARLY).all()
        assert (output > exact - 1 - NEARLY).all()


@pytest.mark.parametrize("turn", [-ONE // 2, -9_999, -1, 1, 2_731, 5_461, 10_923, ONE // 2])
def test_a_turn_of_the_hue_is_torchvisions(turn):
    images = np.concatenate([every_color().reshape(-1, 3), IMAGES.reshape(-1, 3)]).reshape(1, 1, -1, 3)
    exact = step(images[0], HUE, turn / ONE)
    # 0.999 / 255 is known to 2e-5 of itself, and 7 of 15 bits below a level are dropped first: see `_rounded`.
    tolerance = 255 * 0.004 * 2e-5 + 2**-15 + 2**-8 * 0.004
    for result in (applied(images, HUE, turn)[0], applied(images, HUE, turn, layout="nchw")[0]):
        assert (result <= exact + tolerance).all()
        assert (result > exact - 1 - tolerance).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_neutral_factor_leaves_every_level(kind):
    images = np.random.default_rng(2).integers(0, 256, (2, 300, 300, 3), np.uint8)
    pixel = [[kind, NEUTRAL[kind], SATURATION, 0], [kind, NEUTRAL[kind], kind, NEUTRAL[kind]]]
    assert np.array_equal(ANY.apply(images.copy(), rows_of(pixel))[1], images[1])
    # The same where the work is not skipped, beside a step that does something.
    alone, beside = [(BRIGHTNESS, ONE + 1, *neutral) for neutral in ((), (kind, NEUTRAL[kind]))]
    assert np.array_equal(applied(images, *beside), applied(images, *alone))


@pytest.mark.parametrize("layout", ["numpy", "nchw"])
def test_a_contrast_that_ends_a_hair_below_a_level_is_rounded_down(layout):
    # Gray values 35, 67 and 202: 203 becomes 215.99998, and 216 if the mean's share were rounded towards 0.
    image = np.repeat(np.array([36, 68, 203], np.uint8), 3).reshape(1, 1, 3, 3)
    batch = np.repeat(image, 4, axis=2)  # not three pixels wide, which would leave open where the channels are
    assert applied(batch, CONTRAST, 36_958, layout=layout)[0, 0, ::4, 0].tolist() == [27, 63, 215]


@pytest.mark.parametrize("kind", BLENDS)
def test_the_largest_factor_does_not_overflow(kind):
    images = np.zeros((3, 2, 2, 3), np.uint8)
    images[0], images[1, 0], images[2, ..., 1] = 255, 255, 255
    for image, output in zip(images, applied(images, kind, MAX_FACTOR * ONE), strict=True):
        assert np.array_equal(output, np.floor(step(image, kind, MAX_FACTOR) + NEARLY).clip(0, 255))


@pytest.mark.parametrize(
    ("make", "kind"),
    [(RandomBrightness, BRIGHTNESS), (RandomContrast, CONTRAST), (RandomSaturation, SATURATION)],
)
def test_magnitudes_are_uniform_around_one_and_as_often_as_asked(make, kind):
    def factors(operation):
        rows = operation.draw(numbers, 20_000, NHWC)[:, 0]
        changed = rows[rows[:, KIND] != KEEP]
        assert (changed[:, KIND] == STEP_KINDS[kind]).all()
        return changed[:, PARAMETERS] / ONE

    changed = factors(make(0.25, p=0.3))
    assert abs(len(changed) / 20_000 - 0.3) < 0.015
    assert changed.min() >= 0.75
    assert changed.max() <= 1.25
    assert np.histogram(changed, bins=5, range=(0.75, 1.25))[0].min() > 0.18 * len(changed)
    assert factors(make(3, p=1)).min() == pytest.approx(0, abs=0.001)
    assert len(factors(make(0.5, p=0))) == 0
    assert len(factors(make(0.5, p=1))) > 0.99 * 20_000


def test_every_order_of_a_jitter_is_equally_likely():
    order = ColorJitter(0.4, 0.4, 0.4, 0.1).drawn(numbers, 20_000, NHWC)["order"]
    orders, times = np.unique(order, axis=0, return_counts=True)
    assert sorted(map(tuple, orders.tolist())) == sorted(permutations(range(4)))
    assert abs(times * 24 / 20_000 - 1).max() < 0.15


def test_factors_of_a_jitter_are_torchvisions():
    jitter = ColorJitter(brightness=0.4, contrast=(0.5, 3), saturation=1.5, hue=(-0.1, 0.3))
    steps = pairs_of(jitter.draw(numbers, 20_000, NHWC))
    limits = {BRIGHTNESS: (0.6, 1.4), CONTRAST: (0.5, 3.0), SATURATION: (0.0, 2.5), HUE: (-0.1, 0.3)}
    for kind, (low, high) in limits.items():
        factors = steps[(steps[..., 0] == kind) & (steps[..., 1] != -1)][:, 1] / ONE
        assert factors.min() == pytest.approx(low, abs=0.002)
        assert factors.max() == pytest.approx(high, abs=0.002)
        assert np.histogram(factors, bins=4)[0].min() > 0.23 * 20_000


def test_a_factor_of_a_jitter_does_not_depend_on_its_other_steps():
    def factors(jitter):
        steps = pairs_of(jitter.draw(numbers, 20_000, NHWC))
        return steps[steps[..., 0] == SATURATION][:, 1]

    assert np.array_equal(factors(ColorJitter(0.1, 0.2, 0.3, 0.4)), factors(ColorJitter(saturation=0.3)))


def test_a_jitter_of_nothing_has_no_steps():
    jitter = ColorJitter(0, (1, 1), 0, 0)
    assert (jitter.num_rows, jitter.kinds) == (0, frozenset())
    batch = IMAGES.copy()
    assert np.array_equal(jitter.apply(batch, jitter.draw(numbers, 20_000, NHWC)[:6]), IMAGES)
    with pytest.raises(TypeError):
        ColorJitter(0.8, 0.4, 0.4, 0.2, 0.1)  # FFCV-SSL has the probability first


def test_a_jitter_with_a_probability_leaves_the_others_as_they_are():
    kinds = ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8).draw(numbers, 20_000, NHWC)[..., KIND]
    stays = (kinds == KEEP).all(axis=1)
    assert abs(stays.mean() - 0.2) < 0.015
    assert (kinds[~stays] != KEEP).mean() > 0.99


def test_gray_values_of_all_pixels_are_exact_quotients_rounded_down():
    green, blue = np.meshgrid(*[np.arange(256)] * 2, indexing="ij")
    for red in range(256):
        exact = (2989 * red + 5870 * green + 1140 * blue) // 10_000
        images = np.stack([np.full_like(green, red), green, blue], axis=-1)[None].astype(np.uint8)
        assert np.array_equal(applied(images, SATURATION, 0)[0], np.stack([exact] * 3, axis=-1))
        assert (applied(images, CONTRAST, 0) == exact.sum() // 65_536).all()
