from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._batch.step_rows import KEEP, KIND, PARAMETERS
from gpubeton.errors import PipelineError
from gpubeton.pipeline import State
from gpubeton.transforms import RandomAffine, RandomPerspective, RandomRotation
from gpubeton.transforms.warps import affine_rows, warp_steps
from tests.apply import LAYOUTS, as_nhwc_array, in_layout
from tests.reference.augment import GOLDEN, IMAGE, nearly_a_tie
from tests.reference.warp import matrix, warped
from tests.transforms.random_numbers import numbers

SIZE = 13, 18
IMAGES = np.random.default_rng(0).integers(0, 256, (5, *SIZE, 3), np.uint8)
NHWC = State(True, torch.device("cpu"), (*SIZE, 3), np.dtype("uint8"))
FILL = 9, 200, 77
WARPS = [
    {"angle": 33.3},
    {"angle": -120.0, "translate": (2.5, -1.25), "scale": 0.6},
    {"shear": (20.0, -8.0), "scale": 1.7},
    {"shear": (16.0, 0.0), "center": (-9.0, -6.5)},
    {"translate": (-40.0, 3.0)},
]
IDENTITY = affine_rows(SIZE)[0]
ROWS = np.concatenate([affine_rows(SIZE, **warp) for warp in WARPS])


def operation(interpolation):
    return RandomRotation(30, interpolation, FILL)


def applied(interpolation, warps, layout="numpy", images=IMAGES):
    batch = in_layout(images, layout)
    assert operation(interpolation).apply(batch, warp_steps(interpolation, FILL, warps)) is batch
    return as_nhwc_array(batch, layout)


def warps_of(rows):
    """The warps in step rows; that of an image that stays changes nothing."""
    warps = rows[:, 0, PARAMETERS + 2 :].copy().view(np.int64)
    return np.where(rows[:, 0, :1] == KEEP, IDENTITY, warps)


@pytest.mark.parametrize("warp", WARPS)
def test_a_row_is_the_inverse_matrix_in_units_of_a_four_billionth(warp):
    # The inverse in float64 is good to some 2**-45 of numbers below 2**5.
    assert np.abs(affine_rows(SIZE, **warp)[0] / 2**32 - matrix(SIZE, **warp)[:2].ravel()).max() <= 2**-33 + 2**-40


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_bilinear_warp_is_the_exact_one_rounded(layout):
    result = applied("bilinear", ROWS, layout)
    for image, output, row in zip(IMAGES, result, ROWS, strict=True):
        place = np.vstack([row.reshape(2, 3) / 2**32, [0, 0, 1]])
        # Places are rounded by half of 2**-11, along which a level changes by at most 255, on two axes.
        assert np.abs(warped(image, place, "bilinear", FILL) - output).max() <= 0.5 + 2 * 255 * 2**-12


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_nearest_warp_takes_the_pixel_there(layout):
    result = applied("nearest", ROWS, layout)
    for image, output, row in zip(IMAGES, result, ROWS, strict=True):
        place = np.vstack([row.reshape(2, 3) / 2**32, [0, 0, 1]])
        assert np.array_equal(warped(image, place, "nearest", FILL), output)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_whole_turns_and_shifts_move_pixels_only(interpolation):
    square = IMAGES[:, :, :13]
    quarter = affine_rows((13, 13), angle=np.full(5, -90.0))
    assert np.array_equal(applied(interpolation, quarter, images=square), np.rot90(square, axes=(1, 2)))
    half = affine_rows(SIZE, angle=np.full(5, 180.0))
    assert np.array_equal(applied(interpolation, half), IMAGES[:, ::-1, ::-1])
    moved = applied(interpolation, affine_rows(SIZE, translate=(np.full(5, 3.0), -2.0)))
    assert np.array_equal(moved[:, :-2, 3:], IMAGES[:, 2:, :-3])
    assert (moved[:, -2:] == FILL).all()
    assert (moved[:, :, :3] == FILL).all()


@pytest.mark.parametrize("name", [name for name in GOLDEN if name.startswith(("rotate", "affine"))])
def test_warps_are_torchvisions(name):
    kind, interpolation = sorted(name.split(), key=lambda word: word not in {"affine", "rotate"})[:2]
    fill = (0, 0, 0)
    if kind == "rotate":
        fill = (0, 0, 0) if interpolation == "bilinear" else (1, 2, 3)
        rows = affine_rows(IMAGE.shape[:2], angle=-float(name.split()[2]))
    else:
        rows = affine_rows(IMAGE.shape[:2], -20.0, (3.0, -2.0), 1.3, (10.0, -5.0))
    batch = RandomRotation(0, interpolation).apply(IMAGE[None].copy(), warp_steps(interpolation, fill, rows))
    apart = np.abs(batch[0].astype(int) - GOLDEN[name])
    if interpolation == "nearest":
        assert not apart[~nearly_a_tie(rows[0], IMAGE.shape[:2])].any()
    else:
        # Values are as far apart as positions, half of 2**-11 on each of two axes: rounding rarely makes them differ.
        assert apart.max() <= 1
        assert np.count_nonzero(apart) <= 2 * 2 * 255 * 2**-12 * apart.size


def test_angles_are_drawn_as_asked_and_turn_counter_clockwise():
    rows = warps_of(RandomRotation((10, 40), p=0.3).draw(numbers, 20_000, NHWC))
    turned = (rows != IDENTITY).any(axis=1)
    assert abs(turned.mean() - 0.3) < 0.015
    angles = np.degrees(np.arctan2(-rows[turned, 1], rows[turned, 0]))
    assert 10 <= angles.min() < 10.1
    assert 39.9 < angles.max() <= 40
    assert np.histogram(angles, 4, (10, 40))[0].min() > 0.22 * turned.sum()
    assert RandomRotation(20).degrees == (-20, 20)
    clockwise = affine_rows(SIZE, angle=40.0)[0]
    assert np.degrees(np.arctan2(clockwise[1], clockwise[0])) == pytest.approx(40)


def test_an_affine_warp_is_drawn_as_asked():
    affine = RandomAffine((-10, 40), (0.5, 0.25), (0.5, 2), (-20, 10, 5, 30), p=0.9)
    rows = warps_of(affine.draw(numbers, 20_000, NHWC))
    stays = (rows == IDENTITY).all(axis=1)
    assert abs(stays.mean() - 0.1) < 0.01
    drawn = numbers(7)
    angle, scale = -10 + 50 * drawn[:, 1], 0.5 + 1.5 * drawn[:, 4]
    shift = np.rint((drawn[:, 2:4] * 2 - 1) * [0.5 * 18, 0.25 * 13])
    shear = np.stack([-20 + 30 * drawn[:, 5], 5 + 25 * drawn[:, 6]], axis=1)
    for number in np.flatnonzero(~stays)[:50]:
        expected = matrix(SIZE, angle[number], shift[number], scale[number], shear[number])
        assert np.abs(rows[number] / 2**32 - expected[:2].ravel()).max() <= 2**-33 + 2**-40
    assert not RandomAffine(0).draw(numbers, 20_000, NHWC).any()
    assert RandomAffine(0, shear=10).shear == (-10, 10, 0, 0)


def test_affine_warps_are_carried_out_with_their_fill_which_has_to_be_a_level():
    affine = RandomAffine(30, interpolation="bilinear", fill=FILL)
    assert affine.declare_state_and_memory(NHWC) == (NHWC, None)
    rows = affine.draw(numbers, 20_000, NHWC)[:5]
    assert np.array_equal(affine.apply(IMAGES.copy(), rows), applied("bilinear", warps_of(rows)))
    with pytest.raises(PipelineError, match="levels from 0 to 255"):
        RandomRotation(10, fill=(0, 256.0, 0)).declare_state_and_memory(NHWC)


def perspective(*shares, interpolation="bilinear", fill=(1, 2, 3)):
    """A perspective with given random numbers: x and y of four corners."""
    operation = RandomPerspective(0.5, 1, interpolation, fill)
    state = State(True, "cpu", IMAGE.shape, IMAGE.dtype)
    numbers = np.array([[0.0, *shares]])
    return operation, operation.draw(lambda _: numbers, 1, state), operation.drawn(lambda _: numbers, 1, state)[""]


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_a_perspective_is_torchvisions(interpolation):
    # 9 places along x, 7 along y; from the left and the top, and up to the right and the bottom.
    ends = np.array([[3, 2], [28, 5], [30, 20], [0, 17]])
    shares = ((ends - [[0, 0], [23, 0], [23, 17], [0, 17]] + 0.5) / [9, 7]).ravel()
    operation, rows, corners = perspective(*shares, interpolation=interpolation)
    assert corners.tolist() == [ends.tolist()]
    apart = np.abs(operation.apply(IMAGE[None].copy(), rows)[0].astype(int) - GOLDEN[f"perspective {interpolation}"])
    # torchvision's places are float32's, and it weighs the fill at the border twice.
    inside = np.zeros(IMAGE.shape[:2], bool)
    inside[6:16, 5:27] = True
    if interpolation == "nearest":
        assert np.count_nonzero(apart) <= 0.01 * apart.size
    else:
        assert apart[inside].max() <= 1
        assert np.count_nonzero(apart[inside]) <= 0.02 * apart[inside].size


@pytest.mark.parametrize("shape", [(4, 8193, 3), (8193, 4, 3)])
def test_images_that_are_too_large_for_a_perspective_are_refused(shape):
    state = State(True, torch.device("cpu"), shape, np.dtype("uint8"))
    with pytest.raises(PipelineError, match="at most 8,192 pixels along an axis"):
        RandomPerspective().declare_state_and_memory(state)
    largest = State(True, torch.device("cpu"), tuple(min(side, 8192) for side in shape), np.dtype("uint8"))
    assert RandomPerspective().declare_state_and_memory(largest)[0] == largest


def test_corners_are_drawn_as_torchvision_draws_them():
    operation = RandomPerspective(0.5, 0.3)

    def uniform(count, rows=None):
        return np.random.default_rng(3).random((20_000, count))

    drawn, rows = operation.drawn(uniform, 20_000, NHWC)[""], operation.draw(uniform, 20_000, NHWC)
    start = [[0, 0], [17, 0], [17, 12], [0, 12]]
    moved = (drawn != start).any(axis=(1, 2))
    assert abs(moved.mean() - 0.3) < 0.015
    assert np.array_equal(rows[:, 0, KIND] != KEEP, moved)
    # 18 x 13 pixels: corners move by up to 4 and 3 of them.
    distance = np.abs(drawn[moved] - start).reshape(-1, 2)
    for axis, most in enumerate((4, 3)):
        times = np.bincount(distance[:, axis])
        assert len(times) == most + 1
        assert abs(times * (most + 1) / times.sum() - 1).max() < 0.06
