from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from tests.reference.random_crops import crop

USUAL_NUMBERS = RandomResizedCropRGBImageDecoder.usual_numbers

SIDES = st.integers(1, 12) | st.integers(1, 65535)


def drawn(sizes, scale, ratio, numbers):
    asked = []

    def uniform(count, rows=None):
        asked.append(count)
        return numbers[:, :count] if rows is None else numbers[rows, :count]

    return RandomResizedCropRGBImageDecoder((1, 1), scale, ratio).boxes(*sizes, uniform), asked


@settings(max_examples=300)
@given(
    st.lists(st.tuples(SIDES, SIDES), max_size=8),
    st.floats(0.001, 4),
    st.floats(1, 3),
    st.floats(0.05, 4),
    st.floats(1, 8),
    st.integers(0, 2**32),
)
@example([(5, 5)], 0.5, 1.0, 2.0, 1.0, 0)  # the exponential's last bit decides how a half is rounded
@example([(3, 40), (40, 3)], 0.9, 1.1, 0.75, 16 / 9, 0)
@example([(1, 65535)], 4.0, 1.0, 0.75, 1.0, 0)
def test_crops_are_those_of_the_plain_rule_to_the_pixel(sizes, least, more, narrow, wider, seed):
    scale, ratio = (least, least * more), (narrow, narrow * wider)
    numbers = np.random.default_rng(seed).integers(0, 2**32, (len(sizes), 40)) * 2.0**-32
    boxes, _ = drawn(np.array(sizes, np.int32).reshape(-1, 2).T, scale, ratio, numbers)
    assert boxes.dtype == np.int32
    assert boxes.tolist() == [crop(*size, scale, ratio, number) for size, number in zip(sizes, numbers, strict=True)]


def test_only_images_that_the_usual_numbers_fail_ask_for_more():
    numbers = np.full((3, 40), 0.5)
    numbers[1, :USUAL_NUMBERS:4] = 1  # all of the area, of another aspect ratio
    numbers[1, 1:USUAL_NUMBERS:4] = 0
    sizes = np.full((2, 3), 100)
    assert drawn(sizes[:, :1], (0.1, 1), (0.5, 2), numbers[:1])[1] == [USUAL_NUMBERS]
    boxes, asked = drawn(sizes, (0.1, 1), (0.5, 2), numbers)
    assert asked == [USUAL_NUMBERS, 40]
    assert boxes[0].tolist() == boxes[1].tolist() == boxes[2].tolist()


def test_sizes_and_limits_may_have_any_type():
    numbers = np.random.default_rng(0).random((4, 40))
    usual, _ = drawn(np.full((2, 4), 9), (0.5, 1.0), (1.0, 2.0), numbers)
    for other in (np.asfortranarray(numbers), numbers[:1]):
        for dtype in (np.uint16, np.int32, np.int64):
            boxes, _ = drawn(np.full((2, len(other)), 9, dtype), (0.5, 1), (1, 2), other)
            assert np.array_equal(boxes, usual[: len(other)])
    assert drawn(np.full((2, 4), 9), (3.0, 4.0), (1.0, 2.0), numbers)[1] == [USUAL_NUMBERS, 40]
