from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._batch import step_rows
from gpubeton.errors import OptionError
from gpubeton.pipeline import State
from gpubeton.transforms import (
    RandomAutocontrast,
    RandomEqualize,
    RandomInvert,
    RandomPosterize,
    RandomSolarization,
)
from tests.apply import LAYOUTS, as_nhwc_array, in_layout
from tests.reference.augment import GOLDEN, IMAGE
from tests.reference.levels import AUTOCONTRAST, EQUALIZE, INVERT, KEEP, POSTERIZE, SOLARIZE, changed

IMAGES = np.random.default_rng(0).integers(0, 256, (7, 33, 30, 3), np.uint8)
IMAGES[1] //= 3
IMAGES[2] = IMAGES[2] // 16 * 3 + 100
IMAGES[3, ..., 1] = 9
IMAGES[4, 3:] = 255
NHWC = State(True, torch.device("cpu"), (33, 30, 3), np.dtype("uint8"))
KINDS = [(KEEP, 0), (SOLARIZE, 0), (SOLARIZE, 101), (SOLARIZE, 256), (INVERT, 0), (AUTOCONTRAST, 0), (EQUALIZE, 0)]
KINDS += [(POSTERIZE, bits) for bits in (0, 1, 5, 8)]
KIND_OF = {
    SOLARIZE: step_rows.SOLARIZE,
    POSTERIZE: step_rows.POSTERIZE,
    INVERT: step_rows.INVERT,
    AUTOCONTRAST: step_rows.AUTOCONTRAST,
    EQUALIZE: step_rows.EQUALIZE,
}
OPERATIONS = {
    "solarize 100.5": RandomSolarization(100.5),
    "posterize 3": RandomPosterize(3),
    "invert": RandomInvert(),
    "autocontrast": RandomAutocontrast(),
    "equalize": RandomEqualize(),
}


def row_of(kind, parameter):
    return step_rows.step_rows(KIND_OF.get(kind, 0), np.array([[parameter]], np.int32))


def applied(steps, layout="numpy"):
    rows = np.concatenate([row_of(*step) for step in steps])
    batch = in_layout(IMAGES, layout)
    assert RandomInvert().apply(batch, rows) is batch
    return as_nhwc_array(batch, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("kind", "parameter"), KINDS)
def test_levels_are_the_exact_ones_rounded_down(kind, parameter, layout):
    expected = np.stack([np.floor(changed(image, kind, parameter)) for image in IMAGES])
    assert np.array_equal(applied([(kind, parameter)] * len(IMAGES), layout), expected)


def test_each_image_has_its_own_kind():
    rows = [(INVERT, 0), (EQUALIZE, 0), (KEEP, 0), (AUTOCONTRAST, 0), (EQUALIZE, 0), (SOLARIZE, 7), (SOLARIZE, 200)]
    expected = [np.floor(changed(image, *row)) for image, row in zip(IMAGES, rows, strict=True)]
    assert np.array_equal(applied(rows), np.stack(expected))


@pytest.mark.parametrize("name", OPERATIONS)
def test_results_are_torchvisions(name):
    chosen = OPERATIONS[name].draw(lambda count, _rows=None: np.zeros((1, count)), 1, NHWC)
    result = OPERATIONS[name].apply(IMAGE[None].copy(), chosen)[0]
    apart = result.astype(int) - GOLDEN[name]
    # torchvision stretches in float32, which can end below a whole level.
    assert apart.min() >= 0
    assert apart.max() <= (name == "autocontrast")
    assert np.count_nonzero(apart) <= apart.size // 50


def test_a_probability_in_the_place_of_the_threshold_is_refused():
    with pytest.raises(OptionError, match=r"threshold is 0.2.*RandomSolarization\(p=0.2\)"):
        RandomSolarization(0.2)
    assert RandomSolarization(0).threshold == 0
    assert RandomSolarization(1).threshold == 1
