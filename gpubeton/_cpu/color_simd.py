"""Color steps of one output image: brightness, contrast, saturation and hue.

SIMD code runs them on 64 pixels at a time, which stay in registers from the first step to the last. It gives the same
bits as `gpubeton._batch.color_steps`. Very large factors and the last few pixels take the path of its formulas, too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gpubeton._batch import color_formulas
from gpubeton._batch.color_formulas import BLUE_WEIGHT, GREEN_WEIGHT, ONE, RED_WEIGHT, SHIFT, WEIGHTS
from gpubeton._batch.interleave import best_span, deinterleave, interleave, load_planes, store_planes
from gpubeton._batch.step_rows import (
    BRIGHTNESS,
    CONTRAST,
    HUE,
    KEEP,
    SATURATION,
    STEP_COLUMNS,
)
from gpubeton._batch.step_rows import (
    KIND as STEP_KIND,
)
from gpubeton._batch.step_rows import (
    PARAMETERS as STEP_FACTOR,
)
from gpubeton._compile.compile import device_function, inlined
from gpubeton._compile.intrinsics import signed
from gpubeton._compile.simd import HAS_BYTE_PERMUTE, I8, I16, I32, I64, Vector, VectorBuilder, vector_kernel
from gpubeton._cpu.epilogue import ITEM_SIZE, METHOD, store_row

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array

_BRIGHTNESS = int(BRIGHTNESS)
_CONTRAST = int(CONTRAST)
_HUE = int(HUE)
_SATURATION = int(SATURATION)
_ONE = int(ONE)

# Pixels per SIMD step: a vector of 64 bytes for each channel, the widest that CPUs have.
GROUP = 64
# Steps need 16 bits: two vectors for each channel, of the even and of the odd pixels.
_HALF = GROUP // 2
_SPAN = best_span(GROUP)

# Most pixels per call: the sum of 128 times two gray values fits into 16 bits.
MOST_PIXELS = 128 * GROUP

# A factor less 1 has to fit into 16 bits.
LARGEST_FACTOR = 2 * _ONE - 1

# An additional kind of step, if the CPU looks up 64 bytes at once. The result of brightness and contrast depends on the
# value alone, so a table of 256 entries replaces any number of them.
TABLE = -1
TABLE_SIZE = 256

# Columns of a step, int16.
KIND = 0
FACTOR = 1  # less 1, in units of 2**-15; of a hue the factor itself
ADDED = 2  # to each value, the whole part
ADDED_PART = 3  # and the rest in units of 2**-15
STEP_FIELDS = 4


class ColorScratch(NamedTuple):
    """One worker's memory for color steps."""

    steps: Array  # (MAX_STEPS, STEP_FIELDS) int16
    tables: Array  # (MAX_STEPS, TABLE_SIZE) uint8
    planes: Array  # (3 * max(W, GROUP),) int32: channels of some pixels


# --- steps in SIMD ----------------------------------------------------------------------------------------------------
# A value times a factor is the value plus the upper half of (2 * value) * (factor - 1), in units of 2**-15. Rounded
# down, it equals the product with more bits: so SIMD code and `color_formulas` agree.


def _split(channel: Vector) -> list[Vector]:
    """Widen 8-bit values to 16 bits: the even pixels, and the odd ones."""
    pairs = channel.bits(I16, _HALF)
    return [pairs & 255, pairs.shift_right_logical(8)]


def _joined(halves: list[Vector]) -> Vector:
    """Undo `_split`."""
    return (halves[0] | halves[1].shift_left(8)).bits(I8, GROUP)


def _halves(channels: list[Vector]) -> list[list[Vector]]:
    """Split three channels; return the even pixels of all three, and the odd ones."""
    return [list(half) for half in zip(*[_split(channel) for channel in channels], strict=True)]


def _gray(channels: list[Vector]) -> Vector:
    """Return the weighted sum divided by WEIGHTS, rounded down."""
    # With weights of 8 bits, rounded down, the quotient is exact or one too small. The remainder is then below
    # 2 * WEIGHTS and known modulo 2**16: plus 2**15 - WEIGHTS, its uppermost bit is set if one has to be added.
    red, green, blue = channels
    rough = (red * (256 * RED_WEIGHT // WEIGHTS) + green * (256 * GREEN_WEIGHT // WEIGHTS)) + (
        blue * (256 * BLUE_WEIGHT // WEIGHTS)
    )
    gray = rough.shift_right_logical(8)
    left = red * RED_WEIGHT + green * GREEN_WEIGHT + blue * BLUE_WEIGHT - gray * WEIGHTS
    return gray + (left + ((1 << 15) - WEIGHTS)).shift_right_logical(15)


def _turned(channels: list[Vector], factor: Vector) -> list[Vector]:
    """Turn the hue; `color_formulas.turn` explains the arithmetic."""
    # A position on the hexagon is a whole number and a part in units of 2**-15. The absolute value of a negative
    # ``whole + part`` is ``(-1 - whole) + (1 - part)``.
    red, green, blue = channels
    most, least = red.larger(green).larger(blue), red.smaller(green).smaller(blue)
    side = most - least
    corner = side.shift_left(2) + red - green
    corner = most.where_equal(green, side.shift_left(1) + blue - red, corner)
    corner = most.where_equal(red, green - blue, corner)
    whole, part = corner + (side * 12).times_signed_fraction(factor), (side * 12 * factor).shift_right_logical(1)
    # Into one turn: as unsigned numbers, negative ones are the largest.
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


def _complement(part: Vector) -> Vector:
    """Return 1 - part, from 0 to 2**15."""
    return part.like(-(1 << SHIFT)) - part


def _rounded(whole: Vector, part: Vector) -> Vector:
    """Round as `color_formulas` does: a little more than value and part, rounded down."""
    more = (whole.shift_left(8) + part.shift_right_logical(7)).times_fraction(part.like(32864))
    return whole + (part + more).shift_right_logical(SHIFT)


def _changed(emit: VectorBuilder, kind: int | None, step: Vector, values: list[Vector]) -> list[Vector]:
    """Carry out one step on three channels."""

    def every_lane(field: int) -> Vector:
        return emit.splat(emit.load(step + 2 * field, I16, align=2), _HALF)

    factor = every_lane(FACTOR)
    if kind == _HUE:
        return _turned(values, factor)
    if kind == _SATURATION:
        gray = _gray(values)
        away = [(value - gray).shift_left(1).times_signed_fraction(factor) for value in values]
        return [(value + distance).clamp(0, 255) for value, distance in zip(values, away, strict=True)]
    twice = [value.shift_left(1) for value in values]
    changed = [value + two.times_signed_fraction(factor) for value, two in zip(values, twice, strict=True)]
    if kind == _CONTRAST:
        added, added_part = every_lane(ADDED), every_lane(ADDED_PART)
        # The lower half of the product plus the lower part of the addend may carry one.
        lower = [(two * factor).shift_right_logical(1) + added_part for two in twice]
        changed = [value + added + part.shift_right_logical(15) for value, part in zip(changed, lower, strict=True)]
        return [value.clamp(0, 255) for value in changed]
    return [value.smaller(value.like(255)) for value in changed]


@vector_kernel
def _change_groups(
    emit: VectorBuilder,
    pixels: Vector,
    groups: Vector,
    steps: Vector,
    tables: Vector,
    count: Vector,
    stores: Vector,
    sums: Vector,
) -> Vector:
    channels = [emit.variable(emit.fill(I8, GROUP, 0)) for _ in range(3)]
    total = emit.variable(emit.fill(I16, _HALF, 0))

    def carry_out(number: Vector, kind: int | None) -> None:
        values = [channel.get() for channel in channels]
        if kind == TABLE:
            entries = emit.table(tables + number * TABLE_SIZE)
            changed = [value.look_up(entries) for value in values]
        else:
            step = steps + number * (2 * STEP_FIELDS)
            halves = [_changed(emit, kind, step, half) for half in _halves(values)]
            changed = [_joined(list(pair)) for pair in zip(*halves, strict=True)]
        for channel, value in zip(channels, changed, strict=True):
            channel.set(value)

    cases = (*([TABLE] if HAS_BYTE_PERMUTE else []), _SATURATION, _CONTRAST, _HUE)
    with emit.loop(groups) as group:
        first = pixels + group * (3 * GROUP)
        for channel, values in zip(channels, deinterleave(emit, first, GROUP, _SPAN), strict=True):
            channel.set(values)
        with emit.loop(count) as number:
            kind = emit.load(steps + number * (2 * STEP_FIELDS) + 2 * KIND, I16, align=2)
            emit.switch(kind, cases, partial(carry_out, number))
        with emit.when(stores):
            interleave(emit, [channel.get() for channel in channels], first, _SPAN)
        with emit.when(sums):
            for half in _halves([channel.get() for channel in channels]):
                total.set(total.get() + _gray(half))
    return total.get().zero_extend(I32).sum().zero_extend(I64)


@device_function
def change_groups(
    pixels: Array,  # (GROUP * n, 3) uint8, C-contiguous; at most MOST_PIXELS, changed if `stores`
    steps: Array,  # (>= count, STEP_FIELDS) int16: see `write_step`
    tables: Array,  # (>= count, TABLE_SIZE) uint8: of the TABLE steps
    count: int,
    stores: bool,
    sums: bool,
) -> int:
    """Carry out steps in SIMD; return the sum of the new gray values if `sums`, else 0."""
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


# --- writing steps ----------------------------------------------------------------------------------------------------


@inlined
def write_step(
    row: Array,  # (STEP_FIELDS,) int16, written
    kind: int,  # BRIGHTNESS, CONTRAST, SATURATION or HUE
    factor: int,  # in units of 2**-15; from 0 to LARGEST_FACTOR
    added: int,  # what a CONTRAST adds to each value, in units of 2**-15
) -> None:
    """Write a step for `change_groups`."""
    row[KIND] = kind
    row[FACTOR] = factor if kind == _HUE else factor - _ONE
    row[ADDED] = added >> SHIFT
    row[ADDED_PART] = added & (_ONE - 1)


@inlined
def begin_table(
    row: Array,  # (STEP_FIELDS,) int16, written
    table: Array,  # (TABLE_SIZE,) uint8, written
) -> None:
    """Write a TABLE step that changes nothing yet."""
    row[KIND] = TABLE
    for value in range(TABLE_SIZE):
        table[value] = value


@inlined
def continue_table(
    table: Array,  # (TABLE_SIZE,) uint8, changed
    factor: int,  # in units of 2**-15; 0 or more
    added: int,  # what a CONTRAST adds to each value, in units of 2**-15; 0 for a BRIGHTNESS
) -> None:
    """Append a BRIGHTNESS or CONTRAST to a table."""
    for value in range(TABLE_SIZE):
        table[value] = min(max((factor * table[value] + added) >> SHIFT, 0), 255)


@inlined
def _is_idle(kind: int, factor: int) -> bool:
    return kind == KEEP or (factor == 0 if kind == _HUE else factor == _ONE)


@inlined
def _is_simd(kind: int, factor: int) -> bool:
    if HAS_BYTE_PERMUTE and kind in (_BRIGHTNESS, _CONTRAST):
        return True
    return factor <= LARGEST_FACTOR


@device_function
def _write_steps(steps: Array, added: int, memory: ColorScratch, count: int) -> int:
    """Write the steps that change something after `count` others; return the new count, or -1 if SIMD cannot do one."""
    for step in range(0, steps.shape[0], STEP_COLUMNS):
        kind, factor = signed(steps[step + STEP_KIND]), signed(steps[step + STEP_FACTOR])
        if not _is_simd(kind, factor):
            return -1
        if _is_idle(kind, factor):
            continue
        addend = added if kind == _CONTRAST else 0
        if HAS_BYTE_PERMUTE and kind in (_BRIGHTNESS, _CONTRAST):
            if count == 0 or memory.steps[count - 1, KIND] != TABLE:
                begin_table(memory.steps[count], memory.tables[count])
                count += 1
            continue_table(memory.tables[count - 1], factor, addend)
        else:
            write_step(memory.steps[count], kind, factor, addend)
            count += 1
    return count


# --- steps without SIMD -----------------------------------------------------------------------------------------------

_blend = device_function(color_formulas.blend)
_saturate = device_function(color_formulas.saturate)
_turn = device_function(color_formulas.turn)
_gray_sum = device_function(color_formulas.gray_sum)


@device_function
def _change_rest(pixels: Array, memory: Array, steps: Array, added: int) -> int:
    """Change at most a row of pixels; return the sum of the new gray values."""
    # Only the first step may be a contrast.
    planes = memory[: 3 * pixels.shape[0]].reshape((3, pixels.shape[0]))
    load_planes(pixels, planes)
    for step in range(0, steps.shape[0], STEP_COLUMNS):
        kind, factor = steps[step + STEP_KIND], steps[step + STEP_FACTOR]
        if kind == _SATURATION:
            _saturate(planes, factor)
        elif kind == _HUE:
            _turn(planes, factor)
        elif kind != KEEP and factor != _ONE:
            _blend(planes, factor, added if kind == _CONTRAST else 0)
    store_planes(planes, pixels)
    total: int = _gray_sum(planes)
    return total


# --- an image ---------------------------------------------------------------------------------------------------------


@device_function
def change_colors(
    image: Array,  # (H, W, 3) uint8, C-contiguous: the u8 staging image, changed
    steps: Array,  # (K * STEP_COLUMNS,) int32: step rows of colors, or KEEP
    memory: ColorScratch,
    target: int,  # address of the output image; 0: the image itself is the result
    output: Array,  # settings, factors and table: see `epilogue`
    factors: Array,
    table: Array,
) -> None:
    """Carry out the color steps of one image, and store it."""
    height, width = image.shape[0], image.shape[1]
    size = height * width
    pixels = image.reshape((size, 3))
    count, stop, total, waiting, is_contrast = steps.shape[0], 0, 0, 0, False
    is_simd = True
    for step in range(0, count, STEP_COLUMNS):
        is_simd = is_simd and _is_simd(signed(steps[step + STEP_KIND]), signed(steps[step + STEP_FACTOR]))
    # One pass over the image for each contrast, which needs the mean of all pixels, and one for the steps before it.
    while True:
        start, added = stop, 0
        if is_contrast:
            added = (_ONE - signed(steps[start + STEP_FACTOR])) * total // size
            stop += STEP_COLUMNS
        # Up to the next contrast that changes something.
        while stop < count and (
            steps[stop + STEP_KIND] != _CONTRAST or _is_idle(steps[stop + STEP_KIND], steps[stop + STEP_FACTOR])
        ):
            stop += STEP_COLUMNS
        total, is_contrast = 0, stop < count
        run = steps[start:stop]
        num_steps = _write_steps(run, added, memory, waiting)
        # A table alone waits for the contrast that follows, and includes it.
        waiting = 1 if is_contrast and is_simd and num_steps == 1 and memory.steps[0, KIND] == TABLE else 0
        # Without SIMD, rows. SIMD takes as much as fits into the first cache, and stores it from there.
        chunk = MOST_PIXELS if num_steps >= 0 else width
        for first in range(0, size, chunk):
            part = pixels[first : first + chunk]
            in_groups = part.shape[0] // GROUP * GROUP if num_steps >= 0 else 0
            if num_steps != 0 or is_contrast:
                stores = num_steps > 0 and waiting == 0
                total += change_groups(part[:in_groups], memory.steps, memory.tables, num_steps, stores, is_contrast)
                rest = part[in_groups:]
                if rest.shape[0] > 0:
                    total += _change_rest(rest, memory.planes, run, added)
            if target != 0 and not is_contrast:
                place = target + 3 * output[ITEM_SIZE] * first
                store_row(part.ctypes.data, place, part.shape[0], output[METHOD], factors, table)
        if not is_contrast:
            return
