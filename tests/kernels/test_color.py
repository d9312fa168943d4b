from __future__ import annotations

import re

import numpy as np
import pytest

from gpubeton._batch.color_formulas import BRIGHTNESS, CONTRAST, HUE, MAX_FACTOR, ONE, SATURATION
from gpubeton._plan.draw_rows import DRAW_COLUMNS, PAINT_COLUMNS
from gpubeton._plan.program import MAX_COLOR_STEPS
from gpubeton.transforms import RandomBrightness
from tests.kernels.host_build import FORWARD, KERNELS, ORDERS, RANDOM, needs_compiler
from tests.kernels.host_device import looked_up, table_of_bits
from tests.kernels.launching import change_colors
from tests.reference.color import NEARLY, gray, step
from tests.reference.color import steps as reference_steps

pytestmark = needs_compiler

#: Whole loads and stores, odd ones, several blocks of an image, and a single pixel.
SIZES = [(20, 32), (7, 9), (3, 4), (91, 101), (140, 150), (1, 1)]


def random_steps(generator, count, num_steps=MAX_COLOR_STEPS):
    """Steps of all kinds and any factors; a fifth of them changes nothing."""
    kinds = generator.integers(0, 4, (count, num_steps))
    factors = (ONE * 2.0 ** generator.uniform(-3, 3, kinds.shape)).astype(int)
    factors = np.where(kinds == HUE, generator.integers(-ONE // 2, ONE // 2 + 1, kinds.shape), factors)
    factors = np.where(generator.random(kinds.shape) < 0.2, np.where(kinds == HUE, 0, ONE), factors)
    return np.stack([kinds, factors], axis=-1).reshape(count, 2 * num_steps).astype(np.int32)


def run(images, steps, table=None, item_size=1, *, order=FORWARD, seed=0, **more):
    """What the kernel writes for images (N, H, W, 3), and the sums that it made."""
    result = change_colors(images, steps, table, item_size, how={"order": order, "seed": seed}, **more)
    return result.out, result.sums


def on_cpu(images, steps):
    return RandomBrightness(0.5).apply(images.copy(), steps)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", SIZES)
def test_the_kernel_writes_the_bits_of_the_cpu(size, order):
    generator = np.random.default_rng(order)
    images = generator.integers(0, 256, (12, *size, 3), np.uint8)
    images[0], images[1] = 255, 0
    steps = random_steps(generator, 12)
    result, _ = run(images, steps, order=order, seed=3)
    assert np.array_equal(result, on_cpu(images, steps))


@pytest.mark.parametrize("item_size", [1, 2, 4])
@pytest.mark.parametrize("size", SIZES)
def test_levels_are_written_through_the_table(size, item_size):
    generator = np.random.default_rng(1)
    images, table = generator.integers(0, 256, (3, *size, 3), np.uint8), table_of_bits(item_size)
    steps = random_steps(generator, 3)
    result, _ = run(images, steps, table, item_size)
    assert np.array_equal(result, looked_up(on_cpu(images, steps), table, item_size))


@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_any_number_of_steps_is_carried_out(num_steps):
    generator = np.random.default_rng(2)
    images = generator.integers(0, 256, (5, 20, 32, 3), np.uint8)
    steps = random_steps(generator, 5, num_steps)
    assert np.array_equal(run(images, steps)[0], on_cpu(images, steps))


@pytest.mark.parametrize("kind", [BRIGHTNESS, CONTRAST, SATURATION])
@pytest.mark.parametrize("factor", [0, 1, 9_999, ONE - 1, ONE + 1, 3 * ONE, MAX_FACTOR * ONE])
def test_a_blend_is_the_exact_one_rounded_down(kind, factor):
    images = np.random.default_rng(3).integers(0, 256, (2, 20, 32, 3), np.uint8)
    images[1] = 255
    result, _ = run(images, np.array([[kind, factor]] * 2, np.int32))
    for image, output in zip(images, result, strict=True):
        exact = np.minimum(step(image, kind, factor / ONE), 255)
        assert (output <= exact + NEARLY).all()
        assert (output > exact - 1 - NEARLY).all()


def test_a_contrast_that_ends_a_hair_below_a_level_is_rounded_down():
    # Gray values 35, 67 and 202: 203 becomes 215.99998, and 216 if the mean's share were rounded towards 0.
    image = np.repeat(np.array([36, 68, 203], np.uint8), 3).reshape(1, 1, 3, 3)
    assert run(image, np.array([[CONTRAST, 36_958]], np.int32))[0][0, 0, :, 0].tolist() == [27, 63, 215]


def test_steps_together_are_those_of_the_float64_reference():
    generator = np.random.default_rng(4)
    images = generator.integers(0, 256, (20, 16, 16, 3), np.uint8)
    row = np.array([SATURATION, 40_000, CONTRAST, 25_000, BRIGHTNESS, 39_999, CONTRAST, 44_000], np.int32)
    result, _ = run(images, np.tile(row, (20, 1)))
    assert np.array_equal(result, [reference_steps(image, row) for image in images])


@pytest.mark.parametrize("turn", [-ONE // 2, -1, 1, 5_461, ONE // 2])
def test_a_turn_of_the_hue_is_torchvisions(turn):
    images = np.random.default_rng(5).integers(0, 256, (1, 64, 64, 3), np.uint8)
    exact = step(images[0], HUE, turn / ONE)
    result = run(images, np.array([[HUE, turn]], np.int32))[0][0]
    assert (result <= exact + 1e-4).all()  # see tests/transforms/test_color.py
    assert (result > exact - 1 - 1e-4).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [*SIZES, (300, 200)])
def test_sums_are_those_of_the_gray_values_before_each_contrast(size, order):
    generator = np.random.default_rng(6)
    images = generator.integers(0, 256, (4, *size, 3), np.uint8)
    first = [SATURATION, 50_000, CONTRAST, 20_000]
    steps = np.array([[*first, BRIGHTNESS, 20_000, CONTRAST, 40_000]] * 4, np.int32)
    steps[2, 3] = steps[3, 7] = ONE
    _, sums = run(images, steps, order=order, seed=1)
    for number, image in enumerate(images):
        before = on_cpu(image[None], np.array([first[:2]], np.int32))[0]
        then = on_cpu(image[None], steps[number : number + 1, :6])[0]
        # Where a contrast changes nothing, no image is read.
        expected = [0 if number == 2 else gray(before).sum(), 0 if number == 3 else gray(then).sum()]
        assert sums[number].tolist() == expected


def test_an_image_of_white_pixels_does_not_overflow_its_sum():
    # 17 million pixels of 254: beyond 2**32.
    images = np.full((1, 4_200, 4_100, 3), 255, np.uint8)
    steps = np.array([[CONTRAST, 0]], np.int32)
    result, sums = run(images, steps)
    assert sums.item() == 4_200 * 4_100 * 254
    assert (result == 254).all()


@pytest.mark.parametrize("seed", range(10))
def test_blocks_may_come_in_any_order(seed):
    generator = np.random.default_rng(7)
    images = generator.integers(0, 256, (4, 140, 150, 3), np.uint8)
    steps = random_steps(generator, 4)
    assert np.array_equal(run(images, steps, order=RANDOM, seed=seed)[0], on_cpu(images, steps))


@pytest.mark.parametrize("item_size", [1, 2, 4])
def test_memory_that_is_not_aligned_is_read_and_written(item_size):
    generator = np.random.default_rng(9)
    images, table = generator.integers(0, 256, (3, 20, 32, 3), np.uint8), table_of_bits(item_size)
    steps = random_steps(generator, 3)
    result, _ = run(images, steps, table, item_size, shift=3, levels_shift=3)
    assert np.array_equal(result, looked_up(on_cpu(images, steps), table, item_size))


FILLS = np.array([[1, 2, 3], [250, 0, 7], [9, 9, 9]], np.uint8)
NUM_PAINTS = 4


def random_paints(generator, count, height, width):
    """Rows of draws with rectangles that reach over the image's borders, some of them empty."""
    draws = np.zeros((count, DRAW_COLUMNS + NUM_PAINTS * PAINT_COLUMNS), np.int32)
    paints = draws[:, DRAW_COLUMNS:].reshape(count, NUM_PAINTS, PAINT_COLUMNS)
    corners = np.sort(generator.integers(-2, [height + 3, width + 3], (count, NUM_PAINTS, 2, 2)), axis=2)
    paints[..., :4] = corners.reshape(count, NUM_PAINTS, 4)
    paints[..., 4] = generator.integers(0, len(FILLS), (count, NUM_PAINTS))
    paints[0, 1, 2] = paints[0, 1, 0]
    return draws


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("item_size", [1, 2, 4])
@pytest.mark.parametrize("late", [(0, 4), (1, 3), (3, 4), (2, 2)])
@pytest.mark.parametrize("size", [(13, 21), (30, 3), (5, 1)])
def test_late_paints_cover_changed_colors_and_earlier_paints_and_nothing_else(size, late, item_size, order):
    generator = np.random.default_rng(10 * late[0] + late[1])
    images, table = generator.integers(0, 256, (5, *size, 3), np.uint8), table_of_bits(item_size)
    steps, draws = random_steps(generator, 5, 2), random_paints(generator, 5, *size)
    expected = on_cpu(images, steps)
    for image, row in zip(expected, draws, strict=True):
        for top, left, bottom, right, fill in row[DRAW_COLUMNS:].reshape(-1, PAINT_COLUMNS)[slice(*late)].tolist():
            image[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)] = FILLS[fill]
    result, _ = run(images, steps, table, item_size, draws=draws, fills=FILLS, late=late, order=order)
    assert np.array_equal(result, looked_up(expected, table, item_size))


def test_the_kernel_has_room_for_as_many_steps_as_a_program_fuses():
    result = re.search(r"MAX_STEPS = (\d+)", (KERNELS / "color_step.cuh").read_text())
    assert result is not None
    assert int(result[1]) == MAX_COLOR_STEPS
