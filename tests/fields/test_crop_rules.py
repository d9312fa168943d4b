"""FFCV's functions for the crop of one image, in Python and compiled."""

# ruff: noqa: NPY002  (the generator that the functions draw from)
from __future__ import annotations

import numba
import numpy as np
import pytest

from gpubeton.fields.rgb_image import (
    IMAGE_MODES,
    ResizedCropRGBImageDecoder,
    get_center_crop,
    get_random_crop,
    resizer,
)
from gpubeton.loader import Loader
from gpubeton.loader.loader import ORDER_MAP, ORDER_TYPE, OrderOption
from gpubeton.pipeline import Compiler
from gpubeton.traversal_order import TraversalOrder
from tests.loader.pipelines import ONLY_IMAGE
from tests.small_files import write_photos

#: Height, width and scale; what FFCV 1.0.2 chooses for ratios from 3/4 to 4/3 and the number of the row as seed, and
#: what numpy's generator draws next.
FFCVS = [
    (40, 50, (0.08, 1), (5, 8, 32, 36), 0.4236547993389047),
    (333, 500, (0.08, 1), (0, 61, 261, 296), 0.14675589081711304),
    (500, 333, (0.5, 1), (57, 13, 396, 302), 0.42036780208748903),
    (10, 400, (0.9, 1), (0, 193, 10, 13), 0.28352508177131874),
    (400, 10, (0.9, 1), (193, 0, 13, 10), 0.43614664687979765),
    (61, 61, (1.3, 1.6), (0, 0, 61, 61), 0.5999291966249876),
    (3, 2, (0.08, 1), (1, 0, 2, 2), 0.10765667993596795),
    (4000, 6000, (0.25, 0.5), (726, 2349, 2345, 2754), 0.9779895119966027),
]


@pytest.mark.parametrize("is_compiled", [False, True])
def test_the_random_crop_is_ffcvs_for_the_same_seed(is_compiled):
    crop = Compiler.compile(get_random_crop) if is_compiled else get_random_crop

    def drawn(seed, height, width, scale, ratio):
        np.random.seed(seed)
        return crop(height, width, scale, ratio), np.random.random()

    run = numba.njit(drawn) if is_compiled else drawn
    ratio = np.array((3 / 4, 4 / 3))
    size = np.array([row[:2] for row in FFCVS], np.uint32)
    for seed, (_, _, scale, box, following) in enumerate(FFCVS):
        assert run(seed, *size[seed], np.array(scale), ratio) == (box, following)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_the_central_crop_is_ffcvs(is_compiled):
    crop = Compiler.compile(get_center_crop) if is_compiled else get_center_crop
    assert crop(np.uint32(333), np.uint32(500), None, 0.875) == (21, 104, 291, 291)


def test_an_image_is_made_smaller_by_ffcvs_rule_or_left_as_it_is():
    image = np.zeros((333, 500, 3), np.uint8)
    assert resizer(image, 256).shape == (170, 256, 3)
    assert resizer(image, None) is resizer(image, 500) is image


class Random(ResizedCropRGBImageDecoder):
    scale, ratio = (0.08, 1.0), (3 / 4, 4 / 3)

    @property
    def get_crop_generator(self):
        return get_random_crop


class Central(ResizedCropRGBImageDecoder):
    scale, ratio = None, 0.5

    @property
    def get_crop_generator(self):
        return get_center_crop


def test_decoders_that_choose_by_them_run_in_a_loader(tmp_path):
    path = write_photos(tmp_path / "raw.beton", 12, write_mode="raw", size=(48, 64))

    def batches(decoder):
        return [
            batch for (batch,) in Loader(path, 4, num_workers=1, seed=3, pipelines={**ONLY_IMAGE, "image": [decoder]})
        ]

    assert np.array_equal(batches(Random((8, 8))), batches(Random((8, 8))))
    assert not np.array_equal(batches(Random((8, 8))), batches(Central((8, 8))))
    assert IMAGE_MODES["raw"] == 1


def test_each_order_with_a_name_has_a_class():
    assert ORDER_MAP.keys() == set(OrderOption)
    assert all(issubclass(order, TraversalOrder) for order in ORDER_MAP.values())
    assert isinstance(OrderOption.RANDOM, ORDER_TYPE.__args__[0])
