"""Images with drawn steps carried out on them; ``python -m tests.cpu.changed_colors FILE`` saves them."""

from __future__ import annotations

import sys

import numba
import numpy as np

from gpubeton._batch.color_formulas import HUE, ONE
from gpubeton._cpu.color_simd import GROUP, HAS_TABLES, STEP_FIELDS, TABLE_SIZE, ColorScratch, change_colors
from gpubeton._cpu.epilogue import ITEM_SIZE, METHOD, OUT_FIELDS, Epilogue
from gpubeton._plan.program import MAX_COLOR_STEPS

# Less than a group, some groups and a rest, and more than is worked on at a time.
SIZES = [(5, 7), (37, 50), (90, 110)]


@numba.njit
def change(image, steps, memory, out, final, factors, table):
    change_colors(image, steps, memory, out.ctypes.data, final, factors, table)


def drawn(seed):
    """An image and its steps."""
    random = np.random.default_rng(seed)
    image = random.integers(0, 256, (*SIZES[seed % 3], 3), np.uint8)
    kinds = random.integers(0, 4, random.integers(1, 9))
    # Too large for vectors, if they are of no hue and no table: none in every other image.
    share = 0.3 * (seed // 3 % 2)
    factors = random.integers(0, 2 * ONE, len(kinds)) + 3 * ONE * (random.random(len(kinds)) < share)
    factors[random.random(len(kinds)) < 0.1] = ONE
    factors[kinds == HUE] = random.integers(-ONE // 2, ONE // 2, (kinds == HUE).sum())
    return image, np.stack([kinds, factors], axis=1).astype(np.int32).ravel()


def changed(image, steps):
    """The image after the steps; its own pixels are not kept."""
    memory = ColorScratch(
        steps=np.zeros((MAX_COLOR_STEPS, STEP_FIELDS), np.int16),
        tables=np.zeros((MAX_COLOR_STEPS, TABLE_SIZE), np.uint8),
        planes=np.zeros(3 * max(image.shape[1], GROUP), np.int32),
    )
    finish, final, out = Epilogue(None), np.zeros(OUT_FIELDS, np.int64), np.zeros_like(image)
    final[METHOD], final[ITEM_SIZE] = finish.method, finish.item_size
    change(image, steps, memory, out, final, finish.factors, finish.table)
    return out


if __name__ == "__main__":
    np.savez(sys.argv[1], *[changed(*drawn(seed)) for seed in range(120)], has_tables=HAS_TABLES)
