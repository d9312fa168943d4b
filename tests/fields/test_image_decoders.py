from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton.errors import OptionError, PipelineError
from gpubeton.fields.rgb_image import (
    CenterCropRGBImageDecoder,
    PadRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
    ResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)

SIDES = st.integers(1, 3000)


def fixed(numbers):
    return lambda count, rows=None: (numbers if rows is None else numbers[rows])[:, :count]


def torchvision_box(height, width, scale, ratio, numbers):
    """Torchvision's RandomResizedCrop.get_params in plain Python, its random numbers given."""
    for area_share, ratio_share, top, left in numbers.reshape(10, 4):
        area = height * width * (scale[0] + area_share * (scale[1] - scale[0]))
        low, high = math.log(ratio[0]), math.log(ratio[1])
        aspect = math.exp(low + ratio_share * (high - low))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return [int(top * (height - h + 1)), int(left * (width - w + 1)), h, w]
    w, h = width, height
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    w, h = max(w, 1), max(h, 1)
    return [(height - h) // 2, (width - w) // 2, h, w]


@given(
    st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=8),
    st.sampled_from(
        [((0.08, 1.0), (0.75, 4 / 3)), ((0.9, 1.0), (0.9, 1.1)), ((1.0, 1.0), (1.0, 1.0)), ((1e-6, 1e-4), (1, 9))]
    ),
    st.integers(0, 2**32),
)
def test_random_parts_are_torchvisions_for_the_same_numbers(sizes, options, seed):
    scale, ratio = options
    numbers = np.random.default_rng(seed).random((len(sizes), 40))
    heights, widths = np.array(sizes, np.uint16).T
    boxes = RandomResizedCropRGBImageDecoder((8, 8), scale, ratio).boxes(heights, widths, fixed(numbers))
    expected = [torchvision_box(h, w, scale, ratio, number) for (h, w), number in zip(sizes, numbers, strict=True)]
    assert boxes.tolist() == expected
    assert boxes.dtype == np.int32


@given(SIDES, SIDES, st.floats(0.01, 1))
def test_center_crops_are_ffcvs(height, width, ratio):
    side = max(int(ratio * min(height, width)), 1)
    box = CenterCropRGBImageDecoder((8, 8), ratio).boxes(np.array([height]), np.array([width]), None)
    assert box.tolist() == [[(height - side) // 2, (width - side) // 2, side, side]]


def test_a_padded_image_lies_in_the_middle_or_at_the_top_left():
    sizes = np.array([480, 500, 5, 9, 1]), np.array([640, 375, 5, 3, 999])
    places = [[80, 0, 480, 640], [0, 80, 640, 480], [0, 0, 640, 640], [0, 213, 640, 213], [319, 0, 1, 640]]
    assert PadRGBImageDecoder((640, 640)).places(*sizes).tolist() == places
    corner = PadRGBImageDecoder((640, 640), position="top-left").places(*sizes)
    assert corner.tolist() == [[0, 0, *size] for _, _, *size in places]
    assert PadRGBImageDecoder((640, 640)).boxes(*sizes, None)[:, 2:].tolist() == np.stack(sizes, axis=1).tolist()


def test_images_of_one_size_are_decoded_whole_and_of_several_refused_with_both_sizes_and_the_way_out():
    sizes = np.array([5, 5], np.uint16), np.array([7, 7], np.uint16)
    assert SimpleRGBImageDecoder().frame(*sizes) == (5, 7)
    assert SimpleRGBImageDecoder().boxes(*sizes, None).tolist() == [[0, 0, 5, 7]] * 2
    assert issubclass(CenterCropRGBImageDecoder, SimpleRGBImageDecoder)
    with pytest.raises(PipelineError, match=r"5 x 7 .* 5 x 8 .* CenterCrop"):
        SimpleRGBImageDecoder().frame(np.array([5, 5]), np.array([7, 8]))
    with pytest.raises(PipelineError, match="in one pass"):
        SimpleRGBImageDecoder().generate_code()


def test_an_output_size_may_be_set_again_and_a_wrong_one_is_refused_at_once():
    decoder = CenterCropRGBImageDecoder((224, 224), 1.0)
    decoder.output_size = (160, 192)
    for size in ((0, 5), (5,), 0, 5.0, (5.0, 5.0), "big"):
        with pytest.raises(OptionError, match="output_size"):
            decoder.output_size = size
    assert decoder.frame(np.array([1]), np.array([1])) == decoder.output_size == (160, 192)


@pytest.mark.parametrize("size", [32, np.int64(32), (32, 32), [32, 32]])
def test_one_number_is_height_and_width(size):
    decoders = CenterCropRGBImageDecoder, PadRGBImageDecoder, RandomResizedCropRGBImageDecoder
    assert [decoder(size).output_size for decoder in decoders] == [(32, 32)] * 3


def test_a_center_crop_is_by_default_224_of_256_pixels_and_a_crop_of_ones_own_needs_only_boxes():
    class TopLeft(ResizedCropRGBImageDecoder):
        def boxes(self, heights, widths, uniform):
            return np.tile(np.array([0, 0, 1, 1], np.int32), (len(heights), 1))

    assert CenterCropRGBImageDecoder(8).boxes(np.array([256]), np.array([512]), None).tolist() == [[16, 144, 224, 224]]
    assert TopLeft((4, 4)).boxes(np.array([9]), np.array([9]), None).tolist() == [[0, 0, 1, 1]]
