"""Levels become the values of their table, however they are computed, in rows of any length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton.transforms import NormalizeImage
from tests.cpu.guarded import guarded
from tests.cpu.making import draw_of, dtype_of, make_alone, make_one, program_of, stored_jpeg, stored_raw, whole
from tests.cpu.pictures import jpeg, noise, photo

IMAGENET = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
#: A level that equals the mean has to become zero, which level * scale + offset misses by a rounding.
INEXACT = [128.0, 155.0, 248.0], [70.04, 119.754, 104.613]
DTYPES = ["float16", "bfloat16", "float32"]

finite = st.floats(-300, 300, allow_nan=False)
spread = st.floats(0.05, 1e3, allow_nan=False)


def looked_up(table, pixels):
    return table[pixels, np.arange(3)]


@pytest.mark.filterwarnings("ignore:NormalizeImage. (std|mean):UserWarning")  # small numbers, too
@pytest.mark.parametrize("dtype", DTYPES)
@given(st.lists(finite, min_size=3, max_size=3), st.lists(spread, min_size=3, max_size=3))
@settings(max_examples=40)
def test_every_level_becomes_its_value_in_the_table(dtype, mean, std):
    levels = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(1, 256, 3)
    normalize = NormalizeImage(mean, std, dtype)
    out = make_one(program_of(1, 256, "area", normalize), stored_raw(levels))
    assert out.tobytes() == normalize.table().tobytes()


@pytest.mark.parametrize("width", [1, 7, 8, 9, 16, 23, 100])
@pytest.mark.parametrize("dtype", [None, *DTYPES])
def test_rows_of_any_length_are_finished_and_nothing_beyond(width, dtype):
    steps = [] if dtype is None else [NormalizeImage(*IMAGENET, dtype)]
    program, pixels = program_of(1, width, "area", *steps), noise(1, width)
    image = stored_raw(pixels)
    out = guarded(np.zeros((1, 1, width, 3), dtype_of(program)), alignment=1)
    make_alone(program, [image], [draw_of(program, whole(image))], out=out)
    assert out.tobytes() == (pixels if dtype is None else looked_up(program.table, pixels)).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normal", [IMAGENET, INEXACT])
@pytest.mark.parametrize("stored", ["raw", "jpeg"])
def test_any_type_is_the_table_at_the_levels_of_the_uint8_run(dtype, normal, stored):
    for size in ((16, 24), (5, 7), (1, 1), (33, 17)):
        image = stored_raw(noise(40, 50)) if stored == "raw" else stored_jpeg(jpeg(photo(40, 50)))
        levels, program = program_of(*size), program_of(*size, "area", NormalizeImage(*normal, dtype))
        out = make_one(program, image, draw_of(program, whole(image)))
        assert out.dtype == dtype_of(program)
        assert out.tobytes() == looked_up(program.table, make_one(levels, image)).tobytes()
