"""Images with drawn steps carried out on them; ``python -m tests.cpu.changed_colors FILE`` saves them."""

from __future__ import annotations

import sys

import numpy as np

from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.run_steps import run_steps
from gpubeton._batch.step_rows import BRIGHTNESS, HUE, STEP_COLUMNS, step_rows
from gpubeton._compile.simd import HAS_BYTE_PERMUTE
from gpubeton.transforms import ColorJitter
from tests.cpu.making import draw_of, make, program_of, stored_raw, whole

# Less than a group of pixels, some groups and a rest, and more than is worked on at a time.
SIZES = [(5, 7), (37, 50), (90, 110)]
#: Room for eight steps.
STEPS = [ColorJitter(0.1, 0.1, 0.1, 0.1)] * 2
MOST = 8


def drawn(seed):
    """An image and its steps."""
    random = np.random.default_rng(seed)
    image = random.integers(0, 256, (*SIZES[seed % 3], 3), np.uint8)
    kinds = random.integers(BRIGHTNESS, HUE + 1, random.integers(1, 9))
    # Too large for vectors, if they are of no hue and no table: none in every other image.
    share = 0.3 * (seed // 3 % 2)
    factors = random.integers(0, 2 * ONE, len(kinds)) + 3 * ONE * (random.random(len(kinds)) < share)
    factors[random.random(len(kinds)) < 0.1] = ONE
    factors[kinds == HUE] = random.integers(-ONE // 2, ONE // 2, (kinds == HUE).sum())
    return image, np.stack([kinds, factors], axis=1).astype(np.int32).ravel()


def changed(image, steps):
    """The image after the steps: a kind and a factor for each, up to eight."""
    program, stored = program_of(*image.shape[:2], "area", *STEPS), stored_raw(image)
    rows = np.zeros((1, MOST, STEP_COLUMNS), np.int32)
    rows[:, : len(steps) // 2] = rows_of(steps)
    out, bad = make(program, [stored], [draw_of(program, whole(stored))], rows)
    assert bad == []
    return out[0]


def rows_of(steps):
    """The rows of steps on colors."""
    pairs = np.array(steps, np.int32).reshape(-1, 2)
    return np.concatenate([step_rows(kind, np.array([[factor]], np.int32)) for kind, factor in pairs], axis=1)


def changed_by_lines(image, steps):
    """The same, one step after another, as operations do on a finished batch."""
    image = image.copy()
    run_steps(image[None], rows_of(steps))
    return image


if __name__ == "__main__":
    np.savez(sys.argv[1], *[changed(*drawn(seed)) for seed in range(120)], has_tables=HAS_BYTE_PERMUTE)
