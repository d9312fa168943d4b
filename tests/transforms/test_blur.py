from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._batch.step_rows import KEEP, KIND, PARAMETERS, SHARPNESS, step_rows
from gpubeton.errors import PipelineError
from gpubeton.pipeline import State
from gpubeton.transforms import RandomAdjustSharpness, RandomGaussianBlur
from gpubeton.transforms.blur import bell_weights, blur_steps
from tests.apply import LAYOUTS, as_nhwc_array, in_layout
from tests.reference.augment import GOLDEN, IMAGE
from tests.reference.color import ONE
from tests.reference.warp import bell, blurred, sharpened
from tests.transforms.random_numbers import numbers

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 14, 17, 3), np.uint8)
IMAGES[3], IMAGES[4, 5:] = 255, 0
NHWC = State(True, torch.device("cpu"), (14, 17, 3), np.dtype("uint8"))
BLUR, SHARPEN = RandomGaussianBlur(5), RandomAdjustSharpness(2)


def sharpenings(factor, count=1):
    return step_rows(SHARPNESS, np.full((count, 1), factor, np.int32))


def applied(operation, rows, layout="numpy"):
    batch = in_layout(IMAGES, layout)
    assert operation.apply(batch, rows) is batch
    return as_nhwc_array(batch, layout)


@pytest.mark.parametrize(("size", "sigma"), [(1, 1.0), (3, 0.4), (9, 2.0), (23, 0.7), (23, 99.0)])
def test_weights_are_a_bell_to_half_a_unit_and_sum_to_one(size, sigma):
    (weights,) = bell_weights(np.array([sigma]), size)
    assert (weights.sum(), weights.dtype) == (ONE, np.int32)
    apart = np.abs(weights - bell(size, sigma) * ONE)
    # What rounding added to all others is taken from the one in the middle.
    assert np.delete(apart, size // 2).max(initial=0) <= 0.5
    assert apart[size // 2] <= size / 2


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [3, 5, 25])
def test_a_blur_is_the_exact_one_rounded(size, layout):
    sigmas = np.array([0.4, 1.0, 2.5, 6.0, 1.5])
    result = applied(BLUR, blur_steps(sigmas, size), layout)
    for image, output, weights in zip(IMAGES, result, bell_weights(sigmas, size), strict=True):
        # Rows are rounded to half of 2**-7 first, and their mean is no further off.
        assert np.abs(blurred(image, weights / ONE) - output).max() <= 0.5 + 2**-8


@pytest.mark.parametrize("name", [name for name in GOLDEN if name.startswith("blur")])
def test_blurs_are_torchvisions(name):
    _, size, sigma = name.split()
    if int(size) // 2 >= min(IMAGE.shape[:2]):
        return
    result = BLUR.apply(IMAGE[None].copy(), blur_steps(np.array([float(sigma)]), int(size)))[0]
    apart = np.abs(result.astype(int) - GOLDEN[name])
    # Both round a mean that ours has to 2**-8 and to what its weights are off: 2 axes, at most 2 * size * 2**-16.
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= apart.size * 2 * (2**-8 + 255 * 4 * int(size) * 2**-16)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("factor", [0, 1, 20_000, ONE - 1, ONE + 1, 3 * ONE + 7, 128 * ONE])
def test_sharpness_is_the_exact_one_rounded_down(factor, layout):
    result = applied(SHARPEN, sharpenings(factor, len(IMAGES)), layout)
    # Exact in float64: a factor has 15 binary digits, levels 8.
    assert np.array_equal(result, np.stack([np.floor(sharpened(image, factor / ONE)) for image in IMAGES]))


@pytest.mark.parametrize("name", [name for name in GOLDEN if name.startswith("sharpness")])
def test_sharpness_is_torchvisions(name):
    result = SHARPEN.apply(IMAGE[None].copy(), sharpenings(int(name.split()[1])))[0]
    assert np.array_equal(result, GOLDEN[name])


def test_images_are_blurred_as_often_and_as_much_as_asked():
    rows = RandomGaussianBlur(5, (0.5, 1.5), p=0.3).draw(numbers, 20_000, NHWC)
    reach, middle, beside = rows[:, 0, PARAMETERS : PARAMETERS + 3].T
    changed = rows[:, 0, KIND] != KEEP
    assert abs(changed.mean() - 0.3) < 0.015
    assert (reach[changed] == 2).all()
    # The neighbor's weight over the middle's is exp(-1 / (2 sigma**2)).
    sigma = (-0.5 / np.log(beside[changed] / middle[changed])) ** 0.5
    assert 0.499 < sigma.min() < 0.51
    assert 1.49 < sigma.max() < 1.501
    assert np.histogram(sigma, 4, (0.5, 1.5))[0].min() > 0.22 * changed.sum()
    sharper = RandomAdjustSharpness(1.5, p=0.3).draw(numbers, 20_000, NHWC)
    assert sorted(set(sharper[:, 0, PARAMETERS].tolist())) == [0, 1.5 * ONE]
    assert abs((sharper[:, 0, KIND] == SHARPNESS).mean() - 0.3) < 0.015


def test_a_kernel_that_reaches_beyond_the_image_is_refused():
    RandomGaussianBlur(27).declare_state_and_memory(NHWC)
    with pytest.raises(PipelineError, match=r"29 pixels .* 14 x 17; .* 27"):
        RandomGaussianBlur(29).declare_state_and_memory(NHWC)
