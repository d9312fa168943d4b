from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._cpu.taps import effective, fill_axis, most_taps
from gpubeton._plan.draw_rows import DRAW_COLUMNS, FLIP, HEIGHT, RESIZED_HEIGHT, RESIZED_WIDTH, SHIFT_X, SHIFT_Y, WIDTH
from gpubeton.pipeline.interpolation import filter_radius
from tests.kernels.host_build import ORDERS, needs_compiler
from tests.kernels.launching import AREA_ENLARGING, RULES, make_taps
from tests.reference.weights import resize_weights

pytestmark = needs_compiler

#: A weight of one, by name.
ONES = dict.fromkeys(RULES, 65536) | {"bicubic": 1 << 14}


@numba.njit(cache=True)
def run_axis(rule, start, size, output, resized, shift, flip, first, words, row):
    return fill_axis(rule, start, size, output, resized, shift, flip, first, words, row)


@numba.njit(cache=True)
def run_effective(rule, height, width, output_height, output_width):
    return effective(rule, height, width, output_height, output_width)


def draw(height, width, *, flip=0, shift=(0, 0), resized=(0, 0)):
    row = np.zeros(DRAW_COLUMNS, np.int32)
    row[[HEIGHT, WIDTH, FLIP, SHIFT_Y, SHIFT_X]] = height, width, flip, *shift
    row[[RESIZED_HEIGHT, RESIZED_WIDTH]] = resized
    return row


def assert_as_on_the_cpu(taps, draws, rule, size, most):
    """Both axes of all images."""
    for i, row in enumerate(draws):
        crop = int(row[HEIGHT]), int(row[WIDTH])
        height, width = int(row[RESIZED_HEIGHT]) or size[0], int(row[RESIZED_WIDTH]) or size[1]
        actual_rule = run_effective(rule, *crop, height, width)
        across = crop[1], size[1], width, int(row[SHIFT_X]), bool(row[FLIP])
        down = crop[0], size[0], height, int(row[SHIFT_Y]), False
        for axis, (source, output, resized, shift, flip) in enumerate([across, down]):
            first, words = np.zeros(output, np.int32), np.zeros((output, most), np.int32)
            largest = run_axis(actual_rule, 0, source, output, resized, shift, flip, first, words, np.zeros(most))
            where = (i, axis)
            assert np.array_equal(taps.first[where][:output], first)
            numbers = taps.numbers[where][:output]
            used = np.arange(most) < np.maximum(numbers, min(4, most))[:, None]
            assert np.array_equal(taps.weights[where][:output][used], (words & 0xFFFF)[used])
            # The CPU has no more taps either.
            assert not words[~used].any()
            assert taps.most[where] == numbers.max() == largest


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_taps_are_the_cpus_to_the_bit(rule, order):
    generator = np.random.default_rng(rule)
    for size, side in (((1, 1), 40), ((7, 9), 40), ((24, 31), 400), ((300, 129), 400), ((32, 20), 3000)):
        draws = [
            draw(
                *generator.integers(1, side + 1, 2),
                flip=generator.integers(2),
                shift=generator.integers(-40, 41, 2) * generator.integers(2),
            )
            for _ in range(6)
        ]
        draws += [draw(*size), draw(side, side, flip=1), draw(1, side), draw(side, 1)]
        most = most_taps(side / min(size) * filter_radius(rule))
        taps = make_taps(np.stack(draws), rule, size, most, order, seed=side)
        assert_as_on_the_cpu(taps, draws, rule, size, most)


def test_slivers_of_a_source_pixel_are_left_out_as_on_the_cpu():
    """3001 pixels become 1500: cells begin and end up to a thousandth of a pixel beside a border, or a little more."""
    draws, most = [draw(3001, 3001)], most_taps(3001 / 1500)
    taps = make_taps(np.stack(draws), RULES["area"], (1500, 1500), most)
    assert_as_on_the_cpu(taps, draws, RULES["area"], (1500, 1500), most)
    # Without that rule each would have three.
    assert set(taps.numbers[0, 0].tolist()) == {2, 3}


sides = st.integers(1, 600)


@given(st.sampled_from(sorted(RULES.values())), sides, sides, sides, sides, st.booleans(), st.integers(-700, 700))
@settings(max_examples=400)
def test_taps_of_any_size_are_the_cpus_to_the_bit(rule, height, width, output_height, output_width, flip, shift):
    draws = [draw(height, width, flip=flip, shift=(shift, -shift))]
    size = (output_height, output_width)
    most = most_taps(max(height / output_height, width / output_width) * filter_radius(rule))
    assert_as_on_the_cpu(make_taps(np.stack(draws), rule, size, most), draws, rule, size, most)


@given(st.sampled_from(sorted(RULES.values())), st.integers(1, 600), st.integers(1, 600), st.booleans(), st.data())
@settings(max_examples=200)
def test_taps_of_padded_images_are_the_cpus_to_the_bit(rule, height, width, flip, data):
    size = data.draw(st.tuples(st.integers(1, 90), st.integers(1, 90)))
    resized = tuple(data.draw(st.integers(1, side)) for side in size)
    shift = tuple(
        data.draw(st.integers(resized_side - side, 0)) for resized_side, side in zip(resized, size, strict=True)
    )
    draws = [draw(height, width, flip=flip, shift=shift, resized=resized)]
    most = most_taps(max(height / resized[0], width / resized[1]) * filter_radius(rule))
    assert_as_on_the_cpu(make_taps(np.stack(draws), rule, size, most), draws, rule, size, most)


@given(st.sampled_from(sorted(RULES)), st.integers(1, 90), st.integers(1, 90))
def test_weights_are_the_references_within_the_precision_of_16_bits(name, source, output):
    """Each is rounded once, and the largest makes up for what the others lost: at most half a unit for each of them."""
    most = most_taps(source / output * filter_radius(RULES[name]))
    taps = make_taps(draw(source, source)[None], RULES[name], (output, output), most)
    shrinks = source >= output if name == "area" else None
    expected = resize_weights(source, output, name, shrinks=shrinks)
    result = np.zeros((output, source))
    for i in range(output):
        number = taps.numbers[0, 0, i]
        weights = taps.weights[0, 0, i, :number]
        result[i, taps.first[0, 0, i] + np.arange(number)] = weights.view(np.int16) if name == "bicubic" else weights
    # OpenCV's area leaves slivers of a thousandth of a pixel out, which takes their share of a cell at most.
    case = ONES[name]
    sliver = 2e-3 * case * min(1.0, output / source) if name == "area" else 0
    assert np.abs(result - expected * case).max() <= 1 + most / 2 + sliver
    # One itself does not fit into 16 bits without sign.
    assert ((result.sum(axis=1) == case) | (result.max(axis=1) == 0xFFFF)).all()


def test_area_takes_two_taps_as_soon_as_one_side_is_enlarged():
    draws = np.stack([draw(60, 90), draw(20, 90), draw(60, 20)])
    taps = make_taps(draws, RULES["area"], (30, 30), 10)
    assert taps.most[0].tolist() == [3, 2]
    assert (taps.most[1:] <= 2).all()
    result = make_taps(draws[1:], AREA_ENLARGING, (30, 30), 10)
    assert np.array_equal(taps.weights[1:, :, :, :2], result.weights[:, :, :, :2])


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_more_taps_than_there_is_room_for_are_counted_and_not_written(most):
    taps = make_taps(np.stack([draw(400, 5), draw(5, 400)]), RULES["area"], (5, 5), most)
    assert taps.most.tolist() == [[1, 80], [80, 1]]
    assert (taps.numbers[0, 1] == 0).all()
    assert (taps.numbers[1, 0] == 0).all()
    assert (taps.numbers[0, 0] == 1).all()
    assert (taps.weights[0, 1] == 0xDEAD).all()


@pytest.mark.parametrize("crop", [(0, 5), (5, 0), (-1, 5), (5, -3), (0, 0)])
def test_a_crop_without_pixels_has_no_taps(crop):
    taps = make_taps(np.stack([draw(*crop), draw(6, 6)]), RULES["antialias"], (3, 4), 8)
    assert (taps.numbers[0][:, :3] == 0).all()
    assert taps.most[0].tolist() == [0, 0]
    assert (taps.numbers[1][:, :3] > 0).all()


def test_nothing_is_written_past_the_end_of_the_shorter_side():
    taps = make_taps(draw(9, 9)[None], RULES["bilinear"], (3, 150), 4)
    assert (taps.first[0, 1, 3:] == -77).all()
    assert (taps.numbers[0, 1, 3:] == -77).all()
    assert (taps.weights[0, 1, 3:] == 0xDEAD).all()
