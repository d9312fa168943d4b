"""Decoders whose crop is chosen by a function of the user's, as FFCV's are written."""

# ruff: noqa: ARG005, NPY002  (functions as users write them for Numba)
from __future__ import annotations

import random

import numpy as np
import pytest

from gpubeton.errors import PipelineError
from gpubeton.fields.rgb_image import (
    CenterCropRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
    ResizedCropRGBImageDecoder,
)
from gpubeton.loader import Loader
from gpubeton.pipeline import Compiler
from gpubeton.transforms import ToTensor
from tests.small_files import picture, write_photos

HEIGHTS, WIDTHS = np.array([40, 90, 61], np.uint16), np.array([50, 70, 61], np.uint16)


def corner(height, width, scale, ratio):
    return 1, 2, int(height * scale[0]), int(width * ratio[1])


def anywhere(height, width, _scale, _ratio):
    return int(np.random.uniform(0, height - 8)), int(random.uniform(0, width - 8)), 8, 8


def outside(height, width, _scale, ratio):
    return 0, 1 if ratio is None else 0, height, width


class Generated(ResizedCropRGBImageDecoder):
    """FFCV's way: an abstract decoder with a property that gives the function."""

    def __init__(self, crop, scale=None, ratio=None):
        super().__init__((8, 8))
        self.crop, self.scale, self.ratio = crop, scale, ratio

    @property
    def get_crop_generator(self):
        return self.crop


def uniform(count, rows=None):
    numbers = np.random.default_rng(4).random((3, count))
    return numbers if rows is None else numbers[rows]


def test_the_function_gets_the_size_of_each_image_and_the_decoders_ranges():
    decoder = Generated(corner, (0.5, 1.0), (0.75, 0.25))
    boxes = decoder.boxes(HEIGHTS, WIDTHS, uniform)
    assert boxes.tolist() == [[1, 2, 20, 12], [1, 2, 45, 17], [1, 2, 30, 15]]
    assert boxes.dtype == np.int32
    with pytest.raises(TypeError, match="pass `uniform`"):
        decoder.boxes(HEIGHTS, WIDTHS, None)


def test_its_draws_depend_only_on_the_images_random_numbers():
    decoder = Generated(anywhere)
    assert decoder.is_random
    first = decoder.boxes(HEIGHTS, WIDTHS, uniform)
    assert first.tolist() == decoder.boxes(HEIGHTS, WIDTHS, uniform).tolist()
    assert len(set(first[:, 0].tolist())) == len(set(first[:, 1].tolist())) == 3
    assert decoder.boxes(HEIGHTS, WIDTHS, lambda count: 1 - uniform(count)).tolist() != first.tolist()


@pytest.mark.parametrize("base", [CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder])
def test_it_replaces_the_crop_of_a_decoder_of_the_librarys(base):
    class Own(base):
        @property
        def get_crop_generator(self):
            return lambda height, width, scale, ratio: (3, 4, 5, 6)

    decoder = Own((8, 8), 0.5) if base is CenterCropRGBImageDecoder else Own((8, 8))
    assert decoder.boxes(HEIGHTS, WIDTHS, uniform).tolist() == [[3, 4, 5, 6]] * 3
    assert base.boxes is not Own.boxes


def test_boxes_come_before_a_generator_of_the_same_class():
    class Both(Generated):
        get_crop_generator = None

        def boxes(self, heights, widths, uniform):
            return np.full((len(heights), 4), 7, np.int32)

    assert Both(corner).boxes(HEIGHTS, WIDTHS, None).tolist() == [[7] * 4] * 3
    with pytest.raises(TypeError, match="abstract"):
        ResizedCropRGBImageDecoder((8, 8))


def test_a_part_that_is_not_in_the_image_is_refused():
    message = (
        r"Generated: get_crop_generator chose .* \[0, 1, 40, 50\] in an image of 40 x 50 .*; expected a part of it"
    )
    with pytest.raises(PipelineError, match=message):
        Generated(outside).boxes(HEIGHTS, WIDTHS, uniform)
    assert Generated(outside, ratio=1.0).boxes(HEIGHTS, WIDTHS, uniform)[:, 2].tolist() == HEIGHTS.tolist()
    with pytest.raises(PipelineError, match="expected a part of it"):
        Generated(lambda height, width, scale, ratio: (0, 0, 0, 5)).boxes(HEIGHTS, WIDTHS, uniform)
    with pytest.raises(PipelineError, match=r"\[-1, 0, 5, 5\]"):
        Generated(lambda height, width, scale, ratio: (-1, 0, 5, 5)).boxes(HEIGHTS, WIDTHS, uniform)


def test_while_compilation_is_off_the_programs_own_generators_are_left_alone(monkeypatch):
    monkeypatch.setattr(Compiler, "is_enabled", False)
    np.random.seed(1)
    random.seed(1)
    Generated(corner, (0.5, 1.0), (0.75, 0.25)).boxes(HEIGHTS, WIDTHS, uniform)
    following = np.random.random(), random.random()
    np.random.seed(1)
    random.seed(1)
    assert following == (np.random.random(), random.random())


def test_a_loader_decodes_the_crop_that_the_function_chooses(tmp_path):
    path = write_photos(tmp_path / "raw.beton", 12, write_mode="raw", size=(48, 64))

    def batches(decoder, epochs=1):
        pipelines = {"image": [decoder, ToTensor()], **dict.fromkeys(["label", "weight", "note", "info", "vector"])}
        loader = Loader(path, 4, num_workers=1, seed=3, pipelines=pipelines)
        return [image.numpy() for _ in range(epochs) for (batch,) in loader for image in batch]

    for number, image in enumerate(batches(Generated(lambda height, width, scale, ratio: (5, 6, 8, 8)))):
        assert np.array_equal(image, picture(number, 48, 64)[5:13, 6:14])
    drawn = batches(Generated(anywhere), epochs=2)
    assert np.array_equal(drawn, batches(Generated(anywhere), epochs=2))
    assert not np.array_equal(drawn[:12], drawn[12:])
