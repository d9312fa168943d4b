from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.pipeline import State
from gpubeton.transforms import NormalizeImage, RandomErasing, ToTensor, ToTorchImage
from tests.apply import LAYOUTS, apply, as_nhwc_array, in_layout, state_after

IMAGES = np.random.default_rng(0).integers(1, 256, (4, 6, 8, 3), np.uint8)
NHWC = State(True, torch.device("cpu"), (60, 80, 3), np.dtype("uint8"))


def numbers(count, rows=None):
    result = np.random.default_rng(1).random((20_000, 32))[:, :count]
    return result if rows is None else result[rows]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_rectangle_is_painted_and_nothing_else(layout):
    boxes = np.array([[0, 0, 2, 3], [4, 6, 6, 8], [0, 0, 0, 0], [3, 0, 4, 8]])
    expected = IMAGES.copy()
    for image, (top, left, bottom, right) in zip(expected, boxes, strict=True):
        image[top:bottom, left:right] = [7, 8, 9]
    erased = RandomErasing(value=(7, 8, 9)).apply(in_layout(IMAGES, layout), boxes)
    assert np.array_equal(as_nhwc_array(erased, layout), expected)


def test_rectangles_happen_as_often_and_are_as_large_as_asked():
    boxes = RandomErasing(0.25, (0.1, 0.2), (0.5, 2)).draw(numbers, 20_000, NHWC)
    assert (boxes >= 0).all()
    assert (boxes[:, 2:] <= [60, 80]).all()
    painted = boxes[:, 2] > 0
    assert abs(painted.mean() - 0.25) < 0.01
    assert (boxes[~painted] == 0).all()
    height, width = (boxes[painted, 2:] - boxes[painted, :2]).T
    share = height * width / (60 * 80)
    # Sides are rounded to pixels: the shortest is of 15, half a pixel of which is a thirtieth.
    assert 0.1 * 29 / 31 < share.min() < 0.105
    assert 0.195 < share.max() < 0.2 * 32 / 30
    assert np.histogram(share, 4, (0.1, 0.2))[0].min() > 0.22 * painted.sum()
    ratio = np.log2(height / width)
    assert np.histogram(ratio, 4, (-1, 1))[0].min() > 0.22 * painted.sum()


def test_every_place_is_equally_likely():
    state = State(True, "cpu", (4, 5, 3), np.dtype("uint8"))
    corners = RandomErasing(1, (0.2, 0.2), (1, 1)).draw(numbers, 20_000, state)  # squares of 2 pixels
    assert (corners[:, 2:] - corners[:, :2] == 2).all()
    places, times = np.unique(corners[:, :2], axis=0, return_counts=True)
    assert len(places) == 3 * 4
    assert abs(times * 12 / 20_000 - 1).max() < 0.15


def test_a_rectangle_that_does_not_fit_is_drawn_again_and_at_last_given_up():
    boxes = RandomErasing(1, (0.3, 0.5), (0.5, 30)).draw(numbers, 20_000, NHWC)
    area, ratio = numbers(5)[:, 3:].T
    area, ratio = 60 * 80 * (0.3 + 0.2 * area), np.exp(np.log(0.5) + np.log(60) * ratio)
    sides = np.stack([np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))], axis=1)
    at_once = (sides < [60, 80]).all(axis=1)
    assert np.array_equal((boxes[:, 2:] - boxes[:, :2])[at_once], sides[at_once])
    assert ((boxes[:, 2:] - boxes[:, :2]) < [60, 80]).all()
    given_up = (boxes == 0).all(axis=1)
    assert abs(given_up.mean() - (1 - at_once.mean()) ** 10) < 0.004
    # Nothing of the whole image's size is smaller than it.
    assert not RandomErasing(1, (1, 1), (0.75, 0.75)).draw(numbers, 20_000, NHWC).any()


def test_values_that_do_not_fit_the_images_are_refused():
    for value in (-0.5, 256.0):
        with pytest.raises(PipelineError, match="levels from 0 to 255"):
            RandomErasing(value=value).declare_state_and_memory(NHWC)
    erasing = RandomErasing(value=0.5)
    erasing.declare_state_and_memory(State(False, "cpu", (3, 60, 80), torch.float32))
    halves = State(True, "cpu", (60, 80, 3), np.dtype("int16"))
    with pytest.raises(PipelineError, match=r"float16.*ToTorchImage"):
        erasing.declare_state_and_memory(halves)
    RandomErasing(value=0).declare_state_and_memory(halves)
    with pytest.raises(PipelineError, match=r"RandomErasing .*images"):
        erasing.declare_state_and_memory(State(True, "cpu", (1,), np.dtype("int64")))
    with pytest.raises(TypeError, match=r"rectangles: .*draw\(\)"):
        erasing.apply(IMAGES.copy())
    assert RandomErasing(1).generate_code()(IMAGES.copy(), None).shape == IMAGES.shape


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_noise_is_painted_on_the_rectangle_and_nothing_else(dtype, layout):
    erasing = RandomErasing(1, value="random")
    boxes = erasing.draw(numbers, 20_000, NHWC)[:4]
    assert np.array_equal(boxes[:, :4], RandomErasing(1).draw(numbers, 20_000, NHWC)[:4])
    images = np.full((4, 60, 80, 3), 9, dtype)
    batch = in_layout(images, layout)
    assert erasing.apply(batch, boxes) is batch
    result = as_nhwc_array(batch, layout)
    assert np.array_equal(result, erasing.apply(images, boxes))  # as on arrays
    for image, (top, left, bottom, right) in zip(result, boxes[:, :4], strict=True):
        noise = image[top:bottom, left:right].copy()
        assert len(np.unique(noise)) > noise.size / 4  # drawn for each pixel and channel; there are few halves
        image[top:bottom, left:right] = 9
        assert (image == 9).all()


def test_noise_is_a_function_of_seed_epoch_and_sample():
    samples, order = np.array([9, 4, 7, 1, 0, 3]), [3, 0, 5]
    images, noise = np.full((6, 60, 80, 3), 9, np.float32), [RandomErasing(1, value="random")]
    whole = apply(noise, images.copy(), seed=5, epoch=1, samples=samples)
    assert np.array_equal(apply(noise, images[order], seed=5, epoch=1, samples=samples[order]), whole[order])
    others = [apply(noise, images.copy(), seed=seed, epoch=epoch, samples=samples) for seed, epoch in ((5, 2), (6, 1))]
    noises = [image[image != 9][:8].tolist() for image in np.concatenate([whole, *others])]
    assert len(np.unique(noises, axis=0)) == 3 * 6


def test_noise_is_normally_distributed_and_uncorrelated():
    rows = np.array([[0, 0, 577, 577, *key] for key in ((3, 4), (4, 4))])  # an odd number of values
    images = RandomErasing(1, value="random").apply(np.zeros((2, 577, 577, 3), np.float32), rows)
    noise, other = images.reshape(2, -1)
    assert abs(noise.mean()) < 0.005
    for limit, share in ((0, 0.5), (1, 0.841345), (2, 0.977250), (3, 0.998650)):
        assert abs((noise < limit).mean() - share) < 0.002
        assert abs((noise > -limit).mean() - share) < 0.002
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.005
    assert abs(np.corrcoef(noise, other)[0, 1]) < 0.005


def test_noise_is_for_floating_point_images():
    noise = RandomErasing(1, value="random")
    for before in ([ToTensor()], []):
        with pytest.raises(PipelineError, match=r"'random'.*uint8.*NormalizeImage"):
            state_after([*before, noise], NHWC)
    halves = NormalizeImage(0, 1, np.float16)
    with pytest.raises(PipelineError, match=r"'random'.*int16.*ToTorchImage"):
        state_after([halves, noise], NHWC)
    assert state_after([halves, ToTensor(), ToTorchImage(), noise], NHWC).dtype is torch.float16
    with pytest.raises(TypeError, match=r"noise.* color"):
        noise.color  # noqa: B018  (asked for in vain)


def many(count, rows=None):
    result = np.random.default_rng(2).random((20_000, 80))[:, :count]
    return result if rows is None else result[rows]


def test_several_rectangles_share_the_area_and_are_as_many_as_drawn():
    erasing = RandomErasing(0.8, (0.1, 0.2), (0.5, 2), count=3)
    boxes = erasing.draw(many, 20_000, NHWC).reshape(-1, 3, 4)
    how_many = (boxes[..., 2] > 0).sum(axis=1)
    assert (np.diff((boxes[..., 2] > 0).astype(int), axis=1) <= 0).all()  # those that are empty come last
    assert np.abs(np.bincount(how_many) / 20_000 - np.array([0.2, *[0.8 / 3] * 3])).max() < 0.015
    share = (boxes[..., 2:] - boxes[..., :2]).prod(axis=2) / (60 * 80)
    for number in (1, 2, 3):
        shares = share[how_many == number, :number] * number
        assert abs(shares.mean() - 0.15) < 0.002
        assert abs(np.corrcoef(shares.T)).sum() < number * 1.1  # each is drawn for itself
    drawn = erasing.drawn(many, 20_000, NHWC)[""]
    assert np.array_equal(drawn[..., :2] + drawn[..., 2:], boxes[..., 2:])


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_random_color_is_normally_distributed_and_fills_its_rectangle(count, layout):
    images = np.zeros((200, 20, 30, 3), np.float32)
    erasing = RandomErasing(1, (0.1, 0.3), (1, 1), "random color", count)
    state = State(True, torch.device("cpu"), (20, 30, 3), np.dtype("float32"))
    draw = erasing.draw(lambda *given: many(*given)[:200], 200, state)
    erased = as_nhwc_array(erasing.apply(in_layout(images, layout), draw), layout)
    last = draw.reshape(200, count, 6)
    colors = []
    for image, boxes in zip(erased, last, strict=True):
        top, left, bottom, right = boxes[0, :4]
        if count == 1:
            assert len(np.unique(image[top:bottom, left:right].reshape(-1, 3), axis=0)) == 1
            colors.append(image[top, left])
        assert len(np.unique(image.reshape(-1, 3), axis=0)) <= 1 + count
    if count == 1:
        assert abs(np.mean(colors)) < 0.15
        assert abs(np.std(colors) - 1) < 0.1
