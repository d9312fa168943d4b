from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._batch.step_rows import BLUR, INVERT, KEEP, KIND, SATURATION, SHIFT, SOLARIZE, TURN
from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline import State
from gpubeton.transforms import (
    AugMix,
    Cutout,
    ImageMixup,
    RandomApply,
    RandomAutocontrast,
    RandomChoice,
    RandomCrop,
    RandomErasing,
    RandomGaussianBlur,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomInvert,
    RandomOrder,
    RandomRotation,
    RandomSolarization,
    RandomTranslate,
    RandomVerticalFlip,
    ThreeAugment,
)
from gpubeton.transforms.transform import Moves

COUNT, SHAPE = 6000, (20, 24, 3)
NHWC = State(True, torch.device("cpu"), SHAPE, np.dtype("uint8"))
IMAGES = np.random.default_rng(0).integers(0, 256, (60, *SHAPE), np.uint8)
FEW = np.arange(60)


def uniform(count, rows=None):
    numbers = np.random.default_rng(1).random((COUNT, 200))[:, :count]
    return numbers if rows is None else numbers[rows]


def few(count, rows=None):
    return uniform(count, FEW if rows is None else FEW[rows])


def applied(operation, draw=None):
    return operation.apply(IMAGES.copy(), operation.draw(few, 60, NHWC) if draw is None else draw)


def one_by_one(combination, numbers, images):
    """Images after the operations with these numbers, each with the draws that it has in the combination."""
    for number in numbers:
        numbers_of = combination.numbers_of(number, few, FEW)
        rows = combination.transforms[number].draw_rows(numbers_of, len(FEW), NHWC)
        images = combination.apply(images.copy(), rows)
    return images


def test_all_or_none_are_applied():
    both = RandomApply([RandomInvert(0.5), RandomTranslate(4, 9), RandomGaussianBlur(19, 2.0, p=1)], 0.3)
    is_applied = both.drawn(uniform, COUNT, NHWC)["applied"]
    assert abs(is_applied.mean() - 0.3) < 0.02
    expected = np.where(is_applied[:60, None, None, None], one_by_one(both, range(3), IMAGES), IMAGES)
    assert np.array_equal(applied(both), expected)


def test_one_is_chosen():
    choice = RandomChoice([RandomInvert(1), Cutout(5), RandomGaussianBlur(19, 2.0, p=1)], [1, 2, 1])
    chosen = choice.drawn(uniform, COUNT, NHWC)["choice"]
    assert abs(np.bincount(chosen) / COUNT - [0.25, 0.5, 0.25]).max() < 0.02
    every = np.stack([one_by_one(choice, [number], IMAGES) for number in range(3)])
    assert np.array_equal(applied(choice), every[chosen[:60], np.arange(60)])
    assert np.bincount(RandomChoice([RandomInvert(1)] * 3).drawn(uniform, COUNT, NHWC)["choice"]).min() > 1900


def test_every_order_is_equally_likely_and_carried_out():
    steps = [RandomSolarization(90, 1), RandomGaussianBlur(19, 2.0, p=1), RandomRotation(30), RandomErasing(1, value=7)]
    random = RandomOrder(steps)
    order = random.drawn(uniform, COUNT, NHWC)["order"]
    _, times = np.unique(order, axis=0, return_counts=True)
    assert len(times) == 24
    assert abs(times * 24 / COUNT - 1).max() < 0.3
    result = applied(random)
    for number in range(60):
        assert np.array_equal(result[number], one_by_one(random, order[number], IMAGES)[number])


def test_operations_have_separate_random_numbers_also_inside_of_each_other():
    inner = RandomChoice([RandomInvert(0.5), RandomInvert(0.5)])
    outer = RandomApply([RandomInvert(0.5), RandomErasing(0.5), inner, RandomInvert(0.5)], 1)
    drawn = outer.drawn(uniform, COUNT, NHWC)
    flags = np.stack([drawn[name] for name in ("0", "2.0", "2.1", "3")] + [drawn["2.choice"]]).astype(float)
    apart = np.corrcoef(flags) - np.eye(5)
    assert np.abs(apart).max() < 0.05
    rows = outer.draw(uniform, COUNT, NHWC)
    assert rows.shape[1] == outer.num_rows == 4
    assert np.array_equal(rows[:, 0, KIND] == INVERT, drawn["0"])
    assert np.array_equal(rows[:, 2, KIND] == INVERT, np.where(drawn["2.choice"], drawn["2.1"], drawn["2.0"]))


@pytest.mark.parametrize("make", [RandomOrder, RandomApply, RandomChoice])
def test_followers_move_alike_and_change_nothing_else(make):
    whole = make([RandomInvert(1), RandomTranslate(3, 9), RandomVerticalFlip(0.5), Cutout(4), RandomHorizontalFlip()])
    mask = whole.follower("nearest", (9,))
    mask.check_state(State(True, "cpu", (20, 24, 1), np.dtype("uint16")))
    rows = whole.draw(few, 60, NHWC)
    is_move = np.isin(rows[..., KIND], (TURN, SHIFT))
    assert is_move.any()
    assert not is_move.all()
    assert np.array_equal(mask.draw(few, 60, NHWC), np.where(is_move[..., None], rows, 0))


def test_moves_are_those_of_the_freest():
    still, along = RandomInvert(), RandomHorizontalFlip()
    assert RandomApply([still]).moves is Moves.NOTHING
    assert RandomOrder([still, along]).moves is Moves.ALONG_AXES
    assert RandomChoice([along, RandomRotation(3)]).moves is Moves.FREELY
    assert RandomChoice([RandomRotation(3), AugMix()]).moves is Moves.UNKNOWN


def test_three_augment_is_one_of_three():
    three = ThreeAugment()
    kinds = three.draw(uniform, COUNT, NHWC)[:, 0, KIND]
    assert three.num_rows == 1
    values, times = np.unique(kinds, return_counts=True)
    assert values.tolist() == [KEEP, SATURATION, SOLARIZE, BLUR]
    # A blur of less than 0.2 pixels changes no level.
    assert 0 < times[0] / COUNT < 0.05 / 1.9
    assert abs(np.append(times[1:3], times[0] + times[3]) * 3 / COUNT - 1).max() < 0.06
    assert repr(three) == "ThreeAugment()"


@pytest.mark.parametrize("operation", [RandomCrop(8), ImageMixup(1, False), RandomErasing(value="random"), "flip"])
def test_operations_that_are_no_steps_are_refused(operation):
    with pytest.raises(OptionError, match=r"RandomOrder: .* cannot be carried out at random; expected"):
        RandomOrder([operation])
    with pytest.raises(OptionError, match=r"For mixup or CutMix: ImageMixupOrCutMix$"):
        RandomChoice([ImageMixup(1, False)])


def test_arguments_out_of_range_are_refused():
    with pytest.raises(OptionError, match="transforms are empty"):
        RandomApply([])
    for p in ([1], [0, 0], [1, -1]):
        with pytest.raises(OptionError, match="RandomChoice: p is"):
            RandomChoice([RandomInvert(), RandomAutocontrast()], p)
    with pytest.raises(PipelineError, match="RandomGrayscale works on RGB"):
        RandomApply([RandomInvert(), RandomGrayscale()]).check_state(State(True, "cpu", (9, 9, 1), np.dtype("uint8")))
