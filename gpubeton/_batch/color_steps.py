"""Steps that change colors: BRIGHTNESS to HUE, of which `gpubeton._cpu.color_simd` runs several at a time, and HSV.

HSV: of a pixel with the largest level v, and c, how far its smallest one is below, the value v becomes ``factor * v``,
at most the largest level there is; the saturation ``c / v`` becomes ``factor * c / v``, at most 1; and the hue moves
along HSV's hexagon by a part of its circumference. Gray pixels stay gray; gray images have a value only.

Numbers are whole: factors, from 0 to 2, and ratios in units of 2**-15, places on the hexagon in 2**-8 of a level. A
level is within 0.02 of the exact one before it is rounded. With OpenCV, detectors round hues to two degrees, and
saturations to 1/255: that moves levels by one or two on average.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton._batch import color_formulas
from gpubeton._batch.color_formulas import ONE, SHIFT
from gpubeton._batch.interleave import load_planes, load_words, store_planes, store_words
from gpubeton._batch.step_code import CHANNELS, HEIGHT, ITEM_SIZE, LAYOUT_FIELDS, MOST, WIDTH
from gpubeton._batch.step_rows import BRIGHTNESS, COLORS, CONTRAST, HSV, HUE, KIND, PARAMETERS, SATURATION, STEP_COLUMNS
from gpubeton._compile.compile import AddressedFunction, device_function
from gpubeton._compile.intrinsics import i32_at, i64_at, load_u8, load_u16, signed, store_i16, store_u8, u8_at
from gpubeton._compile.simd import I32, Vector, VectorBuilder, vector_kernel

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array


_CHUNK = 1024  # pixels whose channels stay in the first cache

_blend, _saturate = device_function(color_formulas.blend), device_function(color_formulas.saturate)
_turn, _gray_sum = device_function(color_formulas.turn), device_function(color_formulas.gray_sum)


@device_function
def _change_grays(levels: Array, kind: int, factor: int) -> None:
    """Change gray pixels, whose gray values are their levels."""
    added = 0
    if kind == CONTRAST:
        for place in range(len(levels)):
            added += levels[place]
        added = (ONE - factor) * added // len(levels)
    for place in range(len(levels)):
        levels[place] = min(max((factor * signed(levels[place]) + added) >> SHIFT, 0), 255)


def change_color(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Change the colors of an image; opacity stays."""
    sizes, columns = i64_at(layout, LAYOUT_FIELDS), i32_at(row, STEP_COLUMNS)
    kind, factor = signed(columns[KIND]), signed(columns[PARAMETERS])
    channels, size = sizes[CHANNELS], sizes[HEIGHT] * sizes[WIDTH]
    if factor == (0 if kind == HUE else ONE):
        return 0
    if channels == 1:
        if kind in (BRIGHTNESS, CONTRAST):
            _change_grays(u8_at(image, size), kind, factor)
        return 0
    pixels, total = u8_at(image, size * channels).reshape((size, channels)), np.int64(0)
    for is_change in range(kind != CONTRAST, 2):  # the mean of the gray values first, where it is needed
        added = (ONE - factor) * total // size
        for start in range(0, size, _CHUNK):
            part = pixels[start : start + _CHUNK]
            planes = i32_at(memory, 3 * len(part)).reshape((3, len(part)))
            load_planes(part, planes)
            if not is_change:
                total += _gray_sum(planes)
                continue
            if kind == SATURATION:
                _saturate(planes, factor)
            elif kind == HUE:
                _turn(planes, factor)
            else:
                _blend(planes, factor, added)
            store_planes(planes, part)
    return 0


_GROUP = 16
_TURN = (1 << 15) - 1  # mask of a turn's part
_OF_VALUE, _OF_SATURATION = 1, 2  # a factor that may lead beyond the largest level, or saturation


@device_function
def _change_any(image: int, count: int, channels: int, size: int, most: int, row: int) -> None:
    columns = i32_at(row, STEP_COLUMNS)
    saturation, value, turn = columns[PARAMETERS], columns[PARAMETERS + 1], columns[PARAMETERS + 2] & _TURN
    step = size if channels > 1 else 0
    for number in range(count):
        pixel = image + number * channels * size
        if size == 1:
            red, green, blue = load_u8(pixel), load_u8(pixel + step), load_u8(pixel + 2 * step)
        else:
            red, green, blue = load_u16(pixel), load_u16(pixel + step), load_u16(pixel + 2 * step)
        largest, chroma = max(red, green, blue), max(red, green, blue) - min(red, green, blue)
        corner = 2 * chroma + blue - red if largest == green else 4 * chroma + red - green
        corner = green - blue if largest == red else corner
        ratio = min(value, (most << 15) // max(largest, 1))
        top, side = ratio * largest, chroma << 8
        share = min((saturation * (ratio >> 1)) >> 14, top // max(chroma, 1))
        place = ((corner << 8) + ((6 * turn * chroma) >> 7)) % max(6 * side, 1)
        for channel in range(min(channels, 3)):
            away = abs(place - side * (2 * channel if channel else 3))
            height = 2 * side - away if channel else away - side
            lost = side - min(max(height, 0), side)
            level = ((top << 8) - share * lost + (1 << 22)) >> 23
            if size == 1:
                store_u8(pixel + channel, level)
            else:
                store_i16(pixel + channel * size, level)


@vector_kernel
def _change_groups(emit: VectorBuilder, pixels: Vector, groups: Vector, row: Vector, limits: Vector) -> None:
    # `limits` as of `hsv`. Whole quotients below 2**23, by at most 255, are exact in float32, rounded down.
    saturation, value, turn = (
        emit.splat(emit.load(row + 4 * (PARAMETERS + number), I32), _GROUP) for number in range(3)
    )
    turn, none, most = (turn & _TURN) * 6, turn.like(0), turn.like(255 << 15)

    def quotient(dividend: Vector, divisor: Vector) -> Vector:
        return (dividend.to_float() / divisor.larger(none.like(1)).to_float()).to_integer()

    def change(first: Vector, case: int) -> None:
        red, green, blue = load_words(emit, first)
        largest = red.larger(green).larger(blue)
        chroma = largest - red.smaller(green).smaller(blue)
        corner = largest.where_equal(green, chroma * 2 + blue - red, chroma * 4 + red - green)
        corner = largest.where_equal(red, green - blue, corner)
        ratio = quotient(most, largest).smaller(value) if case & _OF_VALUE else value
        top, side = ratio * largest, chroma.shift_left(8)
        share = (saturation * ratio.shift_right(1)).shift_right_logical(14)
        if case & _OF_SATURATION:
            share = share.smaller(quotient(top, chroma))
        place = corner.shift_left(8) + (turn * chroma).shift_right(7)
        place = place.smaller_unsigned(place + side * 6)
        place = place.smaller_unsigned(place - side * 6)
        changed, whole = [], top.shift_left(8) + (1 << 22)
        for at in (3, 2, 4):
            away = place - side * at
            away = away.larger(none - away)
            lost = side * 2 - away if at == 3 else away - side
            changed.append(whole - share * lost.larger(none).smaller(side))
        store_words(emit, changed, 23, first)

    def change_all(case: int | None) -> None:
        with emit.loop(groups) as group:
            change(pixels + group * (3 * _GROUP), _OF_VALUE | _OF_SATURATION if case is None else case)

    emit.switch(limits, (0, _OF_VALUE, _OF_SATURATION), change_all)


def hsv(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Change saturation, value and hue."""
    sizes = i64_at(layout, LAYOUT_FIELDS)
    count = sizes[HEIGHT] * sizes[WIDTH]
    if sizes[CHANNELS] == 3 and sizes[ITEM_SIZE] == 1:
        columns = i32_at(row, STEP_COLUMNS)
        # A factor of at most 1 leads to no level that has to be limited, which takes a division.
        limits = _OF_SATURATION * (columns[PARAMETERS] > ONE) + _OF_VALUE * (columns[PARAMETERS + 1] > ONE)
        _change_groups(image, -(-count // _GROUP), row, limits)
    else:
        _change_any(image, count, sizes[CHANNELS], sizes[ITEM_SIZE], sizes[MOST], row)
    return 0


COLOR_CODES = {**dict.fromkeys(COLORS, AddressedFunction(change_color)), HSV: AddressedFunction(hsv)}
