from __future__ import annotations

import numpy as np
import pytest

from gpubeton._batch.color_formulas import ONE
from gpubeton._gpu.launch import mix_images
from gpubeton.transforms import ImageMixup
from tests.kernels.host_build import ORDERS, needs_compiler
from tests.kernels.host_device import HostDevice, address, looked_up, placed, table_of_bits
from tests.reference.mixing import cutmix, mixup

pytestmark = needs_compiler

PARTNER, WEIGHT, TOP, LEFT, BOTTOM, RIGHT = range(6)  # columns of a row of mixes

SIZES = [(20, 32), (7, 9), (3, 4), (61, 101), (1, 1), (1, 5)]
IDENTITY = np.repeat(np.arange(256, dtype=np.uint32)[:, None], 3, axis=1)


def random_mixes(generator, count, size):
    """Any partners, weights and boxes; every third box is the whole image, and one is empty."""
    mixes = np.zeros((count, 6), np.int32)
    mixes[:, PARTNER] = generator.integers(0, count, count)
    mixes[:, WEIGHT] = generator.integers(0, ONE + 1, count)
    corners = np.sort(generator.integers(0, np.array(size) + 1, (count, 2, 2)), axis=1)
    mixes[:, TOP:] = corners.reshape(count, 4)
    mixes[::3, TOP:] = 0, 0, *size
    mixes[1, BOTTOM] = mixes[1, TOP]
    return mixes


def run(images, mixes, table=IDENTITY, item_size=1, device=None, *, shift=0, out_shift=0):
    device = HostDevice() if device is None else device
    levels, rows, table = placed(images, shift), placed(mixes), placed(table)
    dtype = {1: np.uint8, 2: np.uint16, 4: np.uint32}[item_size]
    out = placed(np.full(images.shape, 0xAB, dtype), out_shift * item_size)
    arguments = address(levels), address(rows), address(table), item_size, address(out)
    mix_images(device, images.shape[:3], *arguments, "stream")
    assert np.array_equal(levels, images)
    return out


def on_cpu(images, mixes):
    return ImageMixup(1.0, False).apply(images.copy(), mixes)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("item_size", [1, 2, 4])
@pytest.mark.parametrize("size", SIZES)
def test_the_kernel_writes_the_bits_of_the_cpu(size, item_size, order):
    generator = np.random.default_rng(item_size)
    images, mixes = generator.integers(0, 256, (13, *size, 3), np.uint8), random_mixes(generator, 13, size)
    table = table_of_bits(item_size)
    result = run(images, mixes, table, item_size, HostDevice(order, seed=5))
    assert np.array_equal(result, looked_up(on_cpu(images, mixes), table, item_size))


def test_mixup_is_the_exact_mean_rounded_down():
    generator = np.random.default_rng(0)
    images, mixes = generator.integers(0, 256, (5, 20, 32, 3), np.uint8), np.zeros((5, 6), np.int32)
    mixes[:, PARTNER] = np.roll(np.arange(5), 1)
    mixes[:, WEIGHT] = 0, 1, 12_345, ONE - 1, ONE
    mixes[:, [BOTTOM, RIGHT]] = 20, 32
    # In float64 this is exact: a share has 15 binary digits, a level 8.
    assert np.array_equal(run(images, mixes), np.floor(mixup(images.astype(float), mixes[:, WEIGHT] / ONE)))


def test_cutmix_pastes_the_box_of_the_partner():
    generator = np.random.default_rng(0)
    images, mixes = generator.integers(0, 256, (6, 21, 31, 3), np.uint8), random_mixes(generator, 6, (21, 31))
    mixes[:, PARTNER] = np.roll(np.arange(6), 1)
    mixes[:, WEIGHT] = 0
    assert np.array_equal(run(images, mixes), cutmix(images, mixes[:, TOP:].tolist()))


@pytest.mark.parametrize("item_size", [1, 2, 4])
@pytest.mark.parametrize(("shift", "out_shift"), [(3, 0), (0, 1), (5, 3)])
def test_memory_that_is_not_aligned_is_read_and_written(shift, out_shift, item_size):
    generator = np.random.default_rng(2)
    images, mixes = generator.integers(0, 256, (4, 20, 32, 3), np.uint8), random_mixes(generator, 4, (20, 32))
    table = table_of_bits(item_size)
    result = run(images, mixes, table, item_size, shift=shift, out_shift=out_shift)
    assert np.array_equal(result, looked_up(on_cpu(images, mixes), table, item_size))


@pytest.mark.parametrize("blocks", [3, 12, 120])
def test_any_number_of_blocks_does(blocks):
    generator = np.random.default_rng(3)
    images, mixes = generator.integers(0, 256, (3, 61, 101, 3), np.uint8), random_mixes(generator, 3, (61, 101))
    assert np.array_equal(run(images, mixes, device=HostDevice(blocks=blocks)), on_cpu(images, mixes))


def test_a_box_of_one_pixel_is_found_at_any_position():
    images = np.stack([np.zeros((5, 7, 3), np.uint8), np.full((5, 7, 3), 255, np.uint8)])
    for y in range(5):
        for x in range(7):
            mixes = np.array([[1, 0, y, x, y + 1, x + 1], [0, ONE, 0, 0, 5, 7]], np.int32)
            assert [place.tolist() for place in np.nonzero(run(images, mixes)[0].any(axis=2))] == [[y], [x]]


def test_a_batch_of_nothing_launches_nothing():
    device = HostDevice()
    assert len(run(np.zeros((0, 4, 4, 3), np.uint8), np.zeros((0, 6), np.int32), device=device)) == 0
    assert device.launched == []
