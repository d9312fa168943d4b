from __future__ import annotations

import numpy as np
import pytest

from gpubeton._cpu.epilogue import (
    FIRST_FILL,
    INTERPOLATION,
    ITEM_SIZE,
    METHOD,
    OUT_HEIGHT,
    OUT_WIDTH,
    draw_columns,
    outputs_of,
)
from gpubeton._cpu.worker_pool import Worker
from gpubeton._plan.draw_rows import DRAW_COLUMNS, PAINT_COLUMNS
from gpubeton.pipeline.interpolation import INTERPOLATIONS
from gpubeton.transforms import Cutout, NormalizeImage, RandomTranslate
from tests.cpu.making import program_of

SMALL = program_of(4, 6)
LARGE = program_of(20, 9, "bilinear", Cutout(3, (1, 2, 3)), RandomTranslate(2, (4, 5, 6)))
HALF = program_of(7, 8, "antialias", Cutout(2), NormalizeImage([120] * 3, [60] * 3, "float16"))


def test_a_row_of_draws_is_as_long_as_the_longest():
    assert draw_columns([SMALL]) == DRAW_COLUMNS
    assert draw_columns([SMALL, LARGE, HALF]) == DRAW_COLUMNS + 3 * PAINT_COLUMNS


def test_outputs_hold_the_settings_of_each_program():
    outputs = outputs_of([SMALL, LARGE, HALF])
    assert outputs.settings[:, [OUT_HEIGHT, OUT_WIDTH]].tolist() == [[4, 6], [20, 9], [7, 8]]
    names = ("area", "bilinear", "antialias")
    assert outputs.settings[:, INTERPOLATION].tolist() == [INTERPOLATIONS[name] for name in names]
    assert outputs.settings[:, ITEM_SIZE].tolist() == [1, 1, 2]
    assert outputs.settings[0, METHOD] != outputs.settings[2, METHOD]
    starts = outputs.settings[:, FIRST_FILL]
    for program, start in zip((SMALL, LARGE, HALF), starts.tolist(), strict=True):
        values = program.fills
        if program.table is not None:
            values = program.table.view(np.uint16)[values, np.arange(3)]
        assert np.array_equal(outputs.fills[start : start + len(values), :3], values)
    assert np.array_equal(outputs.tables[2], HALF.table.view(np.uint16))


def test_memory_grows_in_each_direction_and_never_shrinks():
    worker = Worker([SMALL, LARGE], outputs_of([SMALL, LARGE]))
    first = worker.scratch(10, 8, 1000)
    assert worker.scratch(10, 8, 1000) is first
    assert worker.scratch(9, 1, 10) is first
    wider = worker.scratch(1, 50, 10)
    assert wider.capacity.tolist() == [10, 50, 1000]
    assert worker.scratch(1, 1, 2000).capacity.tolist() == [10, 50, 2000]


@pytest.mark.parametrize(("height", "width"), [(1, 65500), (65500, 1), (20000, 16)])
def test_a_long_narrow_image_takes_little_memory(height, width):
    programs = [program_of(height, width), program_of(height, width, kind="gray")]
    worker = Worker(programs, outputs_of(programs))
    for scratch in (worker.scratch(height, width, 1), worker.plain_scratch(height, width)):
        nbytes = sum(array.nbytes for array in scratch if isinstance(array, np.ndarray))
        assert nbytes < 100 << 20


def test_memory_is_enough_for_the_largest_output_and_the_most_taps_in_each_view():
    scratch = Worker([SMALL, LARGE, HALF], outputs_of([SMALL, LARGE, HALF])).scratch(100, 1, 1)
    assert scratch.first.shape == (3, 4, 32)
    assert scratch.words.shape[:3] == scratch.first.shape
    assert scratch.words.shape[3] >= 2 * 100 / 4
    assert len(scratch.views) == len(scratch.planes) == len(scratch.staging) == 3
    assert scratch.pixels.size >= 3 * 16
