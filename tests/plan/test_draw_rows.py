from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._plan.draw_rows import (
    DRAW_COLUMNS,
    NUM_PAINTS,
    PAINT_COLUMNS,
)
from gpubeton._plan.fusion import compile_image_program
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
from gpubeton.transforms import Cutout, RandomErasing, RandomHorizontalFlip, RandomTranslate
from tests.apply import apply
from tests.reference.image import reference_image

FILLS = st.sampled_from([(0, 0, 0), (255, 0, 7), (1, 2, 3)])
STEPS = st.lists(
    st.one_of(
        st.builds(RandomHorizontalFlip, st.sampled_from([0.5, 1.0])),
        st.builds(Cutout, st.integers(0, 5), FILLS),
        st.builds(RandomErasing, st.sampled_from([0.5, 1.0]), value=FILLS),
        st.builds(RandomTranslate, st.integers(0, 9), FILLS),
    ),
    max_size=6,
)


@settings(max_examples=150)
@given(STEPS, st.integers(5, 9), st.integers(5, 9), st.integers(0, 2**64 - 1), st.integers(0, 1000))
def test_folded_steps_equal_the_steps_one_after_another(steps, height, width, seed, epoch):
    images = np.random.default_rng(0).integers(0, 256, (5, height, width, 3), np.uint8)
    samples = np.array([3, 1, 4, 1, 5], np.uint64)
    sizes = np.full(5, height), np.full(5, width)
    program = compile_image_program("image", 3, [SimpleRGBImageDecoder(), *steps], *sizes)
    eager = apply(steps, images.copy(), seed=seed, epoch=epoch, samples=samples, field=3)
    draws = program.draw(seed, epoch, samples, *sizes)
    for image, draw, expected in zip(images, draws, eager, strict=True):
        assert np.array_equal(reference_image(image, draw, program).output, expected)


@settings(max_examples=60)
@given(STEPS, st.integers(0, 2**32))
def test_paints_lie_inside_the_image(steps, seed):
    sizes = np.full(20, 6), np.full(20, 8)
    program = compile_image_program("image", 0, [SimpleRGBImageDecoder(), *steps], *sizes)
    rows = program.draw(seed, 0, np.arange(20, dtype=np.uint64), *sizes)
    assert rows.shape == (20, DRAW_COLUMNS + program.max_paints * PAINT_COLUMNS)
    assert (rows[:, NUM_PAINTS] == program.max_paints).all()
    top, left, bottom, right, fill = np.moveaxis(rows[:, DRAW_COLUMNS:].reshape(20, -1, PAINT_COLUMNS), -1, 0)
    assert ((top >= 0) & (top <= bottom) & (bottom <= 6)).all()
    assert ((left >= 0) & (left <= right) & (right <= 8)).all()
    assert ((fill >= 0) & (fill < len(program.fills))).all()


def augmented(sizes):
    steps = [RandomHorizontalFlip(), Cutout(9), RandomTranslate(4)]
    return compile_image_program("image", 0, [RandomResizedCropRGBImageDecoder((32, 32)), *steps], *sizes)


def test_a_sample_is_drawn_alike_in_any_batch():
    generator = np.random.default_rng(0)
    sizes = generator.integers(20, 500, (2, 300))
    samples = generator.permutation(300).astype(np.uint64)
    together = augmented(sizes).draw(5, 6, samples, *sizes)
    for rows in ([17], [3, 299, 3], list(range(40, 90))):
        assert np.array_equal(augmented(sizes).draw(5, 6, samples[rows], *sizes[:, rows]), together[rows])


PINNED = [
    [26, 182, 199, 183, 1, 0, -3, 0, 0, 3, 13, 24, 22, 32, 0, 0, 0, 0, 32, 0, 0, 0, 32, 3, 0],
    [173, 158, 200, 190, 0, -1, -1, 0, 0, 3, 5, 10, 14, 19, 0, 0, 0, 1, 32, 0, 0, 0, 32, 1, 0],
    [9, 57, 361, 296, 0, -1, 0, 0, 0, 3, 20, 23, 29, 32, 0, 0, 0, 1, 32, 0, 0, 0, 32, 0, 0],
]


def test_the_draws_of_a_seed_never_change():
    sizes = np.array([375, 500, 400]), np.array([500, 375, 400])
    rows = augmented(sizes).draw(42, 1, np.array([0, 1, 1_281_166], np.uint64), *sizes)
    assert rows.tolist() == PINNED
