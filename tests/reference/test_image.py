from __future__ import annotations

import numpy as np
import pytest

from gpubeton._plan.fusion import compile_image_program
from gpubeton.fields.image_decoders import CenterCropRGBImageDecoder, SimpleRGBImageDecoder
from gpubeton.transforms import Cutout, NormalizeImage
from tests.reference.image import reference_image

IMAGE = np.random.default_rng(0).integers(0, 256, (20, 26, 3), np.uint8)
SIZE = np.array([20]), np.array([26])
SAMPLE = np.zeros(1, np.uint64)


def reference_of(*operations):
    program = compile_image_program("image", 0, operations, *SIZE)
    return reference_image(IMAGE, program.draw(0, 0, SAMPLE, *SIZE)[0], program)


def test_a_whole_image_of_the_same_size_does_not_change():
    assert np.array_equal(reference_of(SimpleRGBImageDecoder()).output, IMAGE)


def test_paints_are_exact_levels():
    levels = reference_of(SimpleRGBImageDecoder(), Cutout(20, (1, 2, 3))).levels
    assert (levels == [1, 2, 3]).all(axis=-1).sum() == 400


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_table_is_looked_up_after_rounding(dtype):
    normalize = NormalizeImage([10, 20, 30], [40, 50, 60], dtype)
    reference = reference_of(CenterCropRGBImageDecoder((8, 8), 1, "bilinear"), normalize)
    assert reference.output[3, 4, 2] == normalize.table()[int(np.rint(reference.levels[3, 4, 2])), 2]
    assert reference.output.dtype == normalize.table().dtype
