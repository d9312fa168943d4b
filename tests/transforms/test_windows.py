from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.pipeline import State
from gpubeton.transforms import CornerCrop, Pad, RandomCrop, RandomTranslate
from tests.apply import LAYOUTS, apply, as_nhwc_array, in_layout
from tests.transforms.random_numbers import numbers

IMAGES = np.random.default_rng(0).integers(1, 256, (4, 6, 9, 3), np.uint8)
NHWC = State(True, torch.device("cpu"), (6, 9, 3), np.dtype("uint8"))
NCHW = State(False, torch.device("cpu"), (3, 6, 9), torch.uint8)


def padded(images, left, top, right, bottom, fill):
    expected = np.empty((len(images), images.shape[1] + top + bottom, images.shape[2] + left + right, 3), np.uint8)
    expected[:] = fill
    expected[:, top : top + images.shape[1], left : left + images.shape[2]] = images
    return expected


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("padding", "sides"), [(2, (2, 2, 2, 2)), ((3, 1), (3, 1, 3, 1)), ((1, 2, 0, 3), (1, 2, 0, 3)), (0, (0, 0, 0, 0))]
)
def test_padding_is_added_on_the_sides_of_torchvision(padding, sides, layout):
    result = Pad(padding, (7, 8, 9)).apply(in_layout(IMAGES, layout))
    assert np.array_equal(as_nhwc_array(result, layout), padded(IMAGES, *sides, (7, 8, 9)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_crop_is_a_window_of_the_padded_image(layout):
    corners = np.array([[-2, -2], [1, 4], [-1, 3], [0, 0]])
    wide = padded(IMAGES, 2, 2, 2, 2, (7, 8, 9))
    expected = [image[y + 2 : y + 9, x + 2 : x + 9] for image, (y, x) in zip(wide, corners, strict=True)]
    result = RandomCrop(7, 2, (7, 8, 9)).apply(in_layout(IMAGES, layout), corners)
    assert np.array_equal(as_nhwc_array(result, layout), np.stack(expected))


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("operation", [RandomCrop(7, 2), CornerCrop((4, 6)), Pad((1, 2, 0, 3))])
def test_contiguous_images_with_channels_first_stay_contiguous(operation, channels):
    images = np.random.default_rng(0).integers(1, 256, (4, 6, 9, channels), np.uint8)
    first = torch.from_numpy(images).permute(0, 3, 1, 2)
    draw = operation.draw(lambda count, _rows=None: np.full((4, count), 0.3), 4, NHWC)
    result = operation.apply(first.contiguous(), draw)
    assert result.is_contiguous()
    last = operation.apply(first, draw)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(result, last)


def test_windows_as_wide_as_there_are_channels_keep_their_memory_layout():
    # In shape (N, 3, H, 3), only the strides show which axis holds the channels.
    corners, first = np.zeros((4, 2), int), torch.from_numpy(IMAGES).permute(0, 3, 1, 2)
    for batch in (first, first.contiguous()):
        twice = Pad((1, 0)).apply(RandomCrop(3).apply(batch, corners))
        assert torch.equal(twice[..., 1:-1], first[:, :, :3, :3])


def test_a_window_outside_the_image_is_all_padding():
    result = RandomCrop(2, 50, (7, 8, 9)).apply(IMAGES, np.array([[-50, 0], [0, -50], [40, 0], [0, 40]]))
    assert (result == [7, 8, 9]).all()


def test_every_place_of_a_crop_is_equally_likely():
    corners = RandomCrop(7, 2).draw(numbers, 20_000, NHWC)
    places, times = np.unique(corners, axis=0, return_counts=True)
    assert len(places) == (6 + 4 - 7 + 1) * (9 + 4 - 7 + 1)
    assert (corners.min(axis=0).tolist(), corners.max(axis=0).tolist()) == ([-2, -2], [1, 4])
    assert abs(times * 28 / 20_000 - 1).max() < 0.2
    assert np.array_equal(RandomCrop(7, 2).draw(numbers, 20_000, NCHW), corners)


def test_the_five_places_of_a_corner_crop_are_torchvisions_and_equally_likely():
    corners = CornerCrop((3, 4)).draw(numbers, 20_000, NHWC)
    places, times = np.unique(corners, axis=0, return_counts=True)
    # The middle ones of three rows and five columns to spare are 1.5 and 2.5: Python rounds both to 2.
    assert places.tolist() == [[0, 0], [0, 5], [2, 2], [3, 0], [3, 5]]
    assert abs(times / 4_000 - 1).max() < 0.05


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (RandomCrop((8, 5)), "window of 8 x 5 does not fit into images of 6 x 9; take"),
        (RandomCrop(12, 1), "window of 12 x 12 does not fit into images of 6 x 9 with a padding of 1"),
        (CornerCrop(7), "window of 7 x 7 does not fit into images of 6 x 9"),
        (RandomCrop(3, 1, (-0.5, 0, 0)), "levels from 0 to 255"),
        (Pad(1, (256, 0, 0)), "levels from 0 to 255"),
    ],
)
def test_windows_that_do_not_fit_are_refused(operation, message):
    with pytest.raises(PipelineError, match=message):
        operation.declare_state_and_memory(NHWC)


def test_a_crop_of_the_images_size_is_a_translate():
    crop, translate = RandomCrop((6, 9), 3, (4, 5, 6)), RandomTranslate(3, (4, 5, 6))
    assert np.array_equal(*(apply([operation], IMAGES.copy(), seed=7) for operation in (crop, translate)))
