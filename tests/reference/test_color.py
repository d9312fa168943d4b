from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpubeton._batch import step_rows
from gpubeton.transforms import RandomBrightness
from tests.reference.color import BRIGHTNESS, CONTRAST, HUE, SATURATION, steps

KINDS = {"brightness": BRIGHTNESS, "contrast": CONTRAST, "saturation": SATURATION, "hue": HUE}

with np.load(Path(__file__).with_name("torchvision.npz")) as archive:
    TORCHVISION = dict(archive)
IMAGE = TORCHVISION.pop("image")


@pytest.mark.parametrize("name", TORCHVISION)
def test_the_reference_and_the_transforms_are_torchvision_itself(name):
    kind, factor = name.split()
    row = np.array([KINDS[kind], int(factor)], np.int32)
    draw = step_rows.step_rows(getattr(step_rows, kind.upper()), row[None, 1:])
    for result in (steps(IMAGE, row), RandomBrightness(0.5).apply(IMAGE[None].copy(), draw)[0]):
        apart = np.abs(result.astype(int) - TORCHVISION[name])
        # torchvision turns hues in float32, which now and then rounds the other way.
        assert apart.max() <= (kind == "hue")
        assert np.count_nonzero(apart) <= apart.size // 1000
