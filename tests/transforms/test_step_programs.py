"""Lists of steps of all kinds: carried out one after another, inside their memory, for any list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._batch import step_rows as kinds
from gpubeton._batch.color_formulas import MAX_FACTOR, ONE
from gpubeton._batch.run_steps import STEP_FUNCTIONS, run_listed
from gpubeton._batch.step_code import addresses_of, image_nbytes, layout_of, memory_nbytes
from gpubeton._batch.step_rows import ADD, FINISH, KEEP, NUM_KINDS, SAVE, fill_columns, step_rows, words
from gpubeton._batch.warp_steps import IDENTITY, perspective_rows
from gpubeton.transforms.blur import bell_weights
from gpubeton.transforms.warps import affine_rows
from tests.cpu.guarded import Slots, guarded

MOST_STEPS = 14
CANARY = 0xA5

#: Kinds that change images of 16 bits, too.
FOR_ALL = {
    kinds.WARP_NEAREST, kinds.WARP_BILINEAR, kinds.PERSPECTIVE, kinds.PAINT, kinds.TURN, kinds.SHIFT, kinds.HSV,
    SAVE, ADD, FINISH,
}  # fmt: skip


class Fenced:
    """Memory full of canaries, with more of them around it and an unreadable page soon after it."""

    def __init__(self, size):
        slots = Slots(1, size + 128)
        self.memory = slots.starting(0, bytes([CANARY]) * slots.size)
        self.start, self.stop = slots.size - -(-size // 64) * 64, slots.size - -(-size // 64) * 64 + size

    @property
    def inner(self):
        return self.memory[self.start : self.stop]

    def is_intact(self):
        return bool((self.memory[: self.start] == CANARY).all() and (self.memory[self.stop :] == CANARY).all())


class Parameters:
    """Draws the parameters of steps: any that operations draw, often the least or the largest."""

    def __init__(self, random, size, most):
        self.random, self.size, self.most = random, size, most

    def between(self, low, high):
        """A whole number; every second one is at the bounds, or next to them."""
        near = [low, min(low + 1, high), max(high - 1, low), high]
        return int(self.random.choice(near) if self.random.random() < 0.5 else self.random.integers(low, high + 1))

    def fill(self):
        return fill_columns(self.random.integers(0, self.most + 1, 4).tolist()).tolist()

    def factor(self):
        return [self.between(*[(0, 2 * ONE), (0, MAX_FACTOR * ONE), (ONE, ONE)][self.random.integers(3)])]

    def blur(self):
        reach = self.between(0, min(*self.size, 90))
        if self.random.random() < 0.5:
            return [reach, *bell_weights(self.random.uniform(0.1, 99, 1), 2 * reach + 1)[0, reach:].tolist()]
        # Nearly all of it as far away as can be.
        sides = np.zeros(reach, int)
        sides[-1:] = ONE // 2 - 1
        return [reach, ONE - 2 * int(sides.sum()), *sides.tolist()]

    def warp(self):
        scale = 2.0 ** self.between(-8, 8) * self.random.choice([1, self.random.uniform(0.5, 1)]).clip(2**-8)
        shift, angle = self.random.uniform(-1, 1, 2) * max(self.size), self.random.uniform(-180, 180)
        shear = self.between(-89, 89), self.between(-89, 89)
        numbers = affine_rows(self.size, angle, tuple(shift), min(scale, 2.0**8), shear)
        numbers = np.array([IDENTITY]) if self.random.random() < 0.1 else numbers
        return [*self.fill(), *words(numbers)[0].tolist()]

    def perspective(self):
        height, width = self.size
        start = np.array([[[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]])
        end = self.random.uniform(-1, 2, (1, 4, 2)) * (width, height)
        end = end if self.random.random() < 0.5 else np.rint(start + (end - start) * self.random.choice([0, 0.25, 1]))
        return [*self.fill(), *words(perspective_rows(start, end))[0].tolist(), self.between(0, 1)]

    def paint(self):
        (top, bottom), (left, right) = ([self.between(0, side) for _ in range(2)] for side in self.size)
        return [top, left, bottom, right, *self.fill()]

    def of(self, kind):
        if kind in (kinds.WARP_NEAREST, kinds.WARP_BILINEAR):
            return self.warp()
        if kind in (kinds.BRIGHTNESS, kinds.CONTRAST, kinds.SATURATION):
            return self.factor()
        height, width = self.size
        makers = {
            kinds.HUE: lambda: [self.between(-ONE // 2, ONE // 2)],
            kinds.SOLARIZE: lambda: [self.between(0, self.most + 1)],
            kinds.SOLARIZE_ADD: lambda: [self.between(0, 255)],
            kinds.POSTERIZE: lambda: [self.between(0, 8)],
            kinds.SHARPNESS: lambda: [self.between(0, 128 * ONE)],
            kinds.BLUR: self.blur,
            kinds.PERSPECTIVE: self.perspective,
            kinds.PAINT: self.paint,
            kinds.TURN: lambda: [self.between(0, 7 if height == width else 3)],
            kinds.SHIFT: lambda: [*(self.between(-side - 1, side + 1) for side in self.size), *self.fill()],
            kinds.HSV: lambda: [*(self.between(0, 2 * ONE) for _ in range(2)), self.between(-ONE // 2, ONE // 2)],
        }
        return makers[kind]() if kind in makers else []


def draw_steps(random, size, dtype):
    """Draw a list of kinds and rows; added images weigh at most 1."""
    parameters, steps, rest = Parameters(random, size, np.iinfo(dtype).max), [], None
    for choice in random.choice([*range(NUM_KINDS)] if dtype == np.uint8 else [KEEP, *FOR_ALL], MOST_STEPS):
        kind = SAVE if choice in (ADD, FINISH) and rest is None else int(choice)
        values = parameters.of(kind)
        if kind == ADD:
            values = [parameters.between(0, rest)]
        rest = {SAVE: ONE, FINISH: None}.get(kind, rest - values[0] if kind == ADD else rest)
        steps.append((kind, step_rows(kind, np.array([values], np.int32).reshape(1, -1))))
    return steps[: random.integers(1, MOST_STEPS + 1)]


def draw_image(random, shape, dtype):
    """Noise, of all levels or of few, or a single level."""
    noise = random.integers(0, np.iinfo(dtype).max + 1, shape, dtype)
    return [noise, noise // 30 + 17, noise // 128 * 255, np.full_like(noise, np.iinfo(dtype).max)][random.integers(4)]


def one_after_another(image, steps):
    kept = total = None
    for kind, rows in steps:
        if kind == SAVE:
            kept, total = image, np.zeros(image.shape, np.int64)
        elif kind == ADD:
            total += rows[0, 0, kinds.PARAMETERS] * image.astype(np.int64)
            image = kept
        elif kind == FINISH:
            image = ((total + ONE // 2) // ONE).astype(image.dtype)
        else:
            image = carried_out(image, [(kind, rows)])
    return image


def carried_out(image, steps):
    """The image after steps, whose buffers are fenced."""
    rows = guarded(np.concatenate([rows for _, rows in steps], axis=1).reshape(1, -1))
    listed = {kind for kind, _ in steps}
    buffers = [Fenced(image_nbytes(*image.shape, image.itemsize)) for _ in range(2)] + [
        Fenced(memory_nbytes(*image.shape, listed))
    ]
    levels, layout = guarded(image), guarded(layout_of(*image.shape, image.dtype))
    run_listed(
        levels.reshape(1, -1).view(np.uint8),
        rows,
        addresses_of(STEP_FUNCTIONS, listed),
        *(buffer.inner for buffer in buffers),
        layout,
    )
    assert [buffer.is_intact() for buffer in buffers] == [True] * 3
    return levels


SIDES = st.one_of(st.integers(1, 20), st.integers(1, 100), st.integers(1, 600))


@pytest.mark.parametrize(("channels", "dtype"), [(3, np.uint8), (1, np.uint8), (4, np.uint8), (3, np.uint16)])
@given(seed=st.integers(0, 2**32), height=SIDES, width=SIDES, is_square=st.booleans())
@settings(max_examples=150)
def test_a_list_of_steps_is_each_of_them_inside_its_memory(channels, dtype, seed, height, width, is_square):
    random, size = np.random.default_rng(seed), (height, height if is_square else width)
    steps, image = draw_steps(random, size, dtype), draw_image(random, (*size, channels), dtype)
    assert np.array_equal(carried_out(image, steps), one_after_another(image, steps))


def test_every_kind_of_step_is_drawn():
    drawn = {kind for seed in range(60) for kind, _ in draw_steps(np.random.default_rng(seed), (9, 9), np.uint8)}
    assert drawn == set(range(NUM_KINDS))
