from __future__ import annotations

import numpy as np
import pytest

from tests.cpu.making import draw_of, program_of
from tests.cpu.pictures import noise
from tests.kernels.host_build import FORWARD, ORDERS, needs_compiler
from tests.kernels.launching import DONE, MISSING, Pictures, launch_augment, write_canaries

pytestmark = needs_compiler

SIZES = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 2), (2, 9), (20, 31), (37, 64)]


def places(height, width):
    """Rows and bytes of a row that may be planted: the first row's first, the middle's, the last row's last."""
    size = min(8, 3 * width)
    middle = (3 * width - size) // 2
    return [
        (0, slice(0, size)),
        (height // 2, slice(middle, middle + size)),
        (height - 1, slice(3 * width - size, 3 * width)),
    ]


def status_of(pictures, images, nonce, order=FORWARD):
    program = program_of(3, 4)
    draws = [draw_of(program, (0, 0, *image.shape[:2])) for image in images]
    return launch_augment(program, pictures, draws, nonce=nonce, order=order).status


@pytest.mark.parametrize("order", ORDERS)
def test_three_places_are_planted_and_nothing_beside_them(order):
    images = [np.full((*size, 3), 0x77, np.uint8) for size in SIZES]
    pictures = Pictures(images, is_guarded=1)
    before = [memory.copy() for memory in pictures.memory]
    write_canaries(pictures, 5, order)
    for i, image in enumerate(images):
        planted = np.zeros((image.shape[0], 3 * image.shape[1]), bool)
        for row, columns in places(*image.shape[:2]):
            planted[row, columns] = True
        changed = pictures.pixels(i).reshape(planted.shape) != 0x77
        assert not changed[~planted].any()
        # One byte in 256 happens to be the same.
        assert changed[planted].mean() > 0.6
        pitch = int(pictures.table["pitch"][i])
        padding = np.ones(len(before[i]), bool).reshape(-1, pitch)
        padding[:, : 3 * image.shape[1]] = False
        assert np.array_equal(pictures.memory[i][padding.reshape(-1)], before[i][padding.reshape(-1)])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", SIZES)
def test_an_image_that_was_not_written_is_missing(size, order):
    images = [noise(*size)] * 3
    pictures = Pictures(images, is_guarded=1)
    write_canaries(pictures, 41, order)
    for i, image in enumerate(images):
        if i != 1:
            pictures.memory[i][:] = Pictures([image]).memory[0]
    assert status_of(pictures, images, 41, order) == [DONE, MISSING, DONE]


@pytest.mark.parametrize("place", range(3))
def test_an_image_of_which_one_place_was_not_written_is_missing(place):
    image = noise(20, 31)
    pictures = Pictures([image], is_guarded=1)
    write_canaries(pictures, 41)
    planted = pictures.pixels(0).reshape(20, -1)
    rows = pictures.memory[0].reshape(20, -1)
    rows[:, : 3 * 31] = image.reshape(20, -1)
    row, columns = places(20, 31)[place]
    rows[row, columns] = planted[row, columns]
    assert status_of(pictures, [image], 41) == [MISSING]
    rows[row, columns.stop - 1] ^= 1
    assert status_of(pictures, [image], 41) == [DONE]


def test_an_earlier_batchs_canary_is_no_canary():
    image = noise(9, 9)
    pictures = Pictures([image], is_guarded=1)
    write_canaries(pictures, 41)
    assert status_of(pictures, [image], 42) == [DONE]


def test_images_have_different_canaries():
    pictures = Pictures([np.zeros((4, 9, 3), np.uint8)] * 20, is_guarded=1)
    write_canaries(pictures, 1)
    first = {pictures.pixels(i).reshape(-1)[:8].tobytes() for i in range(20)}
    assert len(first) == 20


def test_images_without_guard_get_no_canary_and_are_not_checked():
    images = [np.zeros((4, 9, 3), np.uint8)] * 2
    pictures = Pictures(images, is_guarded=1)
    pictures.table["is_guarded"] = 0, 1
    write_canaries(pictures, 3)
    assert not pictures.pixels(0).any()
    assert pictures.pixels(1).any()
    assert status_of(pictures, images, 3) == [DONE, MISSING]
    pictures.table["is_guarded"] = 1, 0
    assert status_of(pictures, images, 3) == [DONE, DONE]


def test_no_more_images_are_planted_than_there_are():
    pictures = Pictures([np.zeros((4, 9, 3), np.uint8)] * 3, is_guarded=1)
    write_canaries(pictures, 3, count=2)
    assert pictures.pixels(1).any()
    assert not pictures.pixels(2).any()


def test_an_image_without_pixels_is_left_alone():
    pictures = Pictures([np.zeros((4, 9, 3), np.uint8)] * 2, is_guarded=1)
    before = [memory.copy() for memory in pictures.memory]
    pictures.table["height"][0], pictures.table["width"][1] = 0, -1
    write_canaries(pictures, 3)
    assert all(np.array_equal(*pair) for pair in zip(pictures.memory, before, strict=True))
