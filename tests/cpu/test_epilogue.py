from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._cpu.epilogue import AFFINE_HALF, BYTES, TABLE_8, TABLE_16, TABLE_32, Epilogue, store_rows
from gpubeton.transforms import NormalizeImage
from tests.cpu.making import draw_of, dtype_of, make_one, program_of, stored_jpeg, stored_raw, whole
from tests.cpu.pictures import jpeg, noise, photo

IMAGENET = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
#: A level that equals the mean has to become zero, which level * scale + offset misses by a rounding.
INEXACT = [128.0, 155.0, 248.0], [70.04, 119.754, 104.613]

finite = st.floats(-300, 300, allow_nan=False)
spread = st.floats(0.05, 1e3, allow_nan=False)


def finished(finish, pixels, dtype, method=None):
    """The bits that are written, with guards before and after them."""
    bits = np.dtype(f"u{dtype.itemsize}")
    out = np.full((len(pixels) + 2, 3), 0x5A, np.uint8).repeat(bits.itemsize, axis=1).view(bits)
    store_rows(pixels, out[1:-1], finish.method if method is None else method, finish.factors, finish.table)
    guards = out[[0, -1]].view(np.uint8)
    assert (guards == 0x5A).all(), "written beyond the row"
    return out[1:-1]


def all_levels(count=256):
    return np.arange(3 * count).reshape(count, 3).astype(np.uint8)


def looked_up(table, pixels):
    return table[pixels, np.arange(3)]


@pytest.mark.filterwarnings("ignore:NormalizeImage. std:UserWarning")  # small numbers, too
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@given(st.lists(finite, min_size=3, max_size=3), st.lists(spread, min_size=3, max_size=3))
@settings(max_examples=40)
def test_every_level_becomes_its_value_in_the_table(dtype, mean, std):
    table = NormalizeImage(mean, std, dtype).table()
    finish = Epilogue(table, mean, std)
    pixels = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
    out = finished(finish, pixels, table.dtype)
    assert out.tobytes() == table.tobytes()


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 23, 100])
def test_rows_of_any_length_are_finished_and_nothing_beyond(count):
    pixels = all_levels(count)
    for dtype in ("float16", "bfloat16", "float32"):
        table = NormalizeImage(*IMAGENET, dtype).table()
        out = finished(Epilogue(table, *IMAGENET), pixels, table.dtype)
        assert out.tobytes() == looked_up(table, pixels).tobytes()
    assert np.array_equal(finished(Epilogue(None), pixels, np.dtype(np.uint8)), pixels)
    inverse = np.repeat(np.arange(255, -1, -1, dtype=np.uint8)[:, None], 3, axis=1)
    assert np.array_equal(finished(Epilogue(inverse), pixels, np.dtype(np.uint8)), 255 - pixels)


def test_halves_are_computed_where_that_is_exact_and_looked_up_where_not():
    exact, inexact = (
        Epilogue(NormalizeImage(*statistics, "float16").table(), *statistics) for statistics in (IMAGENET, INEXACT)
    )
    assert exact.method == AFFINE_HALF
    assert inexact.method == TABLE_16
    for finish in (exact, inexact):
        pixels = all_levels()
        by_table = finished(finish, pixels, np.dtype(np.uint16), TABLE_16)
        assert np.array_equal(finished(finish, pixels, np.dtype(np.uint16)), by_table)
    assert not np.array_equal(finished(inexact, all_levels(), np.dtype(np.uint16), AFFINE_HALF), by_table)


def test_the_method_follows_the_type():
    tables = {dtype: NormalizeImage(*IMAGENET, dtype).table() for dtype in ("float16", "bfloat16", "float32")}
    methods = {dtype: Epilogue(table, *IMAGENET) for dtype, table in tables.items()}
    assert {dtype: finish.method for dtype, finish in methods.items()} == {
        "float16": AFFINE_HALF,
        "bfloat16": TABLE_16,
        "float32": TABLE_32,
    }
    assert Epilogue(None).method == BYTES
    assert Epilogue(np.zeros((256, 3), np.uint8)).method == TABLE_8
    assert Epilogue(tables["float16"]).method == TABLE_16, "the mean is not known"
    assert [Epilogue(tables[dtype]).item_size for dtype in tables] == [2, 2, 4]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("normal", [IMAGENET, INEXACT])
@pytest.mark.parametrize("stored", ["raw", "jpeg"])
def test_any_type_is_the_table_at_the_levels_of_the_uint8_run(dtype, normal, stored):
    for size in ((16, 24), (5, 7), (1, 1), (33, 17)):
        image = stored_raw(noise(40, 50)) if stored == "raw" else stored_jpeg(jpeg(photo(40, 50)))
        levels, program = program_of(*size), program_of(*size, "area", NormalizeImage(*normal, dtype))
        out = make_one(program, image, draw_of(program, whole(image)))
        assert out.dtype == dtype_of(program)
        assert out.tobytes() == looked_up(program.table, make_one(levels, image)).tobytes()
