from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._batch.step_rows import STEP_COLUMNS
from gpubeton.pipeline import State
from gpubeton.transforms import RandAugment, TrivialAugmentWide
from gpubeton.transforms.policies import RAND_AUGMENT, TRIVIAL_AUGMENT_WIDE, magnitudes, policy_rows
from tests.reference.augment import GOLDEN, IMAGE, nearly_a_tie
from tests.transforms.random_numbers import numbers

SIZE = 24, 32
IMAGES = np.stack([np.roll(IMAGE, shift, axis=1) for shift in range(12)])
NHWC = State(True, torch.device("cpu"), (*SIZE, 3), np.dtype("uint8"))
SPACES = {"RandAugment": RAND_AUGMENT, "TrivialAugmentWide": TRIVIAL_AUGMENT_WIDE}
MADE = [name for name in GOLDEN if name.split()[0] in SPACES and name[-1] in "+-"]


@pytest.mark.parametrize("policy", SPACES)
def test_operations_and_their_magnitudes_are_torchvisions(policy):
    names = [name.split()[2] for name in GOLDEN if name.startswith(f"{policy} 30 ") and name[-1] not in "+-"]
    assert [name for name, *_ in SPACES[policy]] == names
    signed = [
        name.split()[2] for name in MADE if name.startswith(policy) and name.split()[1] != "30" and name[-1] == "-"
    ]
    assert [name for name, *_, both in SPACES[policy] if both] == signed
    for (name, *_), ours in zip(SPACES[policy], magnitudes(SPACES[policy], 31, SIZE)[..., 0], strict=True):
        theirs = GOLDEN[f"{policy} 30 {name}"]
        if name == "Posterize":
            assert np.rint(ours).tolist() == theirs.tolist()
        elif len(theirs):
            assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-6)
        else:
            assert not ours.any()
        if name.startswith("Translate"):
            # The middle one of torchvision's 31 from 0 to 32 is 15.999999, and moves an image by 15 pixels; ours by 16.
            assert np.trunc(ours).tolist() == np.trunc(theirs + 1e-5).tolist()


@pytest.mark.parametrize("name", MADE)
def test_an_operation_gives_the_image_of_torchvision(name):
    policy, place, operation, sign = name.split()
    which = [name for name, *_ in SPACES[policy]].index(operation)
    rows = policy_rows(SPACES[policy], 31, SIZE, "nearest", (1, 2, 3))[which, int(place), int(sign == "-")]
    result = RandAugment(1).apply(IMAGE[None].copy(), rows[None, None])[0]
    apart = np.abs(result.astype(int) - GOLDEN[name])
    if operation.startswith(("Shear", "Rotate")):
        assert not apart[~nearly_a_tie(rows[4:].view(np.int64), SIZE)].any()
    elif operation in {"Brightness", "Color", "Contrast", "Sharpness", "AutoContrast"}:
        # A factor is rounded to 2**-15, and torchvision's sums to float32, before both are rounded down: they may
        # differ where the exact result is whole, which of ten levels times 1.9 is one.
        assert apart.max() <= 1
        assert np.count_nonzero(apart) <= 0.1 * apart.size
    else:
        assert not apart.any()


def test_a_policy_of_no_operations_changes_nothing():
    nothing = RandAugment(0)
    assert np.array_equal(nothing.apply(IMAGES.copy(), nothing.draw(numbers, 20_000, NHWC)[:12]), IMAGES)


def test_every_operation_and_both_signs_are_equally_likely():
    rows = RandAugment(2, 30).draw(numbers, 20_000, NHWC)
    assert rows.shape == (20_000, 2, STEP_COLUMNS)
    for row in np.split(rows, 2, axis=1):
        _, times = np.unique(row[:, 0], axis=0, return_counts=True)
        # Nine operations have two signs, five have one.
        assert len(times) == 9 * 2 + 5
        assert abs(np.sort(times)[:18] * 28 / 20_000 - 1).max() < 0.15
        assert abs(np.sort(times)[18:] * 14 / 20_000 - 1).max() < 0.15


def test_every_magnitude_of_a_trivial_augment_is_equally_likely():
    rows = TrivialAugmentWide(5).draw(numbers, 20_000, NHWC)
    unique, times = np.unique(rows[:, 0], axis=0, return_counts=True)
    # Nine with four magnitudes of either sign; posterize and solarize with five; two with none; and what changes
    # nothing.
    assert len(unique) == 9 * 8 + 2 * 5 + 2 + 1
    # 143 times each, give or take 12.
    assert (abs(np.sort(times)[:72] - 20_000 / 140) < 5 * 12).all()
