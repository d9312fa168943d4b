from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from gpubeton._batch.step_rows import ADD, KEEP, KIND, PARAMETERS
from gpubeton.errors import OptionError
from gpubeton.pipeline import State
from gpubeton.transforms import TimmAugment
from gpubeton.transforms.timm_augment import TIMM_OPERATIONS, _planned
from gpubeton.transforms.transform import Moves
from tests.reference.color import ONE

COUNT, SIZE, FILL = 20_000, (48, 61), (9, 120, 250)
NHWC = State(True, torch.device("cpu"), (*SIZE, 3), np.dtype("uint8"))
POLICIES = ["rand-m9-mstd0.5-inc1", "rand-m9-n3-p0.7-mstd101-mmax20", "rand-tweights", "rand-t3a-m5", "rand-t3aw-mstd1",
            "original-mstd0.5", "originalr", "v0", "v0r-mstd1", "3a", "augmix-m5-w4-d2",
            "augmix-a0.5-b1-mstd1"]  # fmt: skip


def uniform(count, rows=None):
    numbers = np.random.default_rng(5).random((COUNT, 80))[:, :count]
    return numbers if rows is None else numbers[rows]


def smooth_picture():
    noise = np.random.default_rng(3).integers(0, 256, (9, 11, 3), np.uint8)
    return np.asarray(Image.fromarray(noise).resize(SIZE[::-1], Image.Resampling.BICUBIC))


def moved(image, matrix):
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=FILL)


def enhanced(kind):
    return lambda image, value: kind(image).enhance(value)


def blurred(image, value):
    return image.filter(ImageFilter.GaussianBlur(value))


#: What Pillow does for an operation of timm's, and how far its levels may be away: the largest, and the mean.
PILLOW = {
    "AutoContrast": (lambda image, _: ImageOps.autocontrast(image), 1, 0.01),
    "Equalize": (lambda image, _: ImageOps.equalize(image), 0, 0),
    "Invert": (lambda image, _: ImageOps.invert(image), 0, 0),
    "Posterize": (lambda image, bits: image.point(lambda level: level & 256 - 2 ** (8 - int(bits))), 0, 0),
    "Solarize": (lambda image, value: ImageOps.solarize(image, int(value)), 0, 0),
    "SolarizeAdd": (lambda image, value: image.point(lambda v: v + int(value) if v < 128 else v), 0, 0),
    "Color": (enhanced(ImageEnhance.Color), 1, 0.6),
    "Desaturate": (enhanced(ImageEnhance.Color), 1, 0.7),
    "Contrast": (enhanced(ImageEnhance.Contrast), 1, 0.6),
    "Brightness": (enhanced(ImageEnhance.Brightness), 1, 0.1),
    "Sharpness": (enhanced(ImageEnhance.Sharpness), 1, 0.01),
    "GaussianBlur": (blurred, 20, 1),
    "GaussianBlurRand": (blurred, 20, 1),
    # At the border Pillow repeats pixels, which here are mixed with the fill.
    "Rotate": (lambda image, value: image.rotate(value, Image.Resampling.BILINEAR, fillcolor=FILL), 255, 2.5),
    "ShearX": (lambda image, value: moved(image, (1, value, 0, 0, 1, 0)), 255, 2.5),
    "ShearY": (lambda image, value: moved(image, (1, 0, 0, value, 1, 0)), 255, 2.5),
    "TranslateXRel": (lambda image, value: moved(image, (1, 0, value * SIZE[1], 0, 1, 0)), 255, 1.5),
    "TranslateYRel": (lambda image, value: moved(image, (1, 0, 0, 0, 1, value * SIZE[0])), 255, 1.5),
}


@pytest.mark.parametrize("config", ["rand-m9-n1-p1-mstd3-inc1", "rand-m5-n1-p1-mstd3", "rand-m6-n1-p1-mstd3-t3a", "3a"])
def test_operations_are_pillows_with_timms_parameters(config):
    augment, picture = TimmAugment(config, fill=FILL), smooth_picture()
    rows, drawn = augment.draw(uniform, COUNT, NHWC)[:200], augment.drawn(uniform, COUNT, NHWC)
    operation, magnitude = drawn["operation"][:200], drawn["magnitude"][:200]
    results = augment.apply(np.repeat(picture[None], len(rows), axis=0), rows)
    for result, (place,), (value,) in zip(results, operation, magnitude.tolist(), strict=True):
        name = TIMM_OPERATIONS[place]
        change, largest, mean = PILLOW[name.removesuffix("Increasing").removesuffix("Original")]
        away = np.abs(np.asarray(change(Image.fromarray(picture), value)).astype(int) - result)
        assert away.max() <= largest, (name, value)
        assert away.mean() <= mean, (name, value)
        if largest == 255:
            assert np.mean(away > 1) < 0.04, (name, value)  # the border


@pytest.mark.parametrize(
    ("config", "name", "values"),  # at magnitudes 0, 5 and 10
    [
        ("rand", "Rotate", [{0}, {-15, 15}, {-30, 30}]),
        ("rand", "ShearX", [{0}, {-0.15, 0.15}, {-0.3, 0.3}]),
        ("rand", "TranslateYRel", [{0}, {-0.225, 0.225}, {-0.45, 0.45}]),
        ("rand", "Posterize", [{0}, {2}, {4}]),
        ("rand-inc1", "PosterizeIncreasing", [{4}, {2}, {0}]),
        ("rand", "Solarize", [{0}, {128}, {256}]),
        ("rand-inc1", "SolarizeIncreasing", [{256}, {128}, {0}]),
        ("rand-inc0", "SolarizeAdd", [{0}, {55}, {110}]),
        ("rand", "Color", [{0.1}, {1}, {1.9}]),
        ("rand-inc1", "SharpnessIncreasing", [{1}, {0.55, 1.45}, {0.1, 1.9}]),
        ("rand-t3a", "Desaturate", [{0.5}, {0.25}, {0}]),
        ("rand-t3a", "GaussianBlur", [{0.1}, {1.05}, {2}]),
    ],
)
def test_parameters_follow_from_magnitudes_as_in_timm(config, name, values):
    for m, expected in zip((0, 5, 10), values, strict=True):
        drawn = TimmAugment(f"{config}-m{m}-n1-p1").drawn(uniform, COUNT, NHWC)
        magnitude = drawn["magnitude"][drawn["operation"] == TIMM_OPERATIONS.index(name)]
        assert np.unique(magnitude.round(9)).tolist() == pytest.approx(sorted(expected))


def test_magnitudes_are_normal_or_uniform_and_cut_off():
    def turns(config):
        drawn = TimmAugment(config).drawn(uniform, COUNT, NHWC)
        chosen = drawn["magnitude"][drawn["operation"] == TIMM_OPERATIONS.index("Rotate")]
        assert 0.45 < (chosen < 0).mean() < 0.55
        return np.abs(chosen) / 3

    normal = turns("rand-m5-n3-p1-mstd1")
    assert abs(normal.mean() - 5) < 0.06
    assert abs(normal.std() - 1) < 0.04
    assert np.quantile((normal - 5), [0.1587, 0.8413, 0.9772]) == pytest.approx([-1, 1, 2], abs=0.12)
    assert turns("rand-m9-n3-p1-mstd3").max() == pytest.approx(10)
    assert 17 < turns("rand-m15-n3-p1-mstd3-mmax18").max() <= 18 + 1e-9
    for config in ("rand-m8-n3-p1-mstd101", "rand-m8-n3-p1-mstdinf"):
        spread = turns(config)
        assert np.histogram(spread, 4, (0, 8))[0].min() > 0.22 * len(spread)
    assert np.unique(turns("rand-m7-n3-p1").round(9)).tolist() == [7]


def test_operations_are_as_likely_as_asked():
    place = TimmAugment("rand-n3-p0.3-inc1").drawn(uniform, COUNT, NHWC)["operation"]
    assert abs((place == 0).mean() - 0.7) < 0.01
    times = np.bincount(place[place > 0])
    assert len(times[times > 0]) == 15
    assert np.abs(times[times > 0] / (0.3 * place.size / 15) - 1).max() < 0.15
    assert (TimmAugment("rand-p0").draw(uniform, COUNT, NHWC) == 0).all()


def test_weighted_operations_are_picked_without_replacement():
    drawn = TimmAugment("rand-n2-p1-t3aw").drawn(uniform, COUNT, NHWC)["operation"]
    assert (drawn[:, 0] != drawn[:, 1]).all()
    plan = _planned("rand-n2-p1-t3aw")
    names, weights = plan.choices[:, 0, 0].astype(int), plan.weights / plan.weights.sum()
    generator = np.random.default_rng(0)
    peers = np.stack([generator.choice(names, 2, replace=False, p=weights) for _ in range(COUNT)])
    for column in range(2):
        ours, theirs = (np.bincount(picked[:, column], minlength=len(TIMM_OPERATIONS)) for picked in (drawn, peers))
        assert np.abs(ours - theirs).max() < 6 * np.sqrt(COUNT / 8)


def test_a_mixture_has_timms_chains_and_shares():
    augment = TimmAugment("augmix-m5-w4-d2-mstd0")
    rows, drawn = augment.draw(uniform, COUNT, NHWC), augment.drawn(uniform, COUNT, NHWC)
    assert rows.shape[1] == augment.num_rows == 3 + 4 * 3
    assert drawn["share"].shape == (COUNT, 5)
    assert drawn["share"].mean(axis=0) == pytest.approx([0.5, *[0.125] * 4], abs=0.01)
    added = rows[..., KIND] == ADD
    weights = np.where(added, rows[..., PARAMETERS], 0)
    assert (weights.sum(axis=1) == ONE).all()
    assert (drawn["operation"] > 0).all()
    shift = np.abs(drawn["magnitude"][drawn["operation"] == TIMM_OPERATIONS.index("TranslateXRel")])
    assert np.unique(shift.round(9)).tolist() == [0.15]  # AugMix moves by up to 0.3, others by up to 0.45
    short = TimmAugment("augmix").drawn(uniform, COUNT, NHWC)["operation"].reshape(COUNT, 3, 3)
    assert (np.diff((short > 0).astype(int), axis=2) <= 0).all()
    assert np.bincount((short > 0).sum(axis=2).ravel())[1:] / (3 * COUNT) == pytest.approx([1 / 3] * 3, abs=0.02)


@pytest.mark.parametrize("config", POLICIES)
def test_policies_are_timms(config):
    timm = pytest.importorskip("timm.data.auto_augment")
    make = {"rand": timm.rand_augment_transform, "augm": timm.augment_and_mix_transform}
    theirs = make.get(config[:4], timm.auto_augment_transform)(config, {"img_mean": (124, 116, 104)})
    plan = _planned(config)
    listed = getattr(theirs, "policy", None) or [[step] for step in theirs.ops]

    def known(name, probability, magnitude):
        return name, probability, magnitude if name not in {"AutoContrast", "Equalize", "Invert"} else 0

    expected = [[known(step.name, step.prob, step.magnitude) for step in steps] for steps in listed]
    ours = [[known(TIMM_OPERATIONS[int(place)], *given) for place, *given in steps] for steps in plan.choices]
    assert sorted(ours) == sorted(expected)
    first = listed[0][0]
    assert (first.magnitude_std, first.magnitude_max or 10) == (plan.std, plan.most)
    weights = getattr(theirs, "choice_weights", None)
    assert (weights is None) == (plan.weights is None)
    if weights is not None:
        by_name = dict(zip((step.name for step in theirs.ops), weights, strict=True))
        for (step,), weight in zip(ours, plan.weights / plan.weights.sum(), strict=True):
            assert by_name[step[0]] == pytest.approx(weight)


@pytest.mark.parametrize("config", POLICIES)
def test_rows_have_the_kinds_and_the_number_that_are_declared(config):
    augment = TimmAugment(config, "nearest")
    rows = augment.draw(uniform, COUNT, NHWC)
    assert rows.shape[1] == augment.num_rows
    assert set(np.unique(rows[..., KIND])) - {KEEP} <= augment.kinds
    again = TimmAugment(config, "nearest").draw(lambda count: uniform(augment.num_numbers)[:, :count], COUNT, NHWC)
    assert np.array_equal(rows, again)


def test_masks_follow_the_moves_alone():
    augment = TimmAugment("rand-m9-n3-p1-inc1")
    assert augment.moves is Moves.FREELY
    follower = augment.follower("nearest", (0,))
    rows, moves = augment.draw(uniform, COUNT, NHWC), follower.draw(uniform, COUNT, NHWC)
    is_warp = np.isin(rows[..., KIND], list(TimmAugment("rand-m9").follower("bilinear", (0,)).kinds))
    assert np.array_equal(moves[..., KIND] > 0, is_warp)
    assert np.array_equal(moves[is_warp][:, PARAMETERS + 2 :], rows[is_warp][:, PARAMETERS + 2 :])
    assert TimmAugment("3a").moves is Moves.NOTHING
    assert TimmAugment("augmix").moves is Moves.UNKNOWN


@pytest.mark.parametrize("config", ["3a", "rand-t3a-p1"])
def test_small_images_are_blurred_too(config):
    augment, state = TimmAugment(config), State(True, torch.device("cpu"), (1, 3, 3), np.dtype("uint8"))
    images = np.random.default_rng(0).integers(0, 256, (50, 1, 3, 3), np.uint8)
    assert augment.apply(images.copy(), augment.draw(uniform, COUNT, state)[:50]).shape == images.shape


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("rand-m9-q3", "'q3' in 'rand-m9-q3' .*'rand'; .* m10, n2, p0.5, mstd0.0, mmax10, inc0, t"),
        ("augmix-n2", "'n2' in.* m3, w3, d-1, a1.0, b0, mstdinf"),
        ("v0-m3", "'m3' in 'v0-m3'.*'v0'.* mstd0.0"),
        ("rand-mx", "'mx' in"),
        ("rand-m", "'m' in"),
        ("rand-", "'' in"),
        ("rand-w0", "'w0' in"),
        ("random", "'random'.*augmix"),
        ("rand-n0", "n is 0"),
        ("rand-p2", "p is 2"),
        ("rand-tfoo", "t is 'foo'.*'3aw'.*'weights'"),
        ("rand-mstdnan", "mstd"),
        ("rand-n15-t3aw", "n is 15; .*14"),
        ("rand-mmax0", "mmax is 0"),
        ("augmix-w0", "w is 0"),
        ("augmix-d0", "d is 0"),
        ("augmix-a0", "a is 0"),
    ],
)
def test_an_option_that_is_unknown_or_out_of_range_is_named(config, words):
    with pytest.raises(OptionError, match=f"TimmAugment: .*{words}"):
        TimmAugment(config)
