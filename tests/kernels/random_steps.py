"""Random rows of steps for the tests of kernels, and what the CPU makes of them."""

from __future__ import annotations

import numpy as np

from gpubeton._batch import step_rows as kinds
from gpubeton._batch.color_formulas import MAX_FACTOR, ONE
from gpubeton._batch.run_steps import run_steps
from gpubeton._batch.step_rows import STEP_COLUMNS, fill_columns, step_rows, words
from gpubeton._batch.warp_steps import LARGEST_DIVISOR, perspective_rows
from gpubeton.transforms.blur import bell_weights


def factor(generator, _size):
    """Any factor; its bounds now and then."""
    return [int(generator.choice([int(ONE * 2.0 ** generator.uniform(-3, 3)), 0, MAX_FACTOR * ONE, ONE]))]


def fill(generator):
    return fill_columns(generator.integers(0, 256, 3).tolist()).tolist()


def brightness(generator, size):
    return kinds.BRIGHTNESS, factor(generator, size)


def contrast(generator, size):
    return kinds.CONTRAST, factor(generator, size)


def saturation(generator, size):
    return kinds.SATURATION, factor(generator, size)


def hue(generator, _size):
    return kinds.HUE, [int(generator.choice([generator.integers(-ONE // 2, ONE // 2 + 1), -ONE // 2, ONE // 2, 0]))]


def solarize(generator, _size):
    return kinds.SOLARIZE, [int(generator.integers(0, 257))]


def solarize_add(generator, _size):
    return kinds.SOLARIZE_ADD, [int(generator.integers(0, 256))]


def posterize(generator, _size):
    return kinds.POSTERIZE, [int(generator.integers(0, 9))]


def invert(_generator, _size):
    return kinds.INVERT, []


def autocontrast(_generator, _size):
    return kinds.AUTOCONTRAST, []


def equalize(_generator, _size):
    return kinds.EQUALIZE, []


def paint(generator, size):
    """A rectangle inside the image; some are empty."""
    (top, left), (bottom, right) = np.sort(generator.integers(0, [size[0] + 1, size[1] + 1], (2, 2)), axis=0).tolist()
    return kinds.PAINT, [top, left, bottom, right, *fill(generator)]


def sharpness(generator, _size):
    return kinds.SHARPNESS, [int(generator.choice([int(ONE * 2.0 ** generator.uniform(-3, 3)), 0, 128 * ONE]))]


def blur(generator, size):
    reach = int(generator.integers(0, min(*size, 30)))
    weights = bell_weights(np.array([generator.uniform(0.1, 9)]), 2 * reach + 1)[0]
    return kinds.BLUR, [reach, *weights[reach:].tolist()]


def matrix(generator, size):
    """Turns around the middle, zooms and shears; now and then one that looks far outside."""
    turn, middle = generator.normal(0, 0.7, (2, 2)), np.array(size[::-1]) / 2
    rows = np.column_stack([turn, middle - turn @ middle + generator.normal(0, 1 + max(size) / 9, 2)])
    if generator.random() < 0.1:
        return generator.integers(-(1 << 62), 1 << 62, 6)
    return (rows.reshape(-1) * 2.0**32).astype(np.int64)


def warp_nearest(generator, size):
    return kinds.WARP_NEAREST, [*fill(generator), *words(matrix(generator, size)).tolist()]


def warp_bilinear(generator, size):
    return kinds.WARP_BILINEAR, [*fill(generator), *words(matrix(generator, size)).tolist()]


def perspective(generator, size):
    """Corners that move, also across each other; now and then any numbers."""
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * size[::-1]
    ends = corners + generator.normal(0, 0.2, (4, 2)) * size[::-1]
    numbers = perspective_rows(corners[None].astype(float), ends[None])
    if generator.random() < 0.2:
        numbers = generator.integers(-(1 << 48), 1 << 48, (1, 9))
        numbers[0, 6:] = generator.integers(0, LARGEST_DIVISOR << 16, 3)
    return kinds.PERSPECTIVE, [*fill(generator), *words(numbers)[0].tolist(), int(generator.integers(0, 2))]


def turn(generator, size):
    return kinds.TURN, [int(generator.integers(0, 8 if size[0] == size[1] else 4))]


def shift(generator, size):
    return kinds.SHIFT, [*(int(generator.integers(-length - 2, length + 3)) for length in size), *fill(generator)]


def hsv(generator, _size):
    """Factors from 0 to 2, and any turn."""
    ends = [0, ONE, 2 * ONE]
    factors = [int(generator.choice([*ends, generator.integers(0, 2 * ONE)])) for _ in range(2)]
    return kinds.HSV, [*factors, int(generator.integers(-ONE, ONE))]


def mixture(generator, size):
    """Two chains of steps, which add up."""
    share = int(generator.integers(0, ONE + 1))
    first, second, third = (KINDS[generator.integers(len(KINDS) - 1)](generator, size) for _ in range(3))
    return [
        *[(kinds.SAVE, []), first, second, (kinds.ADD, [share])],
        *[third, (kinds.ADD, [ONE - share]), (kinds.FINISH, [])],
    ]


#: Makes a step of each kind, or several; the first twelve change each pixel by itself.
KINDS = [brightness, contrast, saturation, hue, solarize, solarize_add, posterize, invert, autocontrast, equalize,
         hsv, paint, sharpness, blur, warp_nearest, warp_bilinear, perspective, turn, shift, mixture]  # fmt: skip
NUM_POINTS = 12


def random_rows(generator, count, num_steps, size, makers=KINDS):
    """Steps of some kinds, another list for each image; some are left out."""
    lists = []
    for _ in range(count):
        steps = []
        for _ in range(num_steps):
            step = makers[generator.integers(len(makers))](generator, size)
            step = step if isinstance(step, list) else [step]
            steps += [(kinds.KEEP, [])] if num_steps > 1 and generator.random() < 0.1 else step
        parts = [step_rows(kind, np.array([values], np.int32).reshape(1, -1))[0] for kind, values in steps]
        lists.append(np.concatenate([np.zeros((0, STEP_COLUMNS), np.int32), *parts]))
    rows = np.zeros((count, max(map(len, lists)), STEP_COLUMNS), np.int32)
    for target, source in zip(rows, lists, strict=True):
        target[: len(source)] = source
    return rows


def hostile_rows(generator, count, size):
    """Rows of any content: numbers of any size, small ones, and steps that do not fit."""
    rows = generator.integers(-(1 << 31), 1 << 31, (count, 30, STEP_COLUMNS)).astype(np.int32)
    small = generator.integers(-2 * max(size), 2 * max(size) + 1, rows.shape)
    rows = np.where(generator.random(rows.shape) < 0.5, small, rows).astype(np.int32)
    rows[..., 0] = generator.integers(-3, kinds.NUM_KINDS + 3, rows.shape[:2])
    rows[:, :-1, 1] = np.where(generator.random((count, 29)) < 0.7, 1, rows[:, :-1, 1])
    return rows


def on_cpu(images, rows):
    """What the CPU makes of images."""
    images = images.copy()
    run_steps(images, rows)
    return images
