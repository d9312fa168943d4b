from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._plan.draw_rows import DRAW_COLUMNS, NUM_PAINTS, PAINT_COLUMNS
from gpubeton._plan.fusion import compile_image_program
from gpubeton.fields.image_decoders import RandomResizedCropRGBImageDecoder
from gpubeton.transforms import Cutout, NormalizeImage, RandomHorizontalFlip, RandomTranslate
from tests.cpu.making import draw_of, make, make_one, program_of, stored_jpeg, stored_raw
from tests.cpu.pictures import decoded, jpeg, noise, photo
from tests.reference.image import reference_image

colors = st.tuples(*[st.integers(0, 255)] * 3)
steps = st.one_of(
    st.builds(RandomHorizontalFlip, st.sampled_from([0.0, 0.5, 1.0])),
    st.builds(Cutout, st.integers(1, 9), colors),
    st.builds(RandomTranslate, st.integers(1, 14), colors),
)


def painted(draw, size):
    """Where a draw paints."""
    mask = np.zeros(size, bool)
    for top, left, bottom, right, _ in draw[DRAW_COLUMNS:].reshape(-1, PAINT_COLUMNS)[: draw[NUM_PAINTS]]:
        mask[top:bottom, left:right] = True
    return mask


@given(
    st.lists(steps, max_size=5),
    st.sampled_from([None, "float16", "bfloat16", "float32"]),
    st.sampled_from(["area", "bilinear", "antialias"]),
    st.booleans(),
    st.integers(0, 2**32),
)
@settings(max_examples=60)
def test_steps_in_any_order_equal_the_reference(operations, dtype, interpolation, is_jpeg, seed):
    if dtype is not None:
        operations = [*operations, NormalizeImage([120, 110, 100], [60, 50, 40], dtype)]
    decoder = RandomResizedCropRGBImageDecoder((11, 13), interpolation=interpolation)
    sides = np.array([31, 31, 31]), np.array([42, 42, 42])
    program = compile_image_program("image", 0, [decoder, *operations], *sides)
    draws = program.draw(seed, 0, np.arange(3, dtype=np.uint64), *sides)
    rgb = photo(31, 42, seed % 5)
    if is_jpeg:
        # Gray, so that the reference's pixels are the decoder's.
        rgb = np.repeat(rgb[..., 1:2], 3, axis=2)
        image = stored_jpeg(jpeg(rgb, 100, "gray"))
        rgb = decoded(image.data.tobytes())
    else:
        image = stored_raw(rgb)
    out, bad = make(program, [image] * 3, draws)
    assert bad == []
    for pixels, draw in zip(out, draws, strict=True):
        check(pixels, draw, rgb, program)


def check(pixels, draw, rgb, program):
    reference = reference_image(rgb, draw, program)
    mask = painted(draw, pixels.shape[:2])
    assert pixels[mask].tobytes() == reference.output[mask].tobytes(), "paints are exact"
    whole = np.rint(reference.levels).astype(int)
    near = [np.clip(whole + off, 0, 255) for off in (-1, 0, 1)]
    if program.table is not None:
        near = [program.table[levels, np.arange(3)].view(f"u{pixels.itemsize}") for levels in near]
    bits = pixels.view(f"u{pixels.itemsize}")
    assert np.any([bits == value for value in near], axis=0).all()


@pytest.mark.parametrize("size", [(1, 1), (5, 7), (17, 33)])
def test_paints_beyond_the_border_are_clipped_and_later_ones_cover_earlier(size):
    program = program_of(*size, "area", Cutout(1, (1, 2, 3)), Cutout(1, (4, 5, 6)))
    far = 1 << 20
    draw = draw_of(program, (0, 0, 9, 9), paints=[(-far, -far, far, far, 0), (size[0] - 1, size[1] - 1, far, far, 1)])
    out = make_one(program, stored_raw(noise(9, 9)), draw)
    expected = np.full((*size, 3), (1, 2, 3))
    expected[-1, -1] = 4, 5, 6
    assert np.array_equal(out, expected)


def test_only_the_counted_paints_are_painted_and_empty_ones_paint_nothing():
    program = program_of(8, 8, "area", *[Cutout(2, (9, 9, 9))] * 3)
    image = stored_raw(noise(8, 8, 4))
    draw = draw_of(program, (0, 0, 8, 8), paints=[(3, 3, 3, 8, 0), (5, 2, 4, 8, 0), (0, 0, 8, 8, 0)])
    draw[NUM_PAINTS] = 2
    assert np.array_equal(make_one(program, image, draw), noise(8, 8, 4))


@pytest.mark.parametrize("dtype", [None, "float16", "float32"])
def test_paints_that_lie_outside_or_are_narrower_than_nothing_paint_nothing(dtype):
    operations = [Cutout(2, (9, 9, 9))] * 6 + ([] if dtype is None else [NormalizeImage([9, 8, 7], [3, 2, 1], dtype)])
    program = program_of(8, 8, "area", *operations)
    outside = [(0, 12, 8, 20), (0, -9, 8, -2), (12, 0, 20, 8), (-9, 0, -2, 8), (0, 6, 8, 2), (0, 4, 8, 4)]
    image, whole = stored_raw(noise(8, 8, 4)), (0, 0, 8, 8)
    painted_over = make_one(program, image, draw_of(program, whole, paints=[(*box, 0) for box in outside]))
    assert np.array_equal(painted_over, make_one(program, image, draw_of(program, whole)))
