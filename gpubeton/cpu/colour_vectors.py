"""Steps on colours in vectors: 64 pixels stay in registers from the first step to the last.

Levels have 16 bits, in vectors of their own for each channel. A level times a factor, in units of 2**-15, is the level
and the upper half of twice the level times what the factor is more or less than 1: rounded down, it is the same number
as if there were more bits, so that everything agrees with `gpubeton.batch.colour_steps`.

What brightness and contrast make of a level depends on nothing else: where a machine looks 64 bytes up at a time,
tables do it, and several of them are one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpubeton.batch.colour_steps import (
    BLUE_WEIGHT,
    CONTRAST,
    GREEN_WEIGHT,
    HUE,
    ONE,
    RED_WEIGHT,
    SATURATION,
    WEIGHTS,
)
from gpubeton.cpu.compile import inlined, stage
from gpubeton.cpu.lanes import I8, I16, I32, I64, Emitter, Lanes, vector_kernel
from gpubeton.cpu.memory import signed
from gpubeton.cpu.weaving import load_channels, permutes_bytes, store_channels, usual_span

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array

_CONTRAST, _HUE, _SATURATION, _ONE = int(CONTRAST), int(HUE), int(SATURATION), int(ONE)
_SHIFT = 15

# Pixels at a time: for each channel a vector of 8-bit levels, of 64 bytes, the widest that machines have.
GROUP = 64

_SPAN = usual_span(GROUP)

# Whether TABLE is among the kinds of steps.
HAS_TABLES = permutes_bytes()

# Or two vectors of 16-bit levels, every other pixel and those between them.
_HALF = GROUP // 2

# The most of them at a time: sums of 128 times two gray values fit 16 bits.
MOST_PIXELS = 128 * GROUP

# What is more or less than 1 has 16 bits.
LARGEST_FACTOR = 2 * ONE - 1

# A kind of its own: each level becomes what stands in the step's table.
TABLE = -1
LEVELS = 256

# Columns of a step, int16.
KIND = 0
FACTOR = 1  # less 1, in units of 2**-15; of a hue the factor itself
ADDED = 2  # to each level: whole levels
ADDED_PART = 3  # and 2**-15 of one
STEP_FIELDS = 4


@inlined
def write_step(row: Array, kind: int, factor: int, added: int) -> None:
    """Write a step down as `change_groups` reads it.

    Parameters
    ----------
    row : ndarray of int16, shape (STEP_FIELDS,)
        Written.
    kind : int
        BRIGHTNESS, CONTRAST, SATURATION or HUE.
    factor : int
        In units of 2**-15; from 0 to LARGEST_FACTOR.
    added : int
        What a CONTRAST adds to each level, in units of 2**-15.
    """
    row[KIND] = kind
    row[FACTOR] = factor if kind == _HUE else factor - _ONE
    row[ADDED] = added >> _SHIFT
    row[ADDED_PART] = added & (_ONE - 1)


@inlined
def begin_table(row: Array, table: Array) -> None:
    """Make a step that changes nothing, for `continue_table`.

    Parameters
    ----------
    row : ndarray of int16, shape (STEP_FIELDS,)
        Written.
    table : ndarray of uint8, shape (LEVELS,)
        Written.
    """
    row[KIND] = TABLE
    for level in range(LEVELS):
        table[level] = level


@inlined
def continue_table(table: Array, factor: int, added: int) -> None:
    """Let a table do what it did, and a BRIGHTNESS or CONTRAST afterwards.

    Parameters
    ----------
    table : ndarray of uint8, shape (LEVELS,)
        Changed.
    factor : int
        In units of 2**-15; 0 or more.
    added : int
        What a CONTRAST adds to each level, in units of 2**-15; 0 for a BRIGHTNESS.
    """
    for level in range(LEVELS):
        table[level] = min(max((factor * table[level] + added) >> _SHIFT, 0), 255)


def _split(channel: Lanes) -> list[Lanes]:
    """Levels of 8 bits in 16 bits: every other one, and those between them."""
    pairs = channel.bits(I16, _HALF)
    return [pairs & 255, pairs.shift_right_logical(8)]


def _merged(halves: list[Lanes]) -> Lanes:
    """What was split."""
    return (halves[0] | halves[1].shift_left(8)).bits(I8, GROUP)


def _gray(channels: list[Lanes]) -> Lanes:
    """The weighed sum over WEIGHTS, rounded down.

    Weights of 8 bits, rounded down, give it or one less. What is then left of the exact sum is known modulo 2**16, and
    below twice WEIGHTS: so 2**15 less WEIGHTS carries one into the uppermost bit if there is one to be added.
    """
    red, green, blue = channels
    rough = (red * (256 * RED_WEIGHT // WEIGHTS) + green * (256 * GREEN_WEIGHT // WEIGHTS)) + (
        blue * (256 * BLUE_WEIGHT // WEIGHTS)
    )
    gray = rough.shift_right_logical(8)
    left = red * RED_WEIGHT + green * GREEN_WEIGHT + blue * BLUE_WEIGHT - gray * WEIGHTS
    return gray + (left + ((1 << 15) - WEIGHTS)).shift_right_logical(15)


def _turned(channels: list[Lanes], factor: Lanes) -> list[Lanes]:
    """The hue turned; see `colour_tensors.turn` for how.

    A place on the hexagon is a whole number and a part in units of 2**-15. Less than nothing, ``whole + part``, is
    without its sign ``(-1 - whole) + (1 - part)``.
    """
    red, green, blue = channels
    most, least = red.larger(green).larger(blue), red.smaller(green).smaller(blue)
    side = most - least
    corner = side.shift_left(2) + red - green
    corner = most.where_equal(green, side.shift_left(1) + blue - red, corner)
    corner = most.where_equal(red, green - blue, corner)
    whole, part = corner + (side * 12).times_signed_fraction(factor), (side * 12 * factor).shift_right_logical(1)
    # Negative numbers are the largest of those without a sign.
    whole = whole.smaller_unsigned(whole + side * 6)
    whole = whole.smaller_unsigned(whole - side * 6)
    rest = _complement(part)
    turned = []
    for at in (3, 2, 4):
        from_there = whole - side * at
        away, away_part = from_there.where_negative(from_there ^ -1, from_there), from_there.where_negative(rest, part)
        if at == 3:
            height, height_part = away - side, away_part
        else:
            height, height_part = (side * 2 - 1) - away, _complement(away_part)
        height_part = height.where_smaller_unsigned(side, height_part, part.like(0))
        turned.append(_rounded(least + height.larger(part.like(0)).smaller(side), height_part))
    return turned


def _complement(part: Lanes) -> Lanes:
    """What is missing to 1, from 0 to 2**15."""
    return part.like(-(1 << _SHIFT)) - part


def _rounded(whole: Lanes, part: Lanes) -> Lanes:
    """See `colour_tensors`: a little more than level and part, rounded down."""
    more = (whole.shift_left(8) + part.shift_right_logical(7)).times_fraction(part.like(32864))
    return whole + (part + more).shift_right_logical(_SHIFT)


def _changed(emit: Emitter, kind: int | None, step: Lanes, levels: list[Lanes]) -> list[Lanes]:
    """The levels of three channels after a step."""

    def every_lane(field: int) -> Lanes:
        return emit.splat(emit.load(step + 2 * field, I16, align=2), _HALF)

    factor = every_lane(FACTOR)
    if kind == _HUE:
        return _turned(levels, factor)
    if kind == _SATURATION:
        gray = _gray(levels)
        twice = [(level - gray).shift_left(1) for level in levels]
        away = [one.times_signed_fraction(factor) for one in twice]
        return [(level + one).clamp(0, 255) for level, one in zip(levels, away, strict=True)]
    twice = [level.shift_left(1) for level in levels]
    changed = [level + two.times_signed_fraction(factor) for level, two in zip(levels, twice, strict=True)]
    if kind == _CONTRAST:
        added, added_part = every_lane(ADDED), every_lane(ADDED_PART)
        # The lower half of the product and the lower part of what is added may make one more.
        lower = [(two * factor).shift_right_logical(1) + added_part for two in twice]
        changed = [one + added + part.shift_right_logical(15) for one, part in zip(changed, lower, strict=True)]
        return [level.clamp(0, 255) for level in changed]
    return [level.smaller(level.like(255)) for level in changed]


def _looked_up(emit: Emitter, table: Lanes, channels: list[Lanes]) -> list[Lanes]:
    entries = [emit.load(table + GROUP * part, I8, GROUP) for part in range(LEVELS // GROUP)]
    return [channel.look_up(entries) for channel in channels]


def _halves(channels: list[Lanes]) -> list[list[Lanes]]:
    """Twice three channels, of 16 bits."""
    return [list(half) for half in zip(*[_split(channel) for channel in channels], strict=True)]


@vector_kernel
def _change_groups(
    emit: Emitter, pixels: Lanes, groups: Lanes, steps: Lanes, tables: Lanes, count: Lanes, stores: Lanes, sums: Lanes
) -> Lanes:
    channels = [emit.variable(emit.fill(I8, GROUP, 0)) for _ in range(3)]
    total = emit.variable(emit.fill(I16, _HALF, 0))

    def carry_out(number: Lanes, kind: int | None) -> None:
        levels = [channel.get() for channel in channels]
        if kind == TABLE:
            changed = _looked_up(emit, tables + number * LEVELS, levels)
        else:
            step = steps + number * (2 * STEP_FIELDS)
            halves = [_changed(emit, kind, step, half) for half in _halves(levels)]
            changed = [_merged(list(one)) for one in zip(*halves, strict=True)]
        for channel, level in zip(channels, changed, strict=True):
            channel.set(level)

    kinds = (*([TABLE] if HAS_TABLES else []), _SATURATION, _CONTRAST, _HUE)
    with emit.loop(groups) as group:
        first = pixels + group * (3 * GROUP)
        for channel, levels in zip(channels, load_channels(emit, first, GROUP, _SPAN), strict=True):
            channel.set(levels)
        with emit.loop(count) as number:
            kind = emit.load(steps + number * (2 * STEP_FIELDS) + 2 * KIND, I16, align=2)
            emit.switch(kind, kinds, partial(carry_out, number))
        with emit.when(stores):
            store_channels(emit, [channel.get() for channel in channels], first, _SPAN)
        with emit.when(sums):
            for half in _halves([channel.get() for channel in channels]):
                total.set(total.get() + _gray(half))
    return total.get().zero_extend(I32).sum().zero_extend(I64)


@stage
def change_groups(pixels: Array, steps: Array, tables: Array, count: int, stores: bool, sums: bool) -> int:
    """Carry out steps on pixels.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (GROUP * n, 3), C-contiguous
        Levels; at most MOST_PIXELS.
    steps : ndarray of int16, shape (>= count, STEP_FIELDS)
        See `write_step`.
    tables : ndarray of uint8, shape (>= count, LEVELS)
        Of the steps that are tables, see `begin_table`.
    count : int
        How many steps.
    stores : bool
        Whether to write the new levels over the old ones.
    sums : bool
        Whether to sum.

    Returns
    -------
    int
        The sum of the new gray values, or 0.
    """
    total: int = signed(
        _change_groups(
            pixels.ctypes.data,
            pixels.shape[0] // GROUP,
            steps.ctypes.data,
            tables.ctypes.data,
            count,
            1 if stores else 0,
            1 if sums else 0,
        )
    )
    return total
