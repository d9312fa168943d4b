from __future__ import annotations

import numpy as np
import pytest

from gpubeton.plan.draws import DRAW_COLUMNS, PAINT_COLUMNS
from tests.kernels.host_build import ORDERS, needs_compiler
from tests.kernels.host_device import HostDevice, address, placed, table_of_bits

pytestmark = needs_compiler

COUNT, HEIGHT, WIDTH, PAINTS = 5, 13, 21, 4
FILLS = np.array([[1, 2, 3], [250, 0, 7], [9, 9, 9]], np.uint8)


def random_draws(generator):
    """Rows of which only the paints count: any rectangles inside the image, some of them empty."""
    draws = generator.integers(-(1 << 30), 1 << 30, (COUNT, DRAW_COLUMNS + PAINTS * PAINT_COLUMNS)).astype(np.int32)
    paints = draws[:, DRAW_COLUMNS:].reshape(COUNT, PAINTS, PAINT_COLUMNS)
    corners = np.sort(generator.integers(0, [HEIGHT + 1, WIDTH + 1], (COUNT, PAINTS, 2, 2)), axis=2)
    paints[..., :4] = corners.reshape(COUNT, PAINTS, 4)
    paints[..., 4] = generator.integers(0, len(FILLS), (COUNT, PAINTS))
    paints[0, 1, 2] = paints[0, 1, 0]
    return draws


def painted(images, draws, first, stop, table, item_size, order):
    dtype = {1: np.uint8, 2: np.uint16, 4: np.uint32}[item_size]
    out, draws, fills, table = placed(images.astype(dtype)), placed(draws), placed(FILLS), placed(table)
    numbers = [draws.shape[1], first, stop, HEIGHT, WIDTH, COUNT]
    arguments = [np.uint64(address(draws)), *map(np.int32, numbers), np.uint64(address(fills))]
    arguments += [np.uint64(address(table)), np.int32(item_size), np.uint64(address(out))]
    grid = (-(-HEIGHT * WIDTH // 128), COUNT, 1)
    HostDevice(order, seed=3).launch("paint", grid, (128, 1, 1), arguments, "stream")
    return out


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("item_size", [1, 2, 4])
@pytest.mark.parametrize(("first", "stop"), [(0, 4), (1, 3), (3, 4), (2, 2)])
def test_rectangles_are_painted_one_over_the_other_and_nothing_else_is(item_size, first, stop, order):
    generator = np.random.default_rng(10 * first + stop)
    draws, table = random_draws(generator), table_of_bits(item_size)
    images = generator.integers(0, 200, (COUNT, HEIGHT, WIDTH, 3))
    expected = images.copy()
    for image, row in zip(expected, draws, strict=True):
        for top, left, bottom, right, fill in row[DRAW_COLUMNS:].reshape(-1, PAINT_COLUMNS)[first:stop]:
            image[top:bottom, left:right] = table[FILLS[fill], np.arange(3)]
    assert np.array_equal(painted(images, draws, first, stop, table, item_size, order), expected)
