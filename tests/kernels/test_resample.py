from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._plan.draw_rows import TOP, WIDTH
from gpubeton.transforms import Cutout, NormalizeImage
from tests.cpu.making import INTERPOLATIONS, UNTOUCHED, draw_of, make, program_of, stored_raw
from tests.cpu.pictures import noise, photo
from tests.cpu.test_resample import SHAPES
from tests.kernels.host_build import FORWARD, ORDERS, RANDOM, needs_compiler
from tests.kernels.launching import DONE, WRONG_CROP, Pictures, launch_augment
from tests.reference.image import reference_image

pytestmark = needs_compiler

#: How levels are stored: as they are, or looked up in a table of another width.
FINISHES = {
    "uint8": [],
    "float16": [NormalizeImage([10, 20, 30], [40, 50, 60], "float16")],
    "bfloat16": [NormalizeImage([10, 20, 30], [40, 50, 60], "bfloat16")],
    "float32": [NormalizeImage([10, 20, 30], [40, 50, 60], "float32")],
}


def bits(array):
    """Nan is nan, and minus zero is not zero."""
    return array.view(np.uint8)


def on_cpu(program, images, draws):
    out, bad = make(program, [stored_raw(image) for image in images], draws)
    assert bad == []
    return out


def assert_as_on_the_cpu(program, images, draws, pictures=None, **options):
    result = launch_augment(program, Pictures(images) if pictures is None else pictures, draws, **options)
    assert result.status == [DONE] * len(images)
    assert np.array_equal(bits(result.out), bits(on_cpu(program, images, draws)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_images_are_the_cpus_to_the_bit(interpolation, order):
    for number, (source, box, size) in enumerate(SHAPES):
        program = program_of(*size, interpolation, *list(FINISHES.values())[number % 4])
        images = [noise(*source), photo(*source), noise(*source)]
        draws = [draw_of(program, box), draw_of(program, box, flip=1), draw_of(program, box, flip=1, shift=(2, -3))]
        assert_as_on_the_cpu(program, images, draws, order=order, seed=number)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_a_crop_is_within_a_level_of_the_reference(interpolation):
    """Rows are rounded between the two directions, by half a level; the last rounding is another half."""
    for source, box, size in SHAPES:
        program = program_of(*size, interpolation)
        for flip in (0, 1):
            rgb, draw = photo(*source), draw_of(program, box, flip=flip)
            out = launch_augment(program, Pictures([rgb]), [draw]).out[0]
            assert np.abs(out.astype(int) - reference_image(rgb, draw, program).output).max() <= 1


@st.composite
def batches(draws):
    """A program, images, and for each a draw."""
    side = draws(st.sampled_from([12, 70, 400]))
    height, width = draws(st.integers(1, side)), draws(st.integers(1, side))
    fills = draws(st.lists(st.tuples(*[st.integers(0, 255)] * 3), max_size=2))
    finish = draws(st.sampled_from(sorted(FINISHES)))
    interpolation = draws(st.sampled_from(INTERPOLATIONS))
    program = program_of(height, width, interpolation, *[Cutout(1, fill) for fill in fills], *FINISHES[finish])
    images, rows = [], []
    for _ in range(2):
        largest = draws(st.sampled_from([9, 90, 700]))
        h, w = draws(st.integers(1, largest)), draws(st.integers(1, largest))
        images.append((noise if draws(st.booleans()) else photo)(h, w))
        crop_height, crop_width = draws(st.integers(1, h)), draws(st.integers(1, w))
        box = draws(st.integers(0, h - crop_height)), draws(st.integers(0, w - crop_width)), crop_height, crop_width
        shift = draws(st.one_of(st.just((0, 0)), st.tuples(*[st.integers(-side, side)] * 2)))
        rectangle = st.tuples(*[st.integers(-3, side + 3) for side in (height, width) * 2])
        fill = st.integers(0, len(program.fills) - 1)
        paints = [(*draws(rectangle), draws(fill)) for _ in range(draws(st.integers(0, len(fills))))]
        rows.append(draw_of(program, box, flip=draws(st.integers(0, 1)), shift=shift, paints=paints))
    return program, images, rows


@given(batches(), st.integers(0, 15), st.sampled_from([1, 16]), st.integers(0, 1000))
@settings(max_examples=150)
def test_any_batch_is_the_cpus_to_the_bit(batch, shift, pitch, seed):
    """For any alignment of the output and of the source, and any order of threads."""
    program, images, draws = batch
    pictures = Pictures(images, shift=0 if pitch == 16 else shift, pitch=pitch)
    assert_as_on_the_cpu(program, images, draws, pictures, shift=shift, order=RANDOM, seed=seed)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize(
    ("source", "size"),
    [((40, 3000), (20, 30)), ((3000, 40), (30, 20)), ((9, 2500), (4, 2)), ((700, 900), (5, 4)), ((3, 4000), (2, 1))],
)
def test_hundreds_of_taps_are_the_cpus_to_the_bit(interpolation, source, size):
    """Strips of few columns, of one, and a column that has more taps than the workspace has room for."""
    program = program_of(*size, interpolation)
    images = [photo(*source), noise(*source)]
    assert_as_on_the_cpu(program, images, [draw_of(program, (0, 0, *source), flip=i) for i in (0, 1)], order=RANDOM)


@pytest.mark.parametrize("width", [31, 32, 33, 255, 256, 257, 600])
@pytest.mark.parametrize("finish", FINISHES)
def test_rows_of_several_strips_are_seamless(finish, width):
    program = program_of(5, width, "area", Cutout(1, (1, 2, 3)), *FINISHES[finish])
    images = [noise(11, 2 * width + 7), noise(6, width // 2 + 1)]
    # A paint of the second of two rows that are made together, which begins and ends within strips.
    paint = (1, width // 6, 2, width - 3, 0)
    draws = [draw_of(program, (0, 0, *image.shape[:2]), flip=1, paints=[paint]) for image in images]
    for shift in (0, 1, 3):
        assert_as_on_the_cpu(program, images, draws, shift=shift)


@pytest.mark.parametrize("shift", range(16))
def test_a_source_at_any_alignment_is_read_the_same(shift):
    program = program_of(9, 14, "antialias")
    images = [noise(25, 33), noise(20, 40)]
    draws = [draw_of(program, (1, 2, 20, 30)), draw_of(program, (0, 1, 19, 39), flip=1)]
    assert_as_on_the_cpu(program, images, draws, Pictures(images, shift=shift, pitch=1))


@pytest.mark.parametrize("left", range(17))
def test_a_crop_may_begin_anywhere_in_an_aligned_row(left):
    program = program_of(8, 12)
    images = [noise(16, 64)]
    assert_as_on_the_cpu(program, images, [draw_of(program, (3, left, 12, 40))])


@pytest.mark.parametrize("seed", range(10))
def test_blocks_may_come_in_any_order(seed):
    program = program_of(200, 13)
    images = [noise(50, 60), photo(60, 50)] * 4
    draws = [draw_of(program, (0, 0, 50, 50)), draw_of(program, (7, 0, 50, 50), flip=1)] * 4
    assert_as_on_the_cpu(program, images, draws, order=RANDOM, seed=seed)


@pytest.mark.parametrize("order", ORDERS)
def test_paints_cover_each_other_in_their_order_and_may_be_empty(order):
    program = program_of(9, 40, "area", Cutout(1, (1, 2, 3)), Cutout(1, (4, 5, 6)), Cutout(1, (7, 8, 9)))
    fills = range(len(program.fills))
    paints = [(0, 3, 8, 37, fills[0]), (2, -5, 5, 50, fills[-1]), (4, 10, 4, 12, fills[0])]
    images = [noise(20, 60)] * 3
    draws = [
        draw_of(program, (0, 0, 20, 60), paints=paints),
        draw_of(program, (0, 0, 20, 60), paints=paints[:1]),
        draw_of(program, (0, 0, 20, 60), paints=[(5, 5, 5, 5, 0), (-9, 0, 0, 40, 0), (20, 0, 30, 40, 0)]),
    ]
    assert_as_on_the_cpu(program, images, draws, order=order)


def test_each_image_goes_to_its_row_and_other_rows_stay_as_they_are():
    program = program_of(6, 7)
    images = [noise(10, 12), photo(10, 12)]
    draws = [draw_of(program, (0, 0, 10, 12))] * 2
    pictures = Pictures(images)
    pictures.table["row"] = 3, 1
    result = launch_augment(program, pictures, draws, rows=5)
    assert np.array_equal(result.out[[3, 1]], on_cpu(program, images, draws))
    assert (result.out[[0, 2, 4]] == UNTOUCHED).all()


WRONG_BOXES = [(0, 0, 0, 4), (0, 0, 4, 0), (-1, 0, 4, 4), (0, -1, 4, 4), (2, 0, 4, 4), (0, 4, 4, 4), (5, 0, 1, 1)]
HUGE = np.iinfo(np.int32).max


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "box", [*WRONG_BOXES, (HUGE, 0, 4, 4), (4, HUGE, 1, 1), (0, 0, -HUGE, 4), (0, 0, 4, -HUGE - 1)]
)
def test_a_crop_that_is_no_part_of_the_image_is_noted_and_nothing_is_written(box, order):
    program = program_of(4, 5)
    images = [noise(5, 7)] * 3
    draws = [draw_of(program, (0, 0, 5, 7)) for _ in images]
    draws[1][TOP : WIDTH + 1] = box
    result = launch_augment(program, Pictures(images), draws, most=20, order=order)
    assert result.status == [DONE, WRONG_CROP, DONE]
    assert (result.out[1] == UNTOUCHED).all()
    assert np.array_equal(result.out[[0, 2]], on_cpu(program, images[:2], [draws[0]] * 2))


def test_more_taps_than_there_is_room_for_are_noted_and_nothing_is_written():
    program = program_of(4, 4)
    images = [noise(8, 8), noise(8, 60), noise(60, 8)]
    draws = [draw_of(program, (0, 0, *image.shape[:2])) for image in images]
    result = launch_augment(program, Pictures(images), draws, most=4, order=FORWARD)
    assert result.status == [DONE, WRONG_CROP, WRONG_CROP]
    assert (result.out[1:] == UNTOUCHED).all()


def test_no_more_images_are_made_than_there_are():
    program = program_of(4, 4)
    pictures = Pictures([noise(8, 8)])
    result = launch_augment(program, pictures, [draw_of(program, (0, 0, 8, 8))], rows=3)
    assert (result.out[1:] == UNTOUCHED).all()
