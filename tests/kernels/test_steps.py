from __future__ import annotations

import re

import numpy as np
import pytest

from gpubeton._batch.step_rows import NUM_KINDS
from gpubeton._gpu.launch import PICTURE
from tests.cpu.making import UNTOUCHED
from tests.kernels.host_build import FORWARD, KERNELS, ORDERS, RANDOM, needs_compiler
from tests.kernels.host_device import looked_up, table_of_bits
from tests.kernels.launching import run_kernel
from tests.kernels.random_steps import KINDS, NUM_POINTS, hostile_rows, on_cpu, random_rows

pytestmark = needs_compiler

#: Whole loads and stores, odd ones, images below the size of a filter, and a single pixel.
SIZES = [(20, 32), (7, 9), (3, 4), (2, 2), (91, 101), (64, 64), (1, 30), (1, 1)]


def images_of(generator, count, size):
    """Noise, white, black, and few levels that lie between others."""
    images = generator.integers(0, 256, (count, *size, 3), np.uint8)
    images[0], images[1], images[2] = 255, 0, images[2] // 64 * 16 + 40
    return images


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_step_writes_the_bits_of_the_cpu(kind, size):
    generator = np.random.default_rng(KINDS.index(kind))
    images = images_of(generator, 9, size)
    rows = random_rows(generator, 9, 1, size, [kind])
    assert np.array_equal(run_kernel(images, rows), on_cpu(images, rows))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [*SIZES, (140, 150)])
def test_fourteen_steps_write_the_bits_of_the_cpu(size, order):
    generator = np.random.default_rng(order)
    images, rows = images_of(generator, 12, size), random_rows(generator, 12, 14, size)
    assert np.array_equal(run_kernel(images, rows, order=order, seed=3), on_cpu(images, rows))


@pytest.mark.parametrize("seed", range(8))
def test_images_of_any_size_have_the_bits_of_the_cpu(seed):
    generator = np.random.default_rng(seed)
    size = tuple(generator.integers(1, 601, 2).tolist())
    images, rows = images_of(generator, 3, size), random_rows(generator, 3, 14, size)
    assert np.array_equal(run_kernel(images, rows), on_cpu(images, rows))


@pytest.mark.parametrize("shift", [0, 3])
@pytest.mark.parametrize("item_size", [1, 2, 4])
@pytest.mark.parametrize("size", SIZES)
def test_levels_are_written_through_the_table_to_any_address(size, item_size, shift):
    generator = np.random.default_rng(1)
    images, table = images_of(generator, 3, size), table_of_bits(item_size)
    rows = random_rows(generator, 3, 3, size)
    result = run_kernel(images, rows, table, item_size, shift=shift, levels_shift=shift)
    assert np.array_equal(result, looked_up(on_cpu(images, rows), table, item_size))


@pytest.mark.parametrize("num_steps", [0, 1, 40])
def test_any_number_of_steps_is_carried_out(num_steps):
    """More of them wait for each other than there is room for."""
    generator = np.random.default_rng(2)
    images = images_of(generator, 5, (20, 32))
    rows = random_rows(generator, 5, num_steps, (20, 32), KINDS[:NUM_POINTS])
    assert np.array_equal(run_kernel(images, rows), on_cpu(images, rows))


def test_an_image_of_white_pixels_does_not_overflow_its_sum():
    # 17 million pixels of 254: beyond 2**32.
    images = np.full((1, 4_200, 4_100, 3), 255, np.uint8)
    rows = np.zeros((1, 1, 16), np.int32)
    rows[0, 0, :3] = 2, 1, 0
    assert (run_kernel(images, rows) == 254).all()


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_anything_are_carried_out_inside_the_image_and_in_any_order_of_threads(seed):
    generator = np.random.default_rng(seed)
    size = tuple(generator.integers(1, 40, 2).tolist())
    images, rows = images_of(generator, 4, size), hostile_rows(generator, 4, size)
    assert np.array_equal(run_kernel(images, rows), run_kernel(images, rows, order=RANDOM, seed=seed))


@pytest.mark.parametrize("kind", range(-1, NUM_KINDS + 2))
def test_a_step_without_its_buffers_or_of_no_kind_changes_nothing_else(kind):
    """Nor is a null address written to."""
    generator = np.random.default_rng(5)
    images, rows = images_of(generator, 4, (9, 8)), hostile_rows(generator, 4, (9, 8))
    rows[..., 0] = kind
    result = run_kernel(images, rows, kinds=frozenset())
    assert result.shape == images.shape
    if kind <= 0 or kind >= NUM_KINDS:
        assert np.array_equal(result, images)


def test_images_that_another_kernel_has_made_stay_at_a_repeat():
    generator = np.random.default_rng(6)
    images, rows = images_of(generator, 4, (9, 8)), random_rows(generator, 4, 2, (9, 8), KINDS[:4])
    pictures = np.zeros(4, PICTURE)
    pictures["row"] = 0, -1, 2, -1
    result, expected = run_kernel(images, rows, pictures=pictures), on_cpu(images, rows)
    assert np.array_equal(result[::2], expected[::2])
    assert (result[1::2] == UNTOUCHED).all()


def test_the_kernel_numbers_kinds_as_the_rows_do():
    import gpubeton._batch.step_rows as module

    text = (KERNELS / "step_rows.cuh").read_text()
    names = re.search(r"enum Kind \{(.*?)\}", text, re.DOTALL)
    assert names is not None
    for number, name in enumerate(names[1].replace("\n", " ").split(",")):
        assert getattr(module, name.strip()) == number
    assert number == NUM_KINDS - 1
    assert FORWARD == 0
