"""Steps in vectors: to the bit those of `gpubeton._batch.color_formulas`, for every level, color and factor."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from gpubeton._batch import color_formulas
from gpubeton._batch.color_formulas import BRIGHTNESS, CONTRAST, HUE, ONE, SATURATION
from gpubeton._cpu.color_simd import (
    GROUP,
    HAS_TABLES,
    LARGEST_FACTOR,
    MOST_PIXELS,
    STEP_FIELDS,
    TABLE_SIZE,
    begin_table,
    change_groups,
    continue_table,
    write_step,
)
from tests.cpu.guarded import guarded


@numba.njit
def change(pixels, steps, rows, tables, sums):
    """Steps: int64 (K, 3), kind, factor, and what a contrast adds."""
    for number in range(len(steps)):
        write_step(rows[number], steps[number, 0], steps[number, 1], steps[number, 2])
    total = 0
    for first in range(0, len(pixels), MOST_PIXELS):
        part = pixels[first : first + MOST_PIXELS]
        total += change_groups(part, rows, tables, len(steps), len(steps) > 0, sums)
    return total


def changed(pixels, *steps, with_sum=False):
    """The pixels after the steps, and their sum."""
    memory = guarded(pixels)
    rows = guarded(np.zeros((max(len(steps), 1), STEP_FIELDS), np.int16))
    tables = guarded(np.zeros((len(rows), TABLE_SIZE), np.uint8))
    total = change(memory, np.array(steps, np.int64).reshape(-1, 3), rows, tables, with_sum)
    return memory, total


def expected(pixels, *steps):
    """What the lines give."""
    line = np.ascontiguousarray(pixels.T).astype(np.int32)
    for kind, factor, added in steps:
        if kind == SATURATION:
            SATURATE(line, factor)
        elif kind == HUE:
            TURN(line, factor)
        else:
            BLEND(line, factor, added)
    return line.T


SATURATE, TURN, BLEND = (
    numba.njit(formula) for formula in (color_formulas.saturate, color_formulas.turn, color_formulas.blend)
)
GRAYS = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(256, 3)
FACTORS = [0, 1, ONE // 2 - 1, ONE // 2, ONE // 2 + 1, ONE - 1, ONE, ONE + 1, 3 * ONE // 2 - 1, 3 * ONE // 2, 45678]
COLORS = np.random.default_rng(1).integers(0, 256, (GROUP * 4096, 3), np.uint8)


def all_gray_levels():
    """Every color there is, in a random order, and its gray value by whole numbers without limit."""
    order = np.random.default_rng(0).permutation(1 << 24)
    pixels = np.stack([order >> 16, order >> 8 & 255, order & 255], axis=1)
    return pixels.astype(np.uint8), pixels @ np.array([2989, 5870, 1140]) // 10000


def test_every_color_has_its_gray_value():
    pixels, gray = all_gray_levels()
    result, _ = changed(pixels, (SATURATION, 0, 0))
    assert np.array_equal(result, np.repeat(gray[:, None], 3, axis=1))


def test_gray_values_are_summed():
    pixels, gray = all_gray_levels()
    untouched, total = changed(pixels, with_sum=True)
    assert total == gray.sum()
    assert np.array_equal(untouched, pixels)


def test_the_brightest_pixels_are_summed_without_overflow():
    white = np.full((2 * MOST_PIXELS + GROUP, 3), 255, np.uint8)
    assert changed(white, with_sum=True)[1] == 254 * len(white)
    assert changed(white, with_sum=False)[1] == 0


@pytest.mark.parametrize("factor", [*FACTORS, LARGEST_FACTOR - 1, LARGEST_FACTOR])
def test_every_level_gets_brighter_by_every_kind_of_factor(factor):
    step = BRIGHTNESS, factor, 0
    assert np.array_equal(changed(GRAYS, step)[0], expected(GRAYS, step))


@pytest.mark.parametrize("factor", [*FACTORS, LARGEST_FACTOR - 1, LARGEST_FACTOR])
def test_every_level_moves_from_every_mean(factor):
    for mean in np.random.default_rng(factor).uniform(0, 254, 50):
        step = CONTRAST, factor, int(np.floor((ONE - factor) * mean))
        assert np.array_equal(changed(GRAYS, step)[0], expected(GRAYS, step))


@pytest.mark.parametrize("factor", [*FACTORS, LARGEST_FACTOR - 1, LARGEST_FACTOR])
def test_colors_move_from_their_gray(factor):
    step = SATURATION, factor, 0
    assert np.array_equal(changed(COLORS, step)[0], expected(COLORS, step))


@pytest.mark.parametrize("factor", [-ONE // 2, -12345, -1, 0, 1, 5461, ONE // 3, ONE // 2])
def test_colors_turn(factor):
    step = HUE, factor, 0
    grays_and_others = np.concatenate([GRAYS, COLORS])
    assert np.array_equal(changed(grays_and_others, step)[0], expected(grays_and_others, step))


def test_hue_rotates_by_all_drawn_angles():
    for factor in np.random.default_rng(2).integers(-ONE // 2, ONE // 2, 40):
        step = HUE, int(factor), 0
        assert np.array_equal(changed(COLORS, step)[0], expected(COLORS, step)), factor


@pytest.mark.parametrize("seed", range(20))
def test_steps_follow_each_other_in_their_order(seed):
    random = np.random.default_rng(seed)
    steps = [
        (kind, int(random.integers(0, ONE // 2 if kind == HUE else 2 * ONE)), 0) for kind in random.integers(0, 4, 5)
    ]
    steps = [
        (kind, factor, int(random.integers(-ONE, ONE)) * 99 if kind == CONTRAST else 0) for kind, factor, _ in steps
    ]
    pixels = COLORS[: GROUP * 40]
    result, total = changed(pixels, *steps, with_sum=True)
    assert np.array_equal(result, expected(pixels, *steps))
    assert total == (result @ np.array([2989, 5870, 1140]) // 10000).sum()


@pytest.mark.skipif(not HAS_TABLES, reason="this machine looks nothing up in vectors")
@pytest.mark.parametrize("seed", range(10))
def test_tables_equal_their_steps_one_after_another(seed):
    random = np.random.default_rng(seed)
    steps = [(BRIGHTNESS, int(random.integers(0, 2 * ONE)), 0) for _ in range(3)]
    steps.insert(1, (CONTRAST, int(random.integers(0, 2 * ONE)), int(random.integers(-99 * ONE, 99 * ONE))))
    pixels = guarded(COLORS[: GROUP * 3])
    look_up(
        pixels,
        np.array(steps, np.int64),
        guarded(np.zeros((1, STEP_FIELDS), np.int16)),
        guarded(np.zeros((1, TABLE_SIZE), np.uint8)),
    )
    assert np.array_equal(pixels, expected(COLORS[: GROUP * 3], *steps))


@numba.njit
def look_up(pixels, steps, rows, tables):
    begin_table(rows[0], tables[0])
    for number in range(len(steps)):
        continue_table(tables[0], steps[number, 1], steps[number, 2])
    change_groups(pixels, rows, tables, 1, True, False)
