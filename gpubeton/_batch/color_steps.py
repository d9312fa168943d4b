"""Steps that change colors, BRIGHTNESS to HUE, outside of `gpubeton._cpu.color_simd`, which runs several at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton._batch import color_formulas
from gpubeton._batch.color_formulas import ONE, SHIFT
from gpubeton._batch.interleave import load_planes, store_planes
from gpubeton._batch.step_code import CHANNELS, HEIGHT, LAYOUT_FIELDS, WIDTH
from gpubeton._batch.step_rows import BRIGHTNESS, COLORS, CONTRAST, HUE, KIND, PARAMETERS, SATURATION, STEP_COLUMNS
from gpubeton._compile.compile import AddressedFunction, device_function
from gpubeton._compile.intrinsics import i32_at, i64_at, signed, u8_at

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


COLOR_CODES = dict.fromkeys(COLORS, AddressedFunction(change_color))
